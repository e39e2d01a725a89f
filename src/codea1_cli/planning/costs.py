"""What one rank costs: memory in named parts, and seconds of a step by phase, from a device's data sheet and stated
shares of it. Formulas: docs/plan.md. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codea1_cli import planning as c
from codea1_cli.methods.registry import method_of
from codea1_cli.planning import ModelShape
from codea1_cli.recipe.batching import Batches, fullest, longest, micro_batches
from codea1_cli.recipe.schema import Recipe


@dataclass(frozen=True)
class RankMemory:
    """Bytes by part. `held` stays from the first update on, `update` comes and goes with a micro-batch, `sampling` is
    what the sampling engine needs at the least. `engine` is `vllm` or `transformers`."""

    held: dict[str, int]
    update: dict[str, int]
    sampling: dict[str, int]
    engine: str
    sleeps: bool

    @property
    def training(self) -> int:
        """Bytes at the height of an update, the sampling engine left out."""
        return sum(self.held.values()) + sum(self.update.values())

    @property
    def idle(self) -> int:
        """Bytes of its training between two updates."""
        return sum(self.held.values()) - self.held.get("gradients", 0)

    @property
    def smallest(self) -> int:
        """Bytes without which the rank cannot work: the higher of its two heights, or both where vLLM stays awake."""
        sampling = sum(self.sampling.values())
        if self.engine == "vllm" and not self.sleeps:
            return self.training + sampling
        return max(self.training, self.idle + sampling)


def rank_memory(
    recipe: Recipe, policy: str, shape: ModelShape, batches: Batches, *, vllm: bool, gpu: bool
) -> RankMemory:
    """Memory of one of `batches.ranks` ranks of a policy."""
    return RankMemory(
        _held(recipe, shape, batches.ranks, gpu),
        _update(recipe, policy, shape, batches),
        _sampling(recipe, policy, shape, batches, vllm),
        "vllm" if vllm else "transformers",
        recipe.sampling.vllm_sleep,
    )


def trainable(recipe: Recipe, shape: ModelShape) -> int:
    """Parameters with a gradient."""
    return shape.adapter_parameters(recipe.lora) if recipe.lora is not None else shape.parameters


def _held(recipe: Recipe, shape: ModelShape, ranks: int, gpu: bool) -> dict[str, int]:
    learned = trainable(recipe, shape)
    whole = shape.parameters + (learned if recipe.lora is not None else 0)
    share = ranks if recipe.train.sharding == "fsdp2" else 1
    parts = {"weights": 4 * whole // share, "gradients": 4 * learned // share, "optimizer": 8 * learned // share}
    if recipe.optim.kl > 0 and recipe.lora is None:  # with adapters the reference is the model without them
        parts["reference model"] = 4 * shape.parameters // share
    if ranks > 1 and share == 1:
        parts["gradient buckets"] = int(c.DDP_BUCKETS * 4 * learned)
    parts["CUDA" if gpu else "process"] = (c.CUDA_CONTEXT + (c.NCCL if ranks > 1 else 0)) if gpu else c.CPU_PROCESS
    return parts


def _update(recipe: Recipe, policy: str, shape: ModelShape, batches: Batches) -> dict[str, int]:
    tokens, scored = fullest(recipe, policy, batches)
    bf16 = recipe.train.precision != "fp32"
    layer = c.LAYER_HIDDEN_BYTES * shape.hidden + c.LAYER_MLP_BYTES * shape.mlp
    layer += c.LAYER_HEAD_BYTES * (shape.head_width + shape.kv_width)
    layer = int(layer * tokens * (1.0 if bf16 else c.FP32_ACTIVATIONS))
    tile = min(scored, c.LOGIT_TOKENS) * min(shape.vocabulary, c.LOGIT_VOCABULARY) * c.LOGIT_BYTES
    logits = c.LOGIT_TILES * tile * (1 if bf16 else 2) + 4 * scored * shape.hidden
    if recipe.lora is None:
        logits += 4 * shape.embedding  # the head's gradient, summed up in fp32
    parts = {"attention mask": c.MASK_BYTES * tokens * sum(longest(recipe, policy))}
    if recipe.train.gradient_checkpointing:
        parts["checkpoints"] = c.RESIDUAL_BYTES * tokens * shape.hidden * (shape.layers + 1)
        # The head's backward pass is over before the last layer is recomputed.
        top, name = max((logits, "log-probs"), (int(layer * c.LAYER_BACKWARD), "activations of one layer"))
        parts[name] = top
    else:
        parts["activations"] = layer * shape.layers
        parts["log-probs"] = logits
    if recipe.train.sharding == "fsdp2" and batches.ranks > 1:
        parts["gathered weights"] = 2 * 2 * shape.layer_parameters + (2 + 4) * shape.embedding
    elif bf16:
        parts["bf16 weights"] = 2 * shape.working_parameters
    parts["fragments"] = int(c.FRAGMENTATION * sum(parts.values()))
    return parts


def _sampling(recipe: Recipe, policy: str, shape: ModelShape, batches: Batches, vllm: bool) -> dict[str, int]:
    tokens = sum(longest(recipe, policy))
    if vllm:
        cache = max(tokens * shape.kv_bytes, c.VLLM_SMALLEST_CACHE)
        return {"vLLM weights": 2 * shape.parameters, "vLLM cache": cache, "vLLM workspace": c.VLLM_OVERHEAD}
    rows = min(recipe.sampling.chunk or c.CHUNK["transformers"], at_once(recipe, policy) // batches.ranks)
    return {
        "key/value cache": int(c.GENERATE_OVERHEAD * rows * tokens * shape.kv_bytes),
        "logits": 3 * 4 * rows * shape.vocabulary,
    }


def at_once(recipe: Recipe, policy: str) -> int:
    """The most sequences that a policy could sample together: those of one role, for it plays them in turn."""
    return max(sampled(recipe, role) for role in method_of(recipe).roles_of(policy))


def sampled(recipe: Recipe, role: str) -> int:
    """Sequences sampled for a role in one step (all candidates, say); 0 where the method has no such role."""
    method = method_of(recipe)
    return recipe.train.problems_sampled * method.plan(recipe.game, role).sampled if role in method.roles else 0


@dataclass(frozen=True)
class GpuLoad:
    """One GPU, or the host: the memory of each rank there, by the rank's name, and the bytes that there are."""

    ranks: dict[str, RankMemory]
    total: int

    @property
    def needed(self) -> int:
        """Bytes without which its ranks cannot work."""
        return sum(memory.smallest for memory in self.ranks.values())

    @property
    def fits(self) -> bool:
        """Whether there is as much as is needed."""
        return self.needed <= self.total

    def cache(self, memory: RankMemory, most: float) -> int:
        """Bytes of key/value cache of one of its ranks; `most` is the recipe's `sampling.vllm_memory`."""
        if memory.engine != "vllm":
            return memory.sampling["key/value cache"]
        smallest = memory.sampling["vLLM cache"]
        engines = sum(other.engine == "vllm" for other in self.ranks.values())
        surplus, training = max(0, self.total - self.needed), sum(other.training for other in self.ranks.values())
        left = smallest + int(c.engines_part(surplus, training)) // engines
        if memory.sleeps:
            left = max(left, self.total - self.needed + memory.smallest - memory.idle)
        bound = int(most * self.total) - memory.sampling["vLLM weights"] - memory.sampling["vLLM workspace"]
        return max(smallest, min(left, bound))

    def peak(self, most: float) -> int:
        """Bytes in use at the most, vLLM's whole share among them."""
        total = 0
        for memory in self.ranks.values():
            extra = self.cache(memory, most) - memory.sampling["vLLM cache"] if memory.engine == "vllm" else 0
            total += memory.smallest + (0 if memory.sleeps else extra)
        return min(total, self.total) if self.fits else total


