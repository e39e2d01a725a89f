"""What a whole run takes: memory, time, disk; which split of the GPUs makes it shortest; and whether it fits, with the
changes of the recipe that would make it fit. Formulas: docs/plan.md. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import NamedTuple

from codea1_cli import planning as c
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.methods.registry import method_of
from codea1_cli.planning import ModelShape, gib
from codea1_cli.planning.costs import (
    GpuLoad,
    Lengths,
    PolicyTime,
    RankMemory,
    judging_s,
    mean_lengths,
    policy_time,
    rank_memory,
    sampled,
    step_seconds,
    trainable,
)
from codea1_cli.planning.gpu_assignment import GpuId, Target
from codea1_cli.recipe.batching import Batches, batches, warmup_recipe
from codea1_cli.recipe.schema import Lora, Recipe


@dataclass(frozen=True)
class RunEstimate:
    """What a run is expected to take; mappings by policy hold what is the same for all its ranks; `lengths` is by role.

    `gpus` says where each rank is, `loads` what lies on each GPU, or on the host. Seconds and bytes: `judging_s` and
    `step_s` are per step, `disk` is by part at the end of the run, `checkpoint` is one checkpoint.
    """

    recipe: Recipe
    target: Target
    shapes: dict[str, ModelShape]
    batches: dict[str, Batches]
    memory: dict[str, RankMemory]
    gpus: dict[str, list[GpuId]]
    loads: dict[GpuId, GpuLoad]
    lengths: dict[str, Lengths]
    times: dict[str, PolicyTime]
    judging_s: float
    step_s: float
    steps: int
    disk: dict[str, int]
    checkpoint: int
    warmup_s: float = 0.0  # of the whole warm-up, in which no policy needs more memory than later

    @property
    def fits(self) -> bool:
        """Whether every GPU has the memory that its ranks need."""
        return all(load.fits for load in self.loads.values())

    @property
    def worst(self) -> GpuLoad:
        """The fullest GPU."""
        return max(self.loads.values(), key=lambda load: load.needed / max(load.total, 1))

    @property
    def hours(self) -> float:
        """Hours of the whole run."""
        return (self.warmup_s + self.steps * self.step_s) / 3600

    @property
    def disk_bytes(self) -> int:
        """The most bytes that the run takes on disk."""
        return sum(self.disk.values())


def estimate_run(
    recipe: Recipe, shapes: Mapping[str, ModelShape], gpus: Mapping[str, Sequence[GpuId]], target: Target, problems: int
) -> RunEstimate:
    """The estimate of a recipe with the shapes of its policies, and their ranks on `gpus`.

    Raises:
        UserError: as `recipe.batching.batches`.
    """
    method, policies, warmup = method_of(recipe), method_of(recipe).policies, warmup_recipe(recipe)
    if method.pairs:  # there is no reference model, and a warm-up has no vLLM
        recipe, target = _set("optim", kl=0.0)(recipe), replace(target, vllm=False)
    by_policy = {policy: batches(recipe, policy, len(gpus[policy])) for policy in policies}
    memory = {
        policy: rank_memory(recipe, policy, shapes[policy], by_policy[policy], vllm=target.vllm, gpu=target.gpu)
        for policy in policies
    }
    loads = {}
    for gpu in dict.fromkeys(gpu for policy in policies for gpu in gpus[policy]):
        # Ranks of the same policy share a place only on the CPU, where all share the host's memory.
        there = {
            f"{policy}[{rank}]" if gpu is None else policy: memory[policy]
            for policy in policies
            for rank, at in enumerate(gpus[policy])
            if at == gpu
        }
        loads[gpu] = GpuLoad(there, target.host_memory if gpu is None else target.device.memory)
    lengths = {role: mean_lengths(recipe, role, target.prompt, target.completion) for role in method.roles}
    times = {
        policy: policy_time(
            recipe,
            policy,
            shapes[policy],
            by_policy[policy],
            c.cpu_share(target.cores, sum(map(len, gpus.values()))) if gpus[policy][0] is None else target.device,
            lengths,
            cache=min(loads[gpu].cache(memory[policy], recipe.sampling.vllm_memory) for gpu in gpus[policy]),
            engine="cpu" if gpus[policy][0] is None else memory[policy].engine,
        )
        for policy in policies
    }
    used = [gpu for policy in policies for gpu in set(gpus[policy]) - {None}]
    judging = judging_s(recipe, recipe.judge.workers or target.cores)
    steps = recipe.train.max_steps or problems // recipe.train.problems_sampled * recipe.train.epochs
    checkpoint = sum(12 * trainable(recipe, shape) for shape in shapes.values()) + c.OTHER_FILES
    return RunEstimate(
        recipe,
        target,
        dict(shapes),
        by_policy,
        memory,
        {policy: list(gpus[policy]) for policy in policies},
        loads,
        lengths,
        times,
        judging,
        step_seconds([*times.values()], judging, shared=len(used) > len(set(used)), ahead=recipe.train.staleness),
        steps,
        _disk(recipe, checkpoint, steps, lengths) | _warmup_disk(recipe, shapes, checkpoint),
        checkpoint,
        3600 * estimate_run(warmup, shapes, gpus, target, problems).hours if warmup is not None else 0.0,
    )


def _warmup_disk(recipe: Recipe, shapes: Mapping[str, ModelShape], checkpoint: int) -> dict[str, int]:
    """What a warm-up leaves: its last checkpoint and the models."""
    return {"warm-up": checkpoint + sum(4 * shape.parameters for shape in shapes.values())} if recipe.warmup else {}


def _disk(recipe: Recipe, checkpoint: int, steps: int, lengths: Mapping[str, Lengths]) -> dict[str, int]:
    """Bytes on disk by part. One checkpoint more than `checkpoint.keep` lies there while the newest is written."""
    every = recipe.checkpoint.every
    kept = min(recipe.checkpoint.keep, max(1, -(-steps // every))) if every else 0
    candidates, suites = sampled(recipe, "code"), sampled(recipe, "test")
    copies = {"code": 2, "test": 1}  # the program lies beside its reply
    tokens = sum(copies[role] * sampled(recipe, role) * each.completion for role, each in lengths.items())
    asserts = suites * recipe.game.tests_per_suite * c.ROLLOUT_BYTES_PER_ASSERT
    events = candidates * c.BOOK_EVENTS_PER_CANDIDATE * c.BOOK_BYTES_PER_EVENT if recipe.game.book and suites else 0
    return {
        "checkpoints": kept * checkpoint,
        "one being written": checkpoint if every else 0,
        "rollouts": int(steps * c.ROLLOUT_COMPRESSION * (c.BYTES_PER_TOKEN_OF_TEXT * tokens + asserts)),
        "Mistake Book": int(steps * events),
    }


def best_gpu_splits(estimate: RunEstimate, gpus: int, problems: int) -> list[RunEstimate]:
    """Every way to share `gpus` GPUs between the policies that fits, the least time per problem first: to each its own,
    or all to both, which take turns; their engines sleep meanwhile where both would not fit.

    A step that cannot be shared out evenly takes the nearest number of problems that can.
    """
    found, policies = [], list(estimate.gpus)
    inner = combinations(range(1, gpus), len(policies) - 1)
    ways = [[list(range(*own)) for own in pairwise((0, *bounds, gpus))] for bounds in inner]
    if len(policies) > 1 and gpus > 1:
        ways.append([list(range(gpus))] * len(policies))
    for way in ways:
        split, recipe = dict(zip(policies, way, strict=True)), _divisible(estimate.recipe, math.lcm(*map(len, way)))
        asleep = [_set("sampling", vllm_sleep=True)(recipe)] if sum(map(len, way)) > gpus else []
        for tried in (recipe, *asleep):
            try:
                other = estimate_run(tried, estimate.shapes, split, estimate.target, problems)
            except UserError:  # nor can the optimizer steps
                break
            if other.fits:
                found.append(other)
                break
    return sorted(found, key=lambda other: other.step_s / other.recipe.train.problems_per_step)


def _divisible(recipe: Recipe, by: int) -> Recipe:
    train = recipe.train
    near = {key: round(getattr(train, key) / by) * by for key in ("problems_per_step", "spare_problems")}
    sizes = near | {"problems_per_step": near["problems_per_step"] or by}
    return recipe.model_copy(update={"train": train.model_copy(update=sizes)})


# -- whether it fits ---------------------------------------------------------------------------------------------------
Change = Callable[[Recipe], Recipe]


class Suggestion(NamedTuple):
    """A change of the recipe, as `KEY=VALUE`, and the run's estimate with it."""

    change: str
    estimate: RunEstimate


