"""The embedded default: a small model and its problems, shipped so that `train --recipe tiny` needs nothing else."""

import ast
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
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


def unread(calls: Iterable[str], declaration: str) -> str:
    """The kinds of the arguments, such as `(float, str)`, of the first of these calls that fits no function of the
    corpus; without calls, those of the function's annotations. Empty where all fit, or nothing says it."""
    kinds: Sequence[str] | None
    if not (calls := list(calls)) and (kinds := _annotated(declaration)) is not None:
        return "" if tuple(kinds) in KNOWN.values() else f"({', '.join(kinds)})"
    for call in calls:
        node = ast.parse(call, mode="eval").body
        assert isinstance(node, ast.Call)
        kinds = [*map(_kind, node.args), *(f"{word.arg}={_kind(word.value)}" for word in node.keywords)]
        if tuple(_EMPTY.get(kind, kind) for kind in kinds) not in KNOWN.values():
            return f"({', '.join(kinds)})"
    return ""


def unseen(question: str) -> list[str]:
    """The words of a question that the embedded model's corpus does not have, in their order. Empty where they are a
    quarter of its words or fewer. question: as the model is shown it."""
    words = [word.lower() for word in re.findall(r"[^\W\d_]{2,}", question)]
    strange = [word for word in words if word not in _vocabulary()]
    return list(dict.fromkeys(strange)) if 4 * len(strange) > len(words) else []


@cache
def _vocabulary() -> frozenset[str]:
    """What the tokenizer has as one token, words of the corpus among them, in small letters."""
    tokens = json.loads((model_path() / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return frozenset(token.removeprefix("Ġ").lower() for token in tokens)


def _annotated(declaration: str) -> list[str] | None:
    """The kinds of a function's parameters by its annotations; None where one has none, or it cannot be read."""
    try:
        (function,) = (node for node in ast.parse(f"{declaration}\n    pass").body if isinstance(node, ast.FunctionDef))
    except (SyntaxError, ValueError):
        return None
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    found = [ast.unparse(one.annotation) for one in every if one.annotation is not None]
    if given.vararg or given.kwarg or len(found) < len(every):
        return None
    found = [re.sub(r"\b(?:typing\.)?(List|Dict)\b", lambda name: name[1].lower(), text) for text in found]
    return [re.sub(r"^dict\[(\w+), (\w+)\]$", r"dict[\1: \2]", text) for text in found]


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
