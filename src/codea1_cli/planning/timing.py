"""Seconds of a step by phase, from a device's data sheet and stated shares of it. Formulas: docs/plan.md. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codea1_cli.methods.registry import method_of
from codea1_cli.planning import constants as c
from codea1_cli.planning.memory import sampled
from codea1_cli.planning.shapes import ModelShape
from codea1_cli.recipe.batching import Batches
from codea1_cli.recipe.schema import Recipe


@dataclass(frozen=True)
class Lengths:
    """Tokens of a mean prompt and a mean completion of one policy."""

    prompt: float
    completion: float


@dataclass(frozen=True)
class RoleTime:
    """Seconds per step of one policy's rank; sequences and tokens per step of all its ranks.

    `at_once`: sequences that a rank samples together.
    """

    sampling: float
    updating: float
    sequences: int
    sampled_tokens: float
    trained_tokens: float
    at_once: int


def mean_lengths(recipe: Recipe, role: str, prompt: float | None, completion: float | None) -> Lengths:
    """The lengths given, or else assumed, in tokens; never above the recipe's limits."""
    section = recipe.role(role)
    return Lengths(
        min(prompt or c.MEAN_PROMPT[role], section.max_prompt_tokens),
        min(completion or c.MEAN_COMPLETION, section.max_completion_tokens),
    )


def role_time(
    recipe: Recipe,
    role: str,
    shape: ModelShape,
    batches: Batches,
    device: c.Device,
    lengths: Lengths,
    *,
    cache: int,
    engine: str,
) -> RoleTime:
    """One policy's time per step.

    Args:
        device: what a rank computes on: a GPU, or its share of the host's cores.
        cache: bytes for key/value caches on a rank.
        engine: `vllm`, `transformers` or `cpu`.
    """
    sequences, vllm = sampled(recipe, role), engine == "vllm"
    mine = sequences / batches.ranks
    bound = min(mine, recipe.sampling.chunk or c.CHUNK["vllm" if vllm else "transformers"])
    if vllm:
        fitting = cache / (shape.kv_bytes * (lengths.prompt + lengths.completion))
        bound = min(bound, c.VLLM_SEQUENCES[1], fitting)
    at_once = max(1, int(bound))
    # A batch decodes as long as its longest row when nothing can take a finished row's place.
    steps = lengths.completion if vllm else recipe.role(role).max_completion_tokens
    width = 2 if vllm else 4
    reads = width * shape.working_parameters + at_once * shape.kv_bytes * (lengths.prompt + lengths.completion / 2)
    compute = 2 * shape.working_parameters * at_once / (device.flops * c.PREFILL_UTILISATION)
    one = c.DECODE_STEP_S[engine] + max(reads / (device.bandwidth * c.DECODE_BANDWIDTH), compute)
    group = method_of(recipe).plan(recipe.game, role).group
    prompts = mine / group if vllm else mine  # vLLM reads a group's prompt once
    prefill = prompts * lengths.prompt * _forward_flops(shape, lengths.prompt) / (device.flops * c.PREFILL_UTILISATION)
    sync = c.SYNC_S_PER_GIB * 2 * shape.parameters / c.GIB if vllm else 0.0
    return RoleTime(
        sampling=steps * one * mine / at_once + prefill + sync,
        updating=_updating_s(recipe, shape, batches, device, lengths, engine),
        sequences=sequences,
        sampled_tokens=sequences * lengths.completion,
        trained_tokens=batches.rows_per_step * (lengths.prompt + lengths.completion),
        at_once=at_once,
    )


def _updating_s(
    recipe: Recipe, shape: ModelShape, batches: Batches, device: c.Device, lengths: Lengths, engine: str
) -> float:
    length = lengths.prompt + lengths.completion
    passes = 3.0 + (1.0 if recipe.train.gradient_checkpointing else 0.0)
    scored = (1.0 if recipe.train.updates_per_step > 1 or engine == "vllm" else 0.0) + (recipe.optim.kl > 0)
    flops = (passes + scored) * batches.rows_per_rank * length * _forward_flops(shape, length)
    micro_batches = batches.rows_per_rank / batches.micro_batch
    launching = micro_batches * shape.layers * c.TRAIN_LAYER_OVERHEAD_S if engine != "cpu" else 0.0
    return max(flops / (device.flops * c.TRAIN_UTILISATION), launching) + batches.updates_per_step * c.UPDATE_OVERHEAD_S


def _forward_flops(shape: ModelShape, length: float) -> float:
    """Operations per token in one forward pass: two per parameter, and causal attention over half the length."""
    return 2 * shape.working_parameters + 2 * shape.layers * shape.head_width * length


def judging_s(recipe: Recipe, workers: int) -> float:
    """Seconds of judging per step with so many workers at once."""
    candidates, suites = sampled(recipe, "code"), sampled(recipe, "test")
    return candidates * (c.JUDGE_CANDIDATE_S + suites / candidates * c.JUDGE_SUITE_S) / max(workers, 1)


def step_seconds(times: Sequence[RoleTime], judging: float, *, shared: bool) -> float:
    """One step's period, from the times of the policies in the order in which they sample.

    Judging hides behind the last one's sampling. Two policies overlap: while the second still updates, the first may
    already update and sample the next step; alone, or on one GPU (`shared`), they only take turns.
    """
    last = times[-1]
    tail = max(judging - last.sampling, (1 - c.JUDGE_HIDDEN) * judging)
    if shared or len(times) == 1:
        return sum(time.sampling for time in times) + tail + sum(time.updating for time in times)
    return last.sampling + tail + max(*(time.updating + time.sampling for time in times[:-1]), last.updating)
