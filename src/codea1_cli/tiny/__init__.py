"""The embedded default: a small model and its problems, shipped so that `train --recipe tiny` needs nothing else."""

import ast
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
    "integers": {"int"},
    "words": {"str"},
    "lists of integers": {"list[int]", "list[]"},
    "dicts of integers by words": {"dict[str: int]", "dict[]"},
}
"""What the functions of the embedded model's corpus take, by the kinds of `unknown_kinds`."""


def unknown_kinds(call: str) -> list[str]:
    """The kinds of a call's arguments that the corpus does not show, such as `float` or `list[str]`."""
    known = set().union(*KNOWN.values())
    node = ast.parse(call, mode="eval").body
    arguments = [*node.args, *(word.value for word in node.keywords)] if isinstance(node, ast.Call) else []
    return list(dict.fromkeys(kind for argument in arguments if (kind := _kind(argument)) not in known))


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
