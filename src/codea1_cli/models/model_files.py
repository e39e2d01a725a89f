"""Whether the files of a model's folder are what they should be: told before anything heavy is imported or started."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError, first_line

_POINTER = b"version https://git-lfs.github.com/spec/"
_AGAIN = "copy the model's folder again"
_CHECKED = {".safetensors", ".bin", ".model"}
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_JSON = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "adapter_config.json",
    *_INDEXES,
)  # fmt: skip


def check_files(folder: Path) -> None:
    """Looks at the files of weights, settings and tokenizer that lie in `folder`; which ones there must be is not its
    business.

    Raises:
        UserError: one is a Git LFS pointer, is cut off, or is not what its name says.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in _CHECKED or path.name in _JSON)
    for file in files:
        with _readable(file), open(file, "rb") as opened:
            pointer = opened.read(len(_POINTER)) == _POINTER
        if pointer:
            raise UserError(
                f"{file} is a Git LFS pointer, not the file itself",
                hint=f"`git lfs pull` in {folder} fetches it, or copy the model from where it is whole",
            )
        if file.suffix == ".safetensors":
            _check_safetensors(file)
        elif file.suffix in _CHECKED and not file.stat().st_size:
            raise UserError(f"{file} is empty", hint=_AGAIN)
        elif file.name in _JSON:
            read_config(file)
    for name in _INDEXES:
        if (folder / name).is_file():
            for shard in sorted(set(_shards(folder / name))):
                if not (folder / shard).is_file():
                    raise UserError(f"{folder / shard} is missing, and {name} names it", hint=_AGAIN)


def check_weights(folder: Path) -> None:
    """Raises UserError when `folder` holds no weights at all."""
    if not any(path.suffix in {".safetensors", ".bin"} for path in folder.iterdir()):
        raise UserError(f"{folder} holds no weights: neither .safetensors nor .bin", hint=_AGAIN)


def read_config(file: Path) -> dict[str, Any]:
    """What a model's config.json, or another of its JSON files, holds.

    Raises:
        UserError: it is not a JSON object.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {first_line(error)}", hint=_AGAIN) from None
    if not isinstance(found, dict):
        raise UserError(f"{file} is not a JSON object", hint=_AGAIN)
    return found


def _shards(index: Path) -> Iterator[str]:
    names = read_config(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{index} names no weights (weight_map)", hint=_AGAIN)
    yield from names.values()


def _check_safetensors(file: Path) -> None:
    """The header of a safetensors file: 8 bytes with its length, then JSON with the place of each tensor; the tensors
    fill the rest of the file."""
    size = file.stat().st_size
    with _readable(file), open(file, "rb") as opened:
        start = opened.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        text = opened.read(length) if length <= size - 8 else None
    if text is None:
        raise UserError(f"{file} is not a safetensors file, or cut off: {size} bytes", hint=_AGAIN)
    try:
        tensors = {name: value for name, value in json.loads(text).items() if name != "__metadata__"}
        end = max((int(value["data_offsets"][1]) for value in tensors.values()), default=0)
    except (ValueError, AttributeError, KeyError, TypeError, IndexError, RecursionError):
        raise UserError(f"{file} is not a safetensors file: its header cannot be read", hint=_AGAIN) from None
    if not tensors:
        raise UserError(f"{file} holds no tensor", hint=_AGAIN)
    if 8 + length + end != size:
        raise UserError(f"{file} is cut off: {size} bytes of {8 + length + end}", hint=_AGAIN)


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    """An error of the system inside the block names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or first_line(error)}", hint=_AGAIN) from None
