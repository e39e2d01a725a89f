"""Where a run is planned for: this machine, or GPUs named on the command line."""

from __future__ import annotations

import os
from dataclasses import replace

from codea1_cli.errors import UserError
from codea1_cli.planning import constants as c
from codea1_cli.planning.devices import Gpu
from codea1_cli.planning.estimate import Place, Setting
from codea1_cli.planning.gpu_assignment import Slices, slices
from codea1_cli.recipe.schema import Recipe


def elsewhere(recipe: Recipe, name: str, count: int | None) -> tuple[Setting, Slices]:
    """`count` GPUs of a kind from the device table; without a count, as many as the recipe asks for, or two.

    Raises:
        UserError: an unknown kind.
        EnvironmentFault: the recipe asks for more than `count`.
    """
    device = c.DEVICES.get(name.lower())
    if device is None:
        raise UserError(f"no device named {name!r} in the plan's table", hint=f"one of {', '.join(c.DEVICES)}")
    if not device.memory:
        return _setting(recipe, device, vllm=False), slices(recipe, [], os.cpu_count() or 1)
    total = count or _asked(recipe) or 2
    gpus = [Gpu(i, str(i), device.name, memory_mb=device.memory // 2**20) for i in range(total)]
    return _setting(recipe, device, vllm=recipe.sampling.engine != "transformers"), slices(recipe, gpus, 1, "the plan")


def here(recipe: Recipe, ranks: Slices, hosts: int = 1) -> Setting:
    """The machine that the ranks are on, or `hosts` like it. The smallest GPU in use counts; one that its driver says no size of
    leaves nothing to plan with, and counts as an H100."""
    used = [gpu for group in ranks.values() for gpu in group if gpu is not None]
    if not used:
        one = _setting(recipe, c.DEVICES["cpu"], vllm=False)
        return replace(one, cores=hosts * one.cores, host_memory=hosts * one.host_memory)
    smallest = min(used, key=lambda gpu: gpu.memory_mb)
    known = _known(smallest.name)
    memory = smallest.memory_mb * 2**20 or known.memory
    device = replace(known, name=smallest.name or known.name, memory=memory)
    return _setting(recipe, device, vllm=_vllm(recipe))


def places(ranks: Slices) -> dict[str, list[Place]]:
    return {role: [gpu.logical if gpu else None for gpu in group] for role, group in ranks.items()}


def _asked(recipe: Recipe) -> int:
    wishes = [recipe.code.gpus, recipe.test.gpus]
    named = {number for wish in wishes if isinstance(wish, list) for number in wish}
    return max(len(named) and max(named) + 1, 0) + sum(wish for wish in wishes if isinstance(wish, int))


def _known(name: str) -> c.Device:
    for key in ("h200", "h100", "a100"):
        if key in name.lower():
            return c.DEVICES[key]
    return c.DEVICES["a100"] if name else c.DEVICES["h100"]


def _vllm(recipe: Recipe) -> bool:
    from importlib.util import find_spec

    engine = recipe.sampling.engine
    return engine == "vllm" or (engine == "auto" and find_spec("vllm") is not None)


def _setting(recipe: Recipe, device: c.Device, *, vllm: bool) -> Setting:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Setting(device, os.cpu_count() or 1, memory, vllm)
