"""Whether a checkpoint is what was committed: its files, their sizes, and what can be read of them cheaply."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

COMMITTED = "COMMITTED"
_STATE = "arena/state.json"
# What a trainer needs of each policy; it goes on with a fresh optimizer, without a word, where that is missing.
_NEEDED = {
    "weights": ("*model*.safetensors", "*model*.bin"),
    "optimizer": ("optimizer*",),
    "schedule": ("scheduler.pt",),
    "random state": ("rng_state*.pth",),
    "trainer state": ("trainer_state.json",),
}


def commit_note(folder: Path, step: int) -> str:
    """What COMMITTED holds: the step, and the size of each file of the checkpoint by its name."""
    files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
    return json.dumps({"step": step, "files": files}) + "\n"


def damage(folder: Path, step: int, roles: Sequence[str]) -> str | None:
    """What is wrong with the checkpoint of `step` of the policies `roles`; None for a whole one.

    Sizes are compared with COMMITTED's where it holds them, as those of earlier versions do not; what a crash of the
    machine turned into zeros is told by the formats' own marks. The bytes of weights are not read.
    """
    if not folder.is_dir():
        return "it is gone"
    try:
        note = json.loads((folder / COMMITTED).read_text(encoding="utf-8"))
        known, sizes = note["step"], note.get("files", {})
    except FileNotFoundError:
        return f"{COMMITTED} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{COMMITTED} is broken"
    if known != step:
        return f"{COMMITTED} is of step {known}"
    for name in dict.fromkeys((*sizes, _STATE)):
        size = _size(folder / name)
        if size is None:
            return f"{name} is missing"
        if size != sizes.get(name, size):
            return f"{name} has {size} of {sizes[name]} bytes"
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        right = state["step"] == step and isinstance(state["book"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        right = False
    if not right:
        return f"{_STATE} is broken"
    for role in roles:
        for what, patterns in _NEEDED.items():
            if not any(path for pattern in patterns for path in (folder / role).glob(pattern)):
                return f"{role} lacks its {what}"
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (fault := _fault(path)):
            return f"{path.relative_to(folder)} {fault}"
    return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _fault(path: Path) -> str | None:
    """What is wrong with a file, as far as its own format tells."""
    try:
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".safetensors" and _safetensors_size(path) != os.path.getsize(path):
            return "is truncated"
        elif path.suffix in (".pt", ".pth", ".bin") and not zipfile.is_zipfile(path):
            return "is broken"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "is broken"
    return None


def _safetensors_size(path: Path) -> int:
    """The size that a safetensors file's header gives: 8 bytes, the header, the tensors up to the last one's end."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, 1 << 28)))
    ends = (entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    return 8 + length + max(ends, default=0)
