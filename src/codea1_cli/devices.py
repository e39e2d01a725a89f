"""The GPUs that this process may use, and which physical one each logical number stands for. No torch."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
class VisibleGpu:
    """Logical GPU `logical` is the physical one; `physical` is None for an entry that the driver lists differently (MIG)."""

    logical: int
    entry: str
    physical: PhysicalGpu | None


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


def _mebibytes(text: str) -> int:
    return int(text) if text.isdigit() else 0  # "[N/A]" on some devices


def visible_gpus(gpus: Sequence[PhysicalGpu], environment: Mapping[str, str] | None = None) -> list[VisibleGpu]:
    """The logical -> physical map under CUDA_VISIBLE_DEVICES, which holds indices or UUID prefixes.

    As CUDA does, the list ends at the first entry that names no device.
    """
    wanted = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return [VisibleGpu(logical, str(gpu.index), gpu) for logical, gpu in enumerate(gpus)]
    visible: list[VisibleGpu] = []
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.startswith("MIG-"):
            visible.append(VisibleGpu(len(visible), entry, None))
            continue
        match = _find(entry, gpus)
        if match is None or any(known.physical == match for known in visible):
            break
        visible.append(VisibleGpu(len(visible), entry, match))
    return visible


def _find(entry: str, gpus: Sequence[PhysicalGpu]) -> PhysicalGpu | None:
    if entry.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(entry)), None)
    matches = [gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
