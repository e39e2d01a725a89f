"""The GPUs that this process may use, which physical one each number stands for, and which policy gets which."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codea1_cli import planning as c
from codea1_cli.environment import cores
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.methods.registry import method_of
from codea1_cli.recipe.schema import Recipe

Wish = int | list[int] | None
"""A policy's `gpus` in the recipe: a number of GPUs, their ids, or nothing."""
GpuId = int | None
"""The logical number of a GPU; None is the host, whose cores and memory all ranks without a GPU share."""


_PROBLEMS = 1000  # any number: memory does not depend on it
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86, x86, Arm
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total,memory.used", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Gpu:
    """Logical GPU `logical` of this process; memory in MiB.

    `physical` is what CUDA_VISIBLE_DEVICES calls it for a child: the driver's index, or the name of a MIG slice, of
    which the driver's tool tells no more (name and memory are empty). In a cluster of several nodes, `node` is Ray's id
    of the one that it is on and `host` that node's address.
    """

    logical: int
    physical: str
    name: str = ""
    uuid: str = ""
    memory_mb: int = 0
    used_mb: int = 0
    node: str = ""
    host: str = ""


GpuAssignment = dict[str, list[Gpu | None]]
"""One entry per rank of each policy: its GPU, or None for a rank on the CPU."""


def physical_gpus() -> list[Gpu]:
    """The machine's GPUs by the driver's tool and its numbers; empty where there is none or it does not answer."""
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    gpus = []
    for line in done.stdout.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 5 and fields[0].isdigit():
            index, uuid, name, total, used = fields
            gpus.append(Gpu(int(index), index, name, uuid, _mebibytes(total), _mebibytes(used)))
    return gpus


def computes_bf16(cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Whether this machine's CPU has instructions for bf16; without them torch emulates it, many times slower."""
    try:
        lines = Path(cpuinfo).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return not _BF16_FLAGS.isdisjoint(flags)


def settle_precision(recipe: Recipe, on_gpu: bool) -> Recipe:
    """The recipe with `train.precision=auto` replaced, so that a run keeps its precision wherever it goes on."""
    if recipe.train.precision != "auto":
        return recipe
    precision = "bf16" if on_gpu or computes_bf16() else "fp32"
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"precision": precision})})


def _mebibytes(text: str) -> int:
    return int(text) if text.isdigit() else 0  # "[N/A]" on some devices


def visible_gpus(machine: Sequence[Gpu] | None = None, environment: Mapping[str, str] | None = None) -> list[Gpu]:
    """The logical -> physical map under CUDA_VISIBLE_DEVICES, which holds indices or UUID prefixes.

    As CUDA does, the list ends at the first entry that names no device. Without arguments: this machine's GPUs and this
    process's environment.
    """
    machine = physical_gpus() if machine is None else machine
    wanted = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return [replace(gpu, logical=logical) for logical, gpu in enumerate(machine)]
    visible: list[Gpu] = []
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.startswith("MIG-"):
            visible.append(Gpu(len(visible), entry))
            continue
        match = _find(entry, machine)
        if match is None or any(known.uuid == match.uuid for known in visible):
            break
        visible.append(replace(match, logical=len(visible)))
    return visible


