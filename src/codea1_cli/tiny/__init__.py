"""The embedded default: a small model and its problems, shipped so that `train --recipe tiny` needs nothing else."""

import ast
from collections.abc import Iterable
from pathlib import Path

from codea1_cli.errors import UserError

_HERE = Path(__file__).parent


def model_path() -> Path:
    """The folder of the embedded model: config, weights (bf16 safetensors), tokenizer and chat template."""
    return _HERE / "model"


def problems_path(split: str) -> Path:
    """The embedded problems of a split, as a .jsonl file.

    Raises:
        UserError: there is no such split in the package.
    """
    path = _HERE / "data" / f"{split}.jsonl"
    if not path.is_file():
        raise UserError(f"no embedded problems called {split!r}", hint="use train or heldout")
    return path


KNOWN = {
    "an integer": ("int",),
    "two integers": ("int", "int"),
    "a word": ("str",),
    "a list of integers": ("list[int]",),
    "two of them": ("list[int]", "list[int]"),
    "a dict of integers by words": ("dict[str: int]",),
}
"""What the functions of the embedded model's corpus take, by the kinds of `unread`."""

_EMPTY = {"list[]": "list[int]", "dict[]": "dict[str: int]"}


def unread(calls: Iterable[str]) -> str:
    """What the first of these calls passes that no function of the corpus takes, such as `(float, str)`; empty where
    there is none."""
    for call in calls:
        node = ast.parse(call, mode="eval").body
        assert isinstance(node, ast.Call)
        kinds = [*map(_kind, node.args), *(f"{word.arg}={_kind(word.value)}" for word in node.keywords)]
        if tuple(_EMPTY.get(kind, kind) for kind in kinds) not in KNOWN.values():
            return f"({', '.join(kinds)})"
    return ""


def _kind(argument: ast.expr) -> str:
    try:
        value = ast.literal_eval(argument)
    except (ValueError, TypeError, RecursionError):
        return "no literal"
    name = type(value).__name__
    if isinstance(value, dict):
        pairs = {f"{type(key).__name__}: {type(item).__name__}" for key, item in value.items()}
        return f"{name}[{', '.join(sorted(pairs))}]"
    if isinstance(value, list | tuple | set):
        return f"{name}[{', '.join(sorted({type(item).__name__ for item in value}))}]"
    return name
