"""What a run is evaluated on and when, and a rank's part in it: its share of a set, sampled on the policy's own engine.

Sampling here has its own seeds and leaves the training's random state as it was, so that evaluating more or less often
does not change a run. No policy's process scores anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from codea1_cli.engine.trl.sampling import beside_training, sample_groups, sync_weights
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.evals.benchmark import EvalSet, ScoreOptions, SetOptions, default_cache
from codea1_cli.evals.heldout import HeldoutAttacking, HeldoutNearMisses, HeldoutSolving
from codea1_cli.evals.registry import benchmark_row, open_set
from codea1_cli.files import user_path
from codea1_cli.judging.step_judge import StepJudge
from codea1_cli.methods.registry import method_of
from codea1_cli.models.sampler import SamplingSettings, cut_at_stop
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.schema import Recipe

if TYPE_CHECKING:
    from codea1_cli.engine.trl.rank import TrainingRank


# -- which sets there are ----------------------------------------------------------------------------------------------
def heldout_sets(
    recipe: Recipe,
    problems: Sequence[Problem] = (),
    judge: StepJudge | None = None,
    progress: Callable[[], None] = lambda: None,
) -> tuple[HeldoutSolving, HeldoutNearMisses, HeldoutAttacking]:
    """The held-out sets of a run, in the order in which they are sampled: near misses can be looked for while the Code
    LLM samples, who may give the third set its programs. The arena gives problems and judge, a rank neither."""
    shown = recipe.game.tests_per_suite, recipe.game.white_box
    return (
        HeldoutSolving(recipe.eval.n, problems, judge, progress),
        HeldoutNearMisses(*shown, problems, judge, progress),
        HeldoutAttacking(*shown, problems, judge, progress),
    )


def benchmark_sets(recipe: Recipe, workers: int = 1) -> list[EvalSet]:
    """The benchmarks that a recipe names, not yet loaded, without those of a policy that its method does not train.

    workers: programs scored at once.
    """
    wish, found = recipe.eval, []
    data = user_path(wish.benchmark_data) if wish.benchmark_data else None
    scoring = ScoreOptions(workers, wish.benchmark_python, tuple(recipe.sandbox.require), default_cache())
    for name in wish.benchmarks:
        role = benchmark_row(name).role
        if role not in method_of(recipe).roles:
            continue
        longest = recipe.role(role).max_completion_tokens
        sampling = SamplingSettings(wish.benchmark_n, wish.benchmark_temperature, wish.benchmark_top_p, longest)
        options = SetOptions(data, wish.benchmark_limit, sampling, scoring, recipe.game.tests_per_suite)
        found.append(open_set(name, options))
    return found


def check_benchmarks(recipe: Recipe) -> None:
    """Raises UserError or EnvironmentFault where the data of a benchmark that the recipe names is not there."""
    try:
        for chosen in benchmark_sets(recipe):
            chosen.load()
            chosen.close()
    except (UserError, EnvironmentFault) as fault:
        where = "eval.benchmark_data=FILE names the release file, or the folder that holds it"
        raise type(fault)(f"eval.benchmarks: {fault.what}", hint=where) from None


# -- when they are due -------------------------------------------------------------------------------------------------
def heldout_due(recipe: Recipe, step: int, *ends: int) -> bool:
    """Before the first step, at `ends` (the last one of the run, and of a call with --max-steps), and every
    `eval.every`."""
    every = recipe.eval.every
    return recipe.data.heldout is not None and (step in (0, *ends) or (every is not None and step % every == 0))


def benchmarks_due(recipe: Recipe, step: int, *ends: int) -> bool:
    """Before the first step, at `ends`, and every `eval.benchmark_every` or else `eval.every`."""
    every = recipe.eval.benchmark_every or recipe.eval.every
    return bool(recipe.eval.benchmarks) and (step in (0, *ends) or (every is not None and step % every == 0))


def figure_due(recipe: Recipe, step: int, *ends: int) -> bool:
    """Whether the figure that marks the best checkpoint is measured after this step."""
    figure = recipe.eval.best
    if figure is None:
        return False
    return (heldout_due if figure.startswith("heldout/") else benchmarks_due)(recipe, step, *ends)


# -- a rank's share ----------------------------------------------------------------------------------------------------
def evaluate(rank: TrainingRank, step: int) -> None:
    """Samples this rank's share of every set that is due after this step, or before the first, and posts it to the
    arena, which scores it meanwhile."""
    recipe = rank.recipe
    sets: list[EvalSet] = list(heldout_sets(recipe)) if heldout_due(recipe, step, *rank.ends) else []
    if benchmarks_due(recipe, step, *rank.ends):
        sets += benchmark_sets(recipe)
    for chosen in sets:
        if chosen.role == rank.spec.role:
            _sample_share(rank, chosen, step)


def _sample_share(rank: TrainingRank, chosen: EvalSet, step: int) -> None:
    spec, trainer, at = rank.spec, rank.trainer, max(step, 1)
    if chosen.name not in rank.shares:
        rank.phase("waiting", at)  # wrong programs to attack may come from the Code LLM's own evaluation
        rank.shares[chosen.name] = rank.arena.evaluation_share(chosen.name, spec.rank, spec.ranks)
    items = rank.shares[chosen.name]
    rank.phase("evaluating", at)
    prompts, settings = chosen.prompts(rank.tokenizer, items), chosen.sampling()
    fit = list(range(len(prompts)))
    if settings is not None:
        fit = fitting(prompts, settings.max_new_tokens, engine_length(trainer, rank.recipe, spec.role))
    sync_weights(trainer)
    # The same seed at every step: what differs between two evaluations is the policy.
    seed = rank.recipe.seed * 1000 + chosen.seed + spec.rank
    with beside_training(trainer, seed), sampling_as(trainer, settings):
        completions, _ = sample_groups(
            trainer,
            [prompts[i] for i in fit],
            chosen.n,
            chunk=rank.recipe.sampling.chunk,
            on_chunk=lambda *_: rank.phase("evaluating", at),  # a long evaluation is not a hang
        )
    texts = {item.id: [""] * chosen.n for item in items}
    for i, group in zip(fit, completions, strict=True):
        decoded = rank.tokenizer.batch_decode(group, skip_special_tokens=True)
        texts[items[i].id] = [cut_at_stop(text, settings.stop if settings else ()) for text in decoded]
    rank.arena.post_evaluation(step, chosen.name, spec.rank, texts, len(items) - len(fit))


@contextlib.contextmanager
def sampling_as(trainer: Any, settings: SamplingSettings | None) -> Iterator[None]:
    """The trainer's engine with other settings, top-k off; the training's own come back, whatever happens inside. None
    changes nothing."""
    wished: dict[str, Any] = {}
    engine = trainer.vllm_generation if trainer.use_vllm else trainer.generation_config
    if settings is not None:
        longest = "max_completion_length" if trainer.use_vllm else "max_new_tokens"
        wished = {"temperature": settings.temperature, "top_p": settings.top_p, "top_k": 0}
        wished[longest] = settings.max_new_tokens
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
