"""The GPUs that this process may use, and which physical one each logical number stands for. No torch."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codea1_cli.recipe.schema import Recipe

_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86, x86, Arm
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total,memory.used", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class PhysicalGpu:
    """One GPU of the machine, as the driver numbers it; memory in MiB."""

    index: int
    uuid: str
    name: str
    memory_mb: int
    used_mb: int


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


def physical_gpus() -> list[PhysicalGpu]:
    """The machine's GPUs by the driver's tool; empty where there is none or it does not answer."""
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    gpus = []
    for line in done.stdout.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 5 and fields[0].isdigit():
            index, uuid, name, total, used = fields
            gpus.append(PhysicalGpu(int(index), uuid, name, _mebibytes(total), _mebibytes(used)))
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


def visible_gpus(
    machine: Sequence[PhysicalGpu] | None = None, environment: Mapping[str, str] | None = None
) -> list[Gpu]:
    """The logical -> physical map under CUDA_VISIBLE_DEVICES, which holds indices or UUID prefixes.

    As CUDA does, the list ends at the first entry that names no device. Without arguments: this machine's GPUs and this
    process's environment.
    """
    machine = physical_gpus() if machine is None else machine
    wanted = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return [_gpu(logical, gpu) for logical, gpu in enumerate(machine)]
    visible: list[Gpu] = []
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.startswith("MIG-"):
            visible.append(Gpu(len(visible), entry))
            continue
        match = _find(entry, machine)
        if match is None or any(known.uuid == match.uuid for known in visible):
            break
        visible.append(_gpu(len(visible), match))
    return visible


def _gpu(logical: int, gpu: PhysicalGpu) -> Gpu:
    return Gpu(logical, str(gpu.index), gpu.name, gpu.uuid, gpu.memory_mb, gpu.used_mb)


def _find(entry: str, gpus: Sequence[PhysicalGpu]) -> PhysicalGpu | None:
    if entry.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(entry)), None)
    matches = [gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
