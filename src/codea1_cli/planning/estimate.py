"""What a whole run takes: memory, time, disk; and which split of the GPUs makes it shortest. Formulas: docs/plan.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from codea1_cli.errors import UserError
from codea1_cli.methods.registry import method_of
from codea1_cli.planning import constants as c
from codea1_cli.planning.gpu_assignment import GpuId, Target
from codea1_cli.planning.memory import GpuLoad, RankMemory, rank_memory, sampled, trainable
from codea1_cli.planning.shapes import ModelShape
from codea1_cli.planning.timing import Lengths, RoleTime, judging_s, mean_lengths, role_time, step_seconds
from codea1_cli.recipe.batching import Batches, batches
from codea1_cli.recipe.schema import Recipe


@dataclass(frozen=True)
class RunEstimate:
    """What a run is expected to take; mappings by role hold what is the same for all ranks of a policy.

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
    times: dict[str, RoleTime]
    judging_s: float
    step_s: float
    steps: int
    disk: dict[str, int]
    checkpoint: int

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
        return self.steps * self.step_s / 3600

    @property
    def disk_bytes(self) -> int:
        """The most bytes that the run takes on disk."""
        return sum(self.disk.values())


def estimate_run(
    recipe: Recipe,
    shapes: Mapping[str, ModelShape],
    gpus: Mapping[str, Sequence[GpuId]],
    target: Target,
    problems: int,
) -> RunEstimate:
    """The estimate of a recipe with the shapes of its models by role, and its ranks on `gpus`.

    Raises:
        UserError: as `recipe.batching.batches`.
    """
    roles = method_of(recipe).roles
    by_role = {role: batches(recipe, role, len(gpus[role])) for role in roles}
    memory = {
        role: rank_memory(recipe, role, shapes[role], by_role[role], vllm=target.vllm, gpu=target.gpu) for role in roles
    }
    loads = {}
    for gpu in dict.fromkeys(gpu for role in roles for gpu in gpus[role]):
        # Ranks of the same policy share a place only on the CPU, where all share the host's memory.
        there = {
            f"{role}[{rank}]" if gpu is None else role: memory[role]
            for role in roles
            for rank, at in enumerate(gpus[role])
            if at == gpu
        }
        loads[gpu] = GpuLoad(there, target.host_memory if gpu is None else target.device.memory)
    lengths = {role: mean_lengths(recipe, role, target.prompt, target.completion) for role in roles}
    on_cpu = _cpu_share(target, sum(len(gpus[role]) for role in roles))
    times = {
        role: role_time(
            recipe,
            role,
            shapes[role],
            by_role[role],
            on_cpu if gpus[role][0] is None else target.device,
            lengths[role],
            cache=min(loads[gpu].cache(memory[role], recipe.sampling.vllm_memory) for gpu in gpus[role]),
            engine="cpu" if gpus[role][0] is None else memory[role].engine,
        )
        for role in roles
    }
    used = [gpu for role in roles for gpu in set(gpus[role]) - {None}]
    judging = judging_s(recipe, recipe.judge.workers or target.cores)
    steps = recipe.train.max_steps or problems // recipe.train.problems_per_step * recipe.train.epochs
    checkpoint = sum(12 * trainable(recipe, shape) for shape in shapes.values()) + c.OTHER_FILES
    return RunEstimate(
        recipe,
        target,
        dict(shapes),
        by_role,
        memory,
        {role: list(gpus[role]) for role in roles},
        loads,
        lengths,
        times,
        judging,
        step_seconds(list(times.values()), judging, shared=len(used) > len(set(used))),
        steps,
        _disk(recipe, checkpoint, steps, lengths),
        checkpoint,
    )


def _cpu_share(target: Target, ranks: int) -> c.Device:
    """A rank's share of the host's cores."""
    cores = max(target.cores / max(ranks, 1), 0.5)
    return replace(c.DEVICES["cpu"], flops=cores * c.CPU_FLOPS_PER_CORE, bandwidth=cores * c.CPU_BANDWIDTH_PER_CORE)


def _disk(recipe: Recipe, checkpoint: int, steps: int, lengths: Mapping[str, Lengths]) -> dict[str, int]:
    """Bytes on disk by part. One checkpoint more than `checkpoint.keep` lies there while the newest is written."""
    kept = min(recipe.checkpoint.keep, max(1, -(-steps // recipe.checkpoint.every)))
    candidates, suites = sampled(recipe, "code"), sampled(recipe, "test")
    text = c.BYTES_PER_TOKEN_OF_TEXT * sum(sampled(recipe, role) * lengths[role].completion for role in lengths)
    text += candidates * c.BYTES_PER_TOKEN_OF_TEXT * lengths["code"].completion  # the program beside its reply
    asserts = suites * recipe.game.tests_per_suite * c.ROLLOUT_BYTES_PER_ASSERT
    events = candidates * c.BOOK_EVENTS_PER_CANDIDATE * c.BOOK_BYTES_PER_EVENT if recipe.game.book else 0
    return {
        "checkpoints": kept * checkpoint,
        "one being written": checkpoint,
        "rollouts": int(steps * c.ROLLOUT_COMPRESSION * (text + asserts)),
        "Mistake Book": int(steps * events),
    }


def best_gpu_splits(estimate: RunEstimate, gpus: int, problems: int) -> list[RunEstimate]:
    """Every way to share `gpus` GPUs between the policies that fits, the least time per problem first.

    A step that cannot be shared out evenly takes the nearest number of problems that can.
    """
    found = []
    for inner in combinations(range(1, gpus), len(estimate.gpus) - 1):
        bounds = pairwise((0, *inner, gpus))
        split = {role: list(range(*own)) for role, own in zip(estimate.gpus, bounds, strict=True)}
        recipe = _divisible(estimate.recipe, math.lcm(*map(len, split.values())))
        try:
            other = estimate_run(recipe, estimate.shapes, split, estimate.target, problems)
        except UserError:  # nor can the optimizer steps
            continue
        if other.fits:
            found.append(other)
    return sorted(found, key=lambda other: other.step_s / other.recipe.train.problems_per_step)


def _divisible(recipe: Recipe, by: int) -> Recipe:
    size = max(round(recipe.train.problems_per_step / by), 1) * by
    if size == recipe.train.problems_per_step:
        return recipe
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"problems_per_step": size})})