@dataclass(frozen=True)
class Lengths:
    """Tokens of a mean prompt and a mean completion of one role."""

    prompt: float
    completion: float


@dataclass(frozen=True)
class PolicyTime:
    """Seconds per step of one policy's rank; sequences and tokens per step of all its ranks, in all its roles.

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


def policy_time(
    recipe: Recipe,
    policy: str,
    shape: ModelShape,
    batches: Batches,
    device: c.Device,
    lengths: Mapping[str, Lengths],
    *,
    cache: int,
    engine: str,
) -> PolicyTime:
    """One policy's time per step; it plays its roles one after another.

    Args:
        device: what a rank computes on: a GPU, or its share of the host's cores.
        lengths: by role.
        cache: bytes for key/value caches on a rank.
        engine: `vllm`, `transformers` or `cpu`.
    """
    method = method_of(recipe)
    parts = {
        role: _sampling_s(recipe, role, shape, batches.ranks, device, lengths[role], cache, engine)
        for role in method.roles_of(policy)
    }
    sync = c.SYNC_S_PER_GIB * 2 * shape.parameters / c.GIB if engine == "vllm" else 0.0
    rows = {}
    for role in parts:
        plan = method.plan(recipe.game, role)
        rows[role] = recipe.train.problems_per_step * plan.groups * plan.group
    trained = sum(count * (lengths[role].prompt + lengths[role].completion) for role, count in rows.items())
    return PolicyTime(
        sampling=sum(seconds for seconds, _ in parts.values()) + sync,
        updating=_updating_s(recipe, shape, batches, device, trained / batches.rows_per_step, engine),
        sequences=sum(sampled(recipe, role) for role in parts),
        sampled_tokens=sum(sampled(recipe, role) * lengths[role].completion for role in parts),
        trained_tokens=trained,
        at_once=max(together for _, together in parts.values()),
    )


def _sampling_s(
    recipe: Recipe, role: str, shape: ModelShape, ranks: int, device: c.Device, length: Lengths, cache: int, engine: str
) -> tuple[float, int]:
    """Seconds of one rank's sampling for a role, and the sequences that it samples together."""
    vllm, mine = engine == "vllm", sampled(recipe, role) / ranks
    bound = min(mine, recipe.sampling.chunk or c.CHUNK["vllm" if vllm else "transformers"])
    if vllm:
        fitting = cache / (shape.kv_bytes * (length.prompt + length.completion))
        bound = min(bound, c.VLLM_SEQUENCES[1], fitting)
    at_once, mean, most = max(1, int(bound)), length.completion, recipe.role(role).max_completion_tokens
    waves = mine / at_once
    bandwidth, flops = device.bandwidth * c.DECODE_BANDWIDTH, device.flops * c.PREFILL_UTILISATION
    step = c.DECODE_STEP_S[engine] + (2 if vllm else 4) * shape.working_parameters / bandwidth
    row, compute = shape.kv_bytes * (length.prompt + mean / 2) / bandwidth, 2 * shape.working_parameters / flops
    if vllm:  # others take the place of a finished row; at last the longest decodes almost alone
        rest = min(most, c.LONGEST * mean) - mean if mine else 0.0
        decoding = (waves * mean + rest) * step + mine * mean * max(row + c.DECODE_ROW_S, compute)
    else:
        decoding = waves * most * (step + at_once * max(row, compute))
    prompts = mine / (method_of(recipe).plan(recipe.game, role).group if vllm else 1)  # vLLM reads a group's once
    return decoding + prompts * length.prompt * shape.forward_flops(length.prompt) / flops, at_once