def check_fits(estimate: RunEstimate, problems: int) -> str | None:
    """A warning when a GPU, or the host of ranks on the CPU, may be too small.

    Raises:
        EnvironmentFault: it will be, whatever the estimate's error.
    """
    cpu = "" if estimate.target.gpu else _meant_for_gpus(estimate)
    if estimate.fits:
        return f"{cpu}it is slow" if cpu else None
    worst = estimate.worst
    parts = Counter[str]()
    for memory in worst.ranks.values():
        parts.update(Counter(memory.held) + Counter(memory.update) + Counter(memory.sampling))
    what = ", ".join(f"{name} {gib(size)}" for name, size in parts.most_common(3))
    where = f"one {estimate.target.device.name}" if estimate.target.gpu else "this machine"
    hint = "give each side more or larger GPUs" if estimate.target.gpu else "a machine with GPUs, or with more memory"
    if changes := [suggestion.change for suggestion in suggestions(estimate, problems)]:
        hint = f"any of these would do: {'; '.join(changes[:4])}"
    more = "; or a GPU for each side" if estimate.target.gpu and len(worst.ranks) > 1 else ""
    lacks = f"{' and '.join(worst.ranks)} would need {gib(worst.needed)}, {where} has {gib(worst.total)}"
    fault = EnvironmentFault(
        f"{cpu}{lacks} (largest: {what})",
        hint=f"{hint}{more}; `codea1 plan --help` tells how to see every part",
    )
    if worst.needed > c.REFUSAL * worst.total:
        raise fault
    return f"this may not fit: {fault.what}; {fault.hint}"


