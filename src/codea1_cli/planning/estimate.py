"""A whole run looked ahead: does it fit, what does it take, how long will it be, and which slices are the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codea1_cli.errors import UserError
from codea1_cli.planning import constants as c
from codea1_cli.planning.disk import checkpoint_bytes, run_bytes
from codea1_cli.planning.memory import GpuLoad, rank_memory
from codea1_cli.planning.shapes import ModelShape
from codea1_cli.planning.timing import Lengths, RoleTime, judging_s, mean_lengths, role_time, step_seconds
from codea1_cli.recipe.batching import ROLES, Batches, batches
from codea1_cli.recipe.schema import Recipe

Place = int | None
Places = Mapping[str, Sequence[Place]]


@dataclass(frozen=True)
class Setting:
    """Where a run is planned for. `gpu_memory` holds one GPU's bytes; on a CPU `host_memory` is the limit of all ranks.
    `prompt` and `completion` replace the assumed mean lengths."""

    device: c.Device
    cores: int
    host_memory: int
    vllm: bool
    prompt: float | None = None
    completion: float | None = None

    @property
    def gpu(self) -> bool:
        return self.device.memory > 0


@dataclass(frozen=True)
class Outlook:
    """`loads` are the GPUs (or the one host), each with its ranks; `places` says which of them each rank is on."""

    recipe: Recipe
    setting: Setting
    shapes: dict[str, ModelShape]
    cuts: dict[str, Batches]
    places: dict[str, list[Place]]
    loads: dict[Place, GpuLoad]
    lengths: dict[str, Lengths]
    times: dict[str, RoleTime]
    judging: float
    step_s: float
    steps: int
    disk: dict[str, int]
    checkpoint: int

    @property
    def fits(self) -> bool:
        return all(load.fits for load in self.loads.values())

    @property
    def worst(self) -> GpuLoad:
        """The fullest GPU."""
        return max(self.loads.values(), key=lambda load: load.needed / max(load.total, 1))

    @property
    def hours(self) -> float:
        return self.steps * self.step_s / 3600

    @property
    def disk_bytes(self) -> int:
        return sum(self.disk.values())


def look_ahead(
    recipe: Recipe, shapes: Mapping[str, ModelShape], places: Places, setting: Setting, problems: int
) -> Outlook:
    """The outlook of a recipe with its ranks on `places` (numbers of GPUs, None for a rank on the CPU).

    Raises:
        UserError: as `plan.batches`.
    """
    cuts = {role: batches(recipe, role, len(places[role])) for role in ROLES}
    memory = {
        role: rank_memory(recipe, role, shapes[role], cuts[role], vllm=setting.vllm, gpu=setting.gpu) for role in ROLES
    }
    loads = {}
    for place in dict.fromkeys(place for role in ROLES for place in places[role]):
        # Ranks of the same policy share a place only on the CPU, where all share the host's memory.
        there = {
            f"{role}[{rank}]" if place is None else role: memory[role]
            for role in ROLES
            for rank, at in enumerate(places[role])
            if at == place
        }
        loads[place] = GpuLoad(there, setting.host_memory if place is None else setting.device.memory)
    lengths = {role: mean_lengths(recipe, role, setting.prompt, setting.completion) for role in ROLES}
    times = {}
    for role in ROLES:
        place = places[role][0]
        name = role if place is not None else f"{role}[0]"
        times[role] = role_time(
            recipe,
            role,
            shapes[role],
            cuts[role],
            _device(setting, sum(len(places[r]) for r in ROLES)) if place is None else setting.device,
            lengths[role],
            cache=min(
                loads[at].cache(name if at is None else role, recipe.sampling.vllm_memory) for at in places[role]
            ),
            engine=("vllm" if setting.vllm else "transformers") if place is not None else "cpu",
        )
    shared = bool(set(places["code"]) & set(places["test"]) - {None})
    judging = judging_s(recipe, recipe.judge.workers or setting.cores)
    per_epoch = problems // recipe.train.problems_per_step
    steps = recipe.train.max_steps or per_epoch * recipe.train.epochs
    return Outlook(
        recipe,
        setting,
        dict(shapes),
        cuts,
        {role: list(places[role]) for role in ROLES},
        loads,
        lengths,
        times,
        judging,
        step_seconds(times["code"], times["test"], judging, shared=shared),
        steps,
        run_bytes(recipe, shapes, steps, lengths),
        checkpoint_bytes(recipe, shapes),
    )


def _device(setting: Setting, ranks: int) -> c.Device:
    """A rank's share of the host's cores."""
    cores = max(setting.cores / max(ranks, 1), 0.5)
    return replace(c.DEVICES["cpu"], flops=cores * c.CPU_FLOPS_PER_CORE, bandwidth=cores * c.CPU_BANDWIDTH_PER_CORE)


def best_slices(outlook: Outlook, gpus: int, problems: int) -> list[Outlook]:
    """Every way to share `gpus` GPUs between the sides that fits, the least time a problem first.

    A step that cannot be shared out evenly takes the nearest number of problems that can.
    """
    splits = [(n, gpus - n) for n in range(1, gpus)]
    found = []
    for code, test in splits:
        recipe = _divisible(outlook.recipe, math.lcm(code, test))
        places = {"code": list(range(code)), "test": list(range(code, gpus))}
        try:
            other = look_ahead(recipe, outlook.shapes, places, outlook.setting, problems)
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
