"""A rank's part in the benchmarks of `eval:`: its share of the tasks, sampled on the policy's own engine.

As with held-out problems, sampling has its own seed and leaves the training's random state as it was: a step that is
evaluated trains as one that is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from codea1_cli.engine.benchmark_sets import set_of
from codea1_cli.engine.trl.sampling import beside_training, sample_groups, sync_weights
from codea1_cli.evals.registry import benchmark_row
from codea1_cli.recipe.schema import Recipe


def due(recipe: Recipe, step: int, total: int) -> bool:
    """Before the first step, after the last, and every `eval.benchmark_every` or else `eval.every`."""
    every = recipe.eval.benchmark_every or recipe.eval.every
    return bool(recipe.eval.benchmarks) and (step in (0, total) or (every is not None and step % every == 0))


@contextlib.contextmanager
def sampling_as(trainer: Any, temperature: float, top_p: float, max_new_tokens: int) -> Iterator[None]:
    """The trainer's engine with other settings, top-k off; the training's own come back, whatever happens inside."""
    wished = {"temperature": temperature, "top_p": top_p, "top_k": 0}
    if trainer.use_vllm:
        engine, wished = trainer.vllm_generation, wished | {"max_completion_length": max_new_tokens}
    else:
        engine, wished = trainer.generation_config, wished | {"max_new_tokens": max_new_tokens}
    before = {name: getattr(engine, name) for name in wished}
    try:
        for name, value in wished.items():
            setattr(engine, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(engine, name, value)


def fitting(prompts: Sequence[Sequence[int]], max_new_tokens: int, length: int | None) -> list[int]:
    """Places of the prompts that leave room for a whole reply within the engine's length; None knows no bound."""
    return [i for i, prompt in enumerate(prompts) if length is None or len(prompt) + max_new_tokens <= length]


def engine_length(trainer: Any, recipe: Recipe, role: str) -> int | None:
    """Tokens of prompt and reply that the engine takes."""
    if trainer.use_vllm:
        section = recipe.role(role)
        return section.max_prompt_tokens + section.max_completion_tokens
    return getattr(trainer.model.config, "max_position_embeddings", None)


def sample_benchmarks(rank: Any, step: int) -> None:
    """Samples this rank's share of each benchmark of its policy, and posts it to the arena, which scores it meanwhile."""
    for name in rank.recipe.eval.benchmarks:
        if benchmark_row(name).role == rank.spec.role:
            _sample(rank, step, name)


def _sample(rank: Any, step: int, name: str) -> None:
    from codea1_cli.models.sampler import cut_at_stop

    spec, recipe, trainer = rank.spec, rank.recipe, rank.trainer
    tokenizer = trainer.processing_class
    if name not in rank.shares:
        rank.shares[name] = rank.arena.benchmark_share(name, spec.rank, spec.ranks)
    items, chosen = rank.shares[name], set_of(name, recipe)
    prompts, settings = chosen.prompts(tokenizer, items), chosen.sampling()
    n, most = settings.n, settings.max_new_tokens
    fit = fitting(prompts, most, engine_length(trainer, recipe, spec.role))
    rank.phase("evaluating", max(step, 1))
    sync_weights(trainer)
    # The same seed at every step: what differs between two evaluations is the policy.
    with (
        beside_training(trainer, recipe.seed * 1000 + 13 + spec.rank),
        sampling_as(trainer, settings.temperature, settings.top_p, most),
    ):
        completions, _ = sample_groups(
            trainer,
            [prompts[i] for i in fit],
            n,
            chunk=recipe.sampling.chunk,
            on_chunk=lambda *_: rank.phase("evaluating", max(step, 1)),  # a long benchmark is no hang
        )
    texts = {item.id: [""] * n for item in items}
    for i, group in zip(fit, completions, strict=True):
        decoded = tokenizer.batch_decode(group, skip_special_tokens=True)
        texts[items[i].id] = [cut_at_stop(text, settings.stop) for text in decoded]
    rank.arena.post_benchmark(step, name, spec.rank, texts, len(items) - len(fit))