def _meant_for_gpus(estimate: RunEstimate) -> str:
    """Says, of ranks on the CPU, that nobody asked for that and the models are large; else empty."""
    asked = all(estimate.recipe.role(policy).gpus == 0 for policy in estimate.shapes)
    large = any(shape.parameters > c.CPU_PARAMETERS for shape in estimate.shapes.values())
    return f"{estimate.recipe.name} is meant for GPUs, and none is here: on the CPU " if large and not asked else ""


def check_disk(estimate: RunEstimate, free: int, where: str) -> None:
    """Compares the checkpoints with the bytes free on the disk of `where`.

    Raises:
        EnvironmentFault: not even the checkpoints fit.
    """
    kept = estimate.disk["checkpoints"] + estimate.disk["one being written"]
    if kept > free:
        raise EnvironmentFault(
            f"{where} has {gib(free)} free, and checkpoints alone take {gib(kept)} ({gib(estimate.checkpoint)} each, "
            f"checkpoint.keep={estimate.recipe.checkpoint.keep} and one being written)",
            hint="free some space, choose another place with --runs, or lower checkpoint.keep",
        )


def suggestions(estimate: RunEstimate, problems: int) -> list[Suggestion]:
    """Changes of the recipe that make the run fit, each enough by itself; what changes the training least first."""
    found: dict[str, Suggestion] = {}
    for text, change in _changes(estimate):
        key = text.partition("=")[0]
        if key in found:
            continue
        try:
            other = estimate_run(change(estimate.recipe), estimate.shapes, estimate.gpus, estimate.target, problems)
        except UserError:  # the batch cannot be cut that way
            continue
        if other.fits:
            found[key] = Suggestion(text, other)
    return list(found.values())


def _changes(estimate: RunEstimate) -> Iterator[tuple[str, Change]]:
    recipe, vllm = estimate.recipe, estimate.target.vllm
    train, sampling = recipe.train, recipe.sampling
    if not train.gradient_checkpointing:
        yield "train.gradient_checkpointing=true", _set("train", gradient_checkpointing=True)
    for size in (8192, 4096, 2048):
        if size < train.tokens_per_micro_batch:
            yield f"train.tokens_per_micro_batch={size}", _set("train", tokens_per_micro_batch=size)
    if vllm and not sampling.vllm_sleep:
        yield "sampling.vllm_sleep=true", _set("sampling", vllm_sleep=True)
    if not vllm:
        for chunk in (128, 64, 32):
            yield f"sampling.chunk={chunk}", _set("sampling", chunk=chunk)
    if vllm and train.sharding == "ddp" and any(batches.ranks > 1 for batches in estimate.batches.values()):
        shard, sleep = _set("train", sharding="fsdp2"), _set("sampling", vllm_sleep=True)
        yield "train.sharding=fsdp2", shard
        yield "train.sharding=fsdp2 sampling.vllm_sleep=true", lambda recipe: sleep(shard(recipe))
    if recipe.optim.kl > 0 and recipe.lora is None:
        yield "optim.kl=0 (no reference model)", _set("optim", kl=0.0)
    if recipe.lora is None:
        yield "lora.r=16 (adapters instead of all weights)", lambda recipe: recipe.model_copy(update={"lora": Lora()})


def _set(section: str, **values: object) -> Change:
    return lambda recipe: recipe.model_copy(update={section: getattr(recipe, section).model_copy(update=values)})
