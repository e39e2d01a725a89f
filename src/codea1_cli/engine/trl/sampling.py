"""Sampling with a trainer's own engine, and the random state around it.

`GRPOTrainer._generate_single_turn` is how TRL itself samples, with transformers or vLLM, weights synchronised.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from codea1_cli.engine.trl.vllm_engine import as_they_end
from codea1_cli.methods.base import Ids, More, OnChunk
from codea1_cli.models.sampler import SamplingSettings
from codea1_cli.planning import CHUNK
from codea1_cli.recipe.batching import longest
from codea1_cli.recipe.schema import Recipe


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """A block in which no garbage is collected: vLLM leaves a few small objects for each token, none of them garbage,
    and looking through them again and again takes longer than making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def sample_groups(
    trainer: Any,
    prompts: Sequence[Ids],
    n: int,
    *,
    chunk: int | None,
    on_chunk: OnChunk | None = None,
    more: More = list,
) -> tuple[list[list[Ids]], list[list[list[float]]] | None]:
    """Samples `n` completions for each prompt.

    Args:
        prompts: token ids, one list a prompt.
        chunk: sequences sampled together, rounded down to whole groups; None: 256, with vLLM 4096. Prompts of like
            length go together, so that little is padded.
        on_chunk: called with the prompts' indices and their completions: after each chunk, with vLLM as groups end.
        more: with vLLM and `on_chunk`, asked again and again while the last chunk is sampled; its prompts join that,
            and their indices come after those of `prompts`.

    Returns:
        completions[prompt][n] as token ids, never empty, and the sampler's log-probs in the same shape (None when the
        engine reports none).
    """
    eos = trainer.processing_class.eos_token_id
    completions: list[list[Ids]] = [[] for _ in prompts]
    logprobs: list[list[list[float]]] = [[] for _ in prompts]
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    groups = max(1, (chunk or CHUNK["vllm" if trainer.use_vllm else "transformers"]) // n)
    scored = True
    for start in range(0, len(order), groups):
        part = order[start : start + groups]
        told: set[int] = set()

        def hand_over(ended: Mapping[int, list[Ids]], part: list[int] = part, told: set[int] = told) -> None:
            """Groups by their place in the part, those that were not handed over before."""
            new = [place for place in ended if place not in told]
            told.update(new)
            if new and on_chunk is not None:
                on_chunk([part[place] for place in new], [ended[place] for place in new])

        def taken_up(part: list[int] = part) -> list[Ids]:
            for _ in (new := more()):
                part.append(len(completions))
                completions.append([])
                logprobs.append([])
            return new

        flat = [list(prompts[i]) for i in part for _ in range(n)]
        with contextlib.ExitStack() as stack:
            if trainer.use_vllm:
                stack.enter_context(without_gc())
            if trainer.use_vllm and on_chunk:
                last = start + groups >= len(order)
                stack.enter_context(as_they_end(trainer, n, eos, hand_over, taken_up if last else list))
            ids, scores = trainer._generate_single_turn(flat, None, {}, n)
        scored = scored and scores is not None
        for place, i in enumerate(part):
            rows = range(place * n, (place + 1) * n)
            # TRL cannot take a completion without a token: an empty one becomes a bare end of text.
            completions[i] = [list(ids[row]) or [eos] for row in rows]
            if scores is not None:
                logprobs[i] = [list(scores[row]) or [0.0] for row in rows]
        hand_over({place: completions[i] for place, i in enumerate(part)})
    return completions, logprobs if scored and prompts else None


def make_sampler(trainer: Any, recipe: Recipe, role: str, plain: Any) -> None:
    """Gives a trainer that does not sample what this module asks of a GRPOTrainer: transformers' `generate` with the
    training's settings, in the place of `_generate_single_turn`; in halves what does not fit in a GPU's memory.

    plain: generation settings that name the end and pad tokens alone.
    """
    import torch
    from trl.models.utils import unwrap_model_for_generation

    settings, section = recipe.sampling, recipe.role(role)
    options = {"temperature": settings.temperature, "top_p": settings.top_p, "top_k": settings.top_k}
    trainer.generation_config = copy.deepcopy(plain)
    trainer.generation_config.update(do_sample=True, max_new_tokens=section.max_completion_tokens, **options)
    trainer.use_vllm = False
    tokenizer, ends = trainer.processing_class, set(plain.eos_token_id)

    def single(prompts: list[Ids], images: Any, fields: Any, n: int) -> tuple[list[Ids], None]:
        try:
            return sampled(prompts), None
        except torch.cuda.OutOfMemoryError:
            if len(prompts) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(prompts) // 2
        return single(prompts[:half], images, fields, n)[0] + single(prompts[half:], images, fields, n)[0], None

    def sampled(prompts: list[Ids]) -> list[Ids]:
        batch = tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt")
        inputs = batch.to(trainer.accelerator.device)
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model, torch.no_grad():
            out = model.generate(**inputs, generation_config=trainer.generation_config)
        completions = out[:, inputs["input_ids"].shape[1] :].tolist()
        return [ids[: next((at + 1 for at, id in enumerate(ids) if id in ends), None)] for ids in completions]

    trainer._generate_single_turn = single


def sync_weights(trainer: Any) -> None:
    """Brings the policy's weights into vLLM, where that is the engine and they are not there yet.

    Under FSDP2 a sync is a collective: every rank calls this before it samples, also one with nothing to sample.
    """
    if trainer.use_vllm and trainer.state.global_step != trainer._last_loaded_step:
        trainer.vllm_generation.sync_weights()
        trainer._last_loaded_step = trainer.state.global_step


def log_probs(trainer: Any, prompts: Sequence[Ids], completions: Sequence[Sequence[Ids]]) -> list[list[list[float]]]:
    """The policy's log-probs of completions [prompt][n][tokens], in the same shape, as TRL's update computes them."""
    import torch

    pad, device = trainer.processing_class.pad_token_id, trainer.accelerator.device
    rows = [(list(prompt), list(ids)) for prompt, group in zip(prompts, completions, strict=True) for ids in group]
    if not rows:
        return [[] for _ in completions]
    left, right = (max(map(len, column)) for column in zip(*rows, strict=True))
    widths = [(left - len(prompt), right - len(ids)) for prompt, ids in rows]
    tokens = [[pad] * a + p + c + [pad] * b for (p, c), (a, b) in zip(rows, widths, strict=True)]
    mask = [[0] * a + [1] * len(p + c) + [0] * b for (p, c), (a, b) in zip(rows, widths, strict=True)]
    inputs = (torch.tensor(each, device=device) for each in (tokens, mask))
    size = trainer.args.per_device_train_batch_size
    with torch.no_grad():
        scores, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, *inputs, right, size)
    found = [row[: len(ids)] for row, (_, ids) in zip(scores.tolist(), rows, strict=True)]
    each = iter(found)
    return [[next(each) for _ in group] for group in completions]