def _updating_s(
    recipe: Recipe, shape: ModelShape, batches: Batches, device: c.Device, length: float, engine: str
) -> float:
    updates = batches.updates_per_step
    passes = update_passes(recipe, updates, engine) + recipe.train.gradient_checkpointing
    flops = passes * batches.rows_per_rank * length * shape.forward_flops(length)
    layers = micro_batches(recipe, batches, length) * shape.layers
    launching = passes * layers * c.TRAIN_LAYER_OVERHEAD_S if engine != "cpu" else 0.0
    return max(flops / (device.flops * c.TRAIN_UTILISATION), launching) + updates * c.UPDATE_OVERHEAD_S


def update_passes(recipe: Recipe, updates: int, engine: str) -> int:
    """What a trained token takes, in forward passes: its own and the backward one, the policy's log-prob, where it is
    compared with vLLM's or several updates share it, and the reference model's."""
    backward = 2 if recipe.lora is None else 1  # an adapter's frozen weights have no gradient
    compared = engine == "vllm" and recipe.sampling.importance_correction
    return 1 + backward + (updates > 1 or compared) + (recipe.optim.kl > 0)


def judging_s(recipe: Recipe, workers: int) -> float:
    """Seconds of judging per step with so many workers at once."""
    candidates, suites = sampled(recipe, "code"), sampled(recipe, "test")
    return (candidates * c.JUDGE_CANDIDATE_S + suites * c.JUDGE_SUITE_S) / max(workers, 1)


def step_seconds(times: Sequence[PolicyTime], judging: float, *, shared: bool, ahead: int = 0) -> float:
    """One step's period, from the times of the policies in the order in which they sample. Judging hides behind the
    last one's sampling. Two policies overlap: while the second still updates, the first may already update and sample
    the next step; alone, or on one GPU (`shared`), they only take turns. A first one that samples a step `ahead` does
    so while the second samples and the judge works.
    """
    last = times[-1]
    tail = max(judging - last.sampling, (1 - c.JUDGE_HIDDEN) * judging) + (c.STRAGGLERS_S if judging else 0.0)
    if shared or len(times) == 1:
        waited = max(tail - times[0].sampling, 0.0) if ahead else tail
        return sum(time.sampling + time.updating for time in times) + waited
    own, first = last.sampling + tail, max(time.updating + time.sampling for time in times[:-1])
    return max(own + last.updating, first) if ahead else own + max(first, last.updating)