def _find(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if entry.isdigit():
        return next((gpu for gpu in gpus if int(gpu.physical) == int(entry)), None)
    matches = [gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def assign_gpus(recipe: Recipe, gpus: Sequence[Gpu], cores: int, where: str = "this machine") -> GpuAssignment:
    """Shares the GPUs between the policies as the recipe wishes; pure.

    Without a wish, all policies share one GPU, and more are divided evenly; `code.gpus=0` puts a policy on the CPU.

    Args:
        cores: CPU cores, the most ranks that a policy without GPUs may have.
        where: names in errors what offers the GPUs.

    Raises:
        EnvironmentFault: more is asked than there is; both numbers are named.
        UserError: ids or ranks that make no sense.
    """
    wishes = {policy: recipe.role(policy).gpus for policy in method_of(recipe).policies}
    chosen = (
        _even(wishes, gpus) if all(wish is None for wish in wishes.values()) else _wished(recipe, wishes, gpus, where)
    )
    result: GpuAssignment = {}
    for policy, group in chosen.items():
        ranks = recipe.role(policy).ranks
        limit = len(group) or cores
        if ranks is not None and (ranks > limit or (group and ranks != len(group))):
            kind = "GPUs" if group else "CPU cores"
            raise EnvironmentFault(
                f"{policy}.ranks={ranks} does not fit {limit} {kind}", hint="leave ranks out: there is one rank per GPU"
            )
        result[policy] = list(group) or [None] * (ranks or 1)
    return result


def _even(policies: Collection[str], gpus: Sequence[Gpu]) -> dict[str, list[Gpu]]:
    share = max(len(gpus) // len(policies), 1)
    return {policy: list(gpus[i * share : (i + 1) * share] or gpus[:share]) for i, policy in enumerate(policies)}


def _wished(recipe: Recipe, wishes: Mapping[str, Wish], gpus: Sequence[Gpu], where: str) -> dict[str, list[Gpu]]:
    named = {name: _by_id(recipe, name, wish, gpus, where) for name, wish in wishes.items() if isinstance(wish, list)}
    counts = {name: _count(name, wish, len(gpus)) for name, wish in wishes.items() if not isinstance(wish, list)}
    taken = {gpu.logical for group in named.values() for gpu in group}
    free = [gpu for gpu in gpus if gpu.logical not in taken]
    if sum(counts.values()) > len(free):
        asked = [str(counts[policy] if policy in counts else len(named[policy])) for policy in wishes]
        keys = [f"{policy}.gpus" for policy in wishes]
        each = len(gpus) // len(wishes)
        some = " ".join(f"{key}={each}" if each else f"'{key}=[0]'" for key in keys)
        share = f", for example {some}{'' if each else ' to share one that holds both'}"
        raise EnvironmentFault(
            f"the recipe asks for {' + '.join(asked)} {'GPU' if asked == ['1'] else 'GPUs'} ({' + '.join(wishes)}), "
            f"{where} offers {len(gpus)}",
            hint=f"set {' and '.join(keys)} to what there is{share if len(keys) > 1 else ''}"
            if gpus
            else _no_gpu(recipe),
        )
    return {name: named[name] if name in named else [free.pop(0) for _ in range(counts[name])] for name in wishes}


def _count(policy: str, wish: int | None, there: int) -> int:
    if wish is not None and wish < 0:
        raise UserError(f"{policy}.gpus={wish} is negative")
    return min(1, there) if wish is None else wish


def _by_id(recipe: Recipe, policy: str, wish: list[int], gpus: Sequence[Gpu], where: str) -> list[Gpu]:
    if len(set(wish)) != len(wish):
        raise UserError(f"{policy}.gpus={wish} names a GPU twice")
    by_logical = {gpu.logical: gpu for gpu in gpus}
    missing = [number for number in wish if number not in by_logical]
    if missing:
        raise EnvironmentFault(
            f"{policy}.gpus={wish}: there is no GPU {missing[0]}, {where} offers {len(gpus)}",
            hint=f"name some of {sorted(by_logical)}" if gpus else _no_gpu(recipe),
        )
    return [by_logical[number] for number in wish]


def _no_gpu(recipe: Recipe) -> str:
    """The hint where there is no GPU; it offers the CPU, with the change of the recipe that this takes, where this
    machine's memory may do."""
    from codea1_cli.planning.estimate import estimate_run, suggestions

    policies = method_of(recipe).policies
    keys, why = [f"{policy}.gpus=0" for policy in policies], ""
    on_cpu = recipe.model_copy(update={name: recipe.role(name).model_copy(update={"gpus": 0}) for name in policies})
    try:
        shapes = {policy: shape for policy in policies if (shape := c.find_shape(recipe.model_of(policy)))}
        if len(shapes) == len(policies):
            ranks = assign_gpus(on_cpu, [], cores())
            estimate = estimate_run(on_cpu, shapes, gpu_ids(ranks), this_target(on_cpu, ranks), _PROBLEMS)
            changes = [] if estimate.fits else suggestions(estimate, _PROBLEMS)
            keys += [change.change.partition(" (")[0] for change in changes[:1]]
            why = "" if estimate.fits or changes else ", and too little memory to try it on the CPU"
    except (UserError, EnvironmentFault):  # a batch or a model that is wrong in itself: told when it is used
        pass
    cpu = "" if why else f"`{' '.join(keys)}` tries it on the CPU, "
    return f"there is no GPU{why}: {cpu}`codea1 plan --help` tells how to plan for others"


@dataclass(frozen=True)
class Target:
    """What a run is planned for: one of its GPUs (`device`; the CPU where its memory is 0), the host's CPU cores and
    bytes of memory, and whether vLLM samples. `prompt` and `completion` replace the assumed mean lengths in tokens."""

    device: c.Device
    cores: int
    host_memory: int
    vllm: bool
    prompt: float | None = None
    completion: float | None = None

    @property
    def gpu(self) -> bool:
        """Whether the ranks are planned on GPUs."""
        return self.device.memory > 0


def named_target(recipe: Recipe, name: str, count: int | None) -> tuple[Target, GpuAssignment]:
    """`count` GPUs of a kind from the device table; without a count, as many as the recipe asks for, or one per policy.

    Raises:
        UserError: an unknown kind.
        EnvironmentFault: the recipe asks for more than `count`.
    """
    device = c.DEVICES.get(name.lower())
    if device is None:
        raise UserError(f"no device named {name!r} in the plan's table", hint=f"one of {', '.join(c.DEVICES)}")
    if not device.memory:
        return _target(device, vllm=False), assign_gpus(recipe, [], cores())
    total = count or _asked(recipe) or len(method_of(recipe).policies)
    gpus = [Gpu(i, str(i), device.name, memory_mb=device.memory // 2**20) for i in range(total)]
    return _target(device, vllm=_samples(recipe) and recipe.sampling.engine != "transformers"), assign_gpus(
        recipe, gpus, 1, "the plan"
    )


def this_target(recipe: Recipe, assignment: GpuAssignment, hosts: int = 1) -> Target:
    """The machine that the ranks are on, or `hosts` like it.

    The smallest GPU in use counts; one whose driver reports no size counts as an H100.
    """
    used = [gpu for group in assignment.values() for gpu in group if gpu is not None]
    if not used:
        one = _target(c.DEVICES["cpu"], vllm=False)
        return replace(one, cores=hosts * one.cores, host_memory=hosts * one.host_memory)
    smallest = min(used, key=lambda gpu: gpu.memory_mb)
    known = known_device(smallest.name) or c.DEVICES["a100" if smallest.name else "h100"]
    memory = smallest.memory_mb * 2**20 or known.memory
    return _target(replace(known, name=smallest.name or known.name, memory=memory), vllm=_vllm(recipe))


def gpu_ids(assignment: GpuAssignment) -> dict[str, list[GpuId]]:
    """The assignment by the logical numbers of the GPUs."""
    return {policy: [gpu.logical if gpu else None for gpu in group] for policy, group in assignment.items()}


def _asked(recipe: Recipe) -> int:
    wishes = [recipe.role(policy).gpus for policy in method_of(recipe).policies]
    named = {number for wish in wishes if isinstance(wish, list) for number in wish}
    return max(len(named) and max(named) + 1, 0) + sum(wish for wish in wishes if isinstance(wish, int))


def known_device(name: str) -> c.Device | None:
    """The device of the table that a GPU's own name tells of."""
    return next((c.DEVICES[key] for key in ("h200", "h100", "a100") if key in name.lower()), None)


def _vllm(recipe: Recipe) -> bool:
    from importlib.util import find_spec

    engine = recipe.sampling.engine
    return _samples(recipe) and (engine == "vllm" or (engine == "auto" and find_spec("vllm") is not None))


def _samples(recipe: Recipe) -> bool:
    """Whether steps sample, with vLLM where it is there: what learns from pairs samples held-out problems without."""
    return not method_of(recipe).pairs


def _target(device: c.Device, *, vllm: bool) -> Target:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Target(device, cores(), memory, vllm)