def sample_by_prompt(trainer: Any, seed: int) -> None:
    """From now on each distinct prompt is sampled alone, under a seed made of `seed`, the optimizer step, the prompt
    and how often it was sampled in that step. The samples then depend neither on the rank nor on the other prompts, nor
    on where a run was resumed."""
    import hashlib

    import torch

    whole = trainer._generate_single_turn
    seen: dict[tuple[int, tuple[int, ...]], int] = {}

    def single(prompts: list[Ids], images: Any, fields: Any, n: int, **rest: Any) -> Any:
        ids: list[Ids] = []
        start = 0
        while start < len(prompts):
            prompt, end = prompts[start], start
            while end < len(prompts) and prompts[end] == prompt:
                end += 1
            key = (trainer.state.global_step, tuple(prompt))
            seen[key] = seen.get(key, 0) + 1
            digest = hashlib.sha256(repr((seed, seen[key], *key)).encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:7], "big"))
            ids += whole(prompts[start:end], images, fields, n, **rest)[0]
            start = end
        return ids, None

    single.seen = seen  # type: ignore[attr-defined]
    trainer._generate_single_turn = single


@contextlib.contextmanager
def beside_training(trainer: Any, seed: int) -> Iterator[None]:
    """Sampling that training does not notice.

    It has a seed of its own, and what `sample_by_prompt` has counted stays: a prompt that training meets too does not
    find its seed moved on.
    """
    counted: dict[Any, int] = getattr(trainer._generate_single_turn, "seen", {})
    before = dict(counted)
    try:
        with own_randomness(seed):
            yield
    finally:
        counted.clear()
        counted.update(before)


def random_state() -> dict[str, Any]:
    """The state of every random generator that sampling draws from, on this process's GPU too."""
    import numpy
    import torch

    state = {"python": random.getstate(), "numpy": numpy.random.get_state(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Puts back what `random_state` gave."""
    import numpy
    import torch

    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


@contextlib.contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """A block with its own seed that leaves the random state as it was."""
    import torch

    state = random_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        restore_random_state(state)


@contextlib.contextmanager
def sampling_as(trainer: Any, settings: SamplingSettings | int) -> Iterator[None]:
    """The trainer's engine with other settings, top-k off; the training's own come back, whatever happens inside. A
    number alone is the most tokens of a completion."""
    engine = trainer.vllm_generation if trainer.use_vllm else trainer.generation_config
    length, wished = settings, dict[str, Any]()
    if isinstance(settings, SamplingSettings):
        length = settings.max_new_tokens
        wished = {"temperature": settings.temperature, "top_p": settings.top_p, "top_k": 0}
    wished["max_completion_length" if trainer.use_vllm else "max_new_tokens"] = length
    with patch.multiple(engine, **wished):
        yield


def fitting(prompts: Sequence[Sequence[int]], max_new_tokens: int, length: int | None) -> list[int]:
    """Places of the prompts that leave room for a whole reply within the engine's length; None knows no bound."""
    return [i for i, prompt in enumerate(prompts) if length is None or len(prompt) + max_new_tokens <= length]


def engine_length(trainer: Any, recipe: Recipe, policy: str) -> int | None:
    """Tokens of prompt and reply that the engine takes."""
    if trainer.use_vllm:
        return sum(longest(recipe, policy))
    return getattr(trainer.model.config, "max_position_embeddings", None)
