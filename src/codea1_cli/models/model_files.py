"""The files of a model's folder: what can be said of weights, settings and tokenizer without loading the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from codea1_cli.errors import UserError, first_line
from codea1_cli.files import LFS_POINTER, read_json

_AGAIN = "copy the model's folder again"
_WEIGHTS = {".safetensors", ".bin"}
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_JSON = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "adapter_config.json",
    *_INDEXES,
)  # fmt: skip


def check_files(folder: Path) -> None:
    """Looks at the files of weights, settings and tokenizer that lie in `folder`, whichever there are.

    Raises:
        UserError: one is a Git LFS pointer, is cut off, or is not what its name says.
    """
    for file in sorted(folder.iterdir()):
        if file.name in _JSON:
            read_json(file, dict)
        elif file.suffix in {*_WEIGHTS, ".model"}:
            _check_weights_file(file)
    for name in _INDEXES:
        if (folder / name).is_file():
            for shard in sorted(set(_shards(folder / name))):
                if not (folder / shard).is_file():
                    raise UserError(f"{folder / shard} is missing, and {name} names it", hint=_AGAIN)


def _check_weights_file(file: Path) -> None:
    try:
        with open(file, "rb") as opened:
            pointer = opened.read(len(LFS_POINTER)) == LFS_POINTER
        size = file.stat().st_size
        wanted = safetensors_size(file) if file.suffix == ".safetensors" and not pointer else size
    except ValueError as error:
        raise UserError(f"{file} is not a safetensors file: {error}", hint=_AGAIN) from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or first_line(error)}", hint=_AGAIN) from None
    if pointer:
        raise UserError(
            f"{file} is a Git LFS pointer, not the file itself",
            hint=f"`git lfs pull` in {file.parent} fetches it, or copy the model from where it is whole",
        )
    if not size:
        raise UserError(f"{file} is empty", hint=_AGAIN)
    if wanted != size:
        raise UserError(f"{file} is cut off: {size} bytes of {wanted}", hint=_AGAIN)


def safetensors_size(file: Path) -> int:
    """The size that a safetensors file's header gives: 8 bytes with the header's length, the header, which is JSON with
    the place of each tensor, and the tensors up to the last one's end.

    Raises:
        ValueError: its header is cut off, cannot be read or names no tensor.
    """
    with open(file, "rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if 8 + length > file.stat().st_size:
            raise ValueError("its header is cut off, or it is another kind of file")
        header = opened.read(length)
    try:
        ends = [int(at["data_offsets"][1]) for name, at in json.loads(header).items() if name != "__metadata__"]
    except (ValueError, AttributeError, KeyError, TypeError, IndexError, RecursionError):
        raise ValueError("its header cannot be read") from None
    if not ends:
        raise ValueError("it holds no tensor")
    return 8 + length + max(ends)


def check_weights(folder: Path) -> None:
    """Raises UserError when `folder` holds no weights at all."""
    if not any(path.suffix in _WEIGHTS for path in folder.iterdir()):
        raise UserError(f"{folder} holds no weights: neither .safetensors nor .bin", hint=_AGAIN)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer's files, of any kind."""
    return any(any(folder.glob(pattern)) for pattern in ("token*", "vocab*"))


def check_tokenizer(folder: Path) -> None:
    """Raises UserError when `folder` holds no tokenizer at all."""
    if not has_tokenizer(folder):
        raise UserError(f"{folder} holds no tokenizer", hint=_AGAIN)


def try_tokenizer(folder: Path) -> None:
    """Reads a folder's tokenizer.json, if it has one, as what loads it will.

    Raises:
        UserError: it is no tokenizer.
    """
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    try:
        if file.is_file():
            Tokenizer.from_file(str(file))
    except Exception as error:  # bare ones
        raise UserError(f"cannot load the tokenizer {file}: {first_line(error)}", hint=_AGAIN) from None


def _shards(index: Path) -> Iterator[str]:
    names = read_json(index, dict).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{index} names no weights (weight_map)", hint=_AGAIN)
    yield from names.values()
