"""Reading the answers that a candidate's process wrote: expressions of a few builtins and numpy values, never code."""

from __future__ import annotations

import ast
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from codea1_cli.extract.source import PARSER

MAX_TEXT = 1_200_000
MAX_BYTES = 1 << 26  # of an array
MAX_EQUAL_HASHES = 50
_NUMBERS = ("inf", "nan")
# What is read without a parser.
_INTEGER, _FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})"), re.compile(r"-?[0-9]{1,17}\.[0-9]{1,20}")


class NotAnAnswer(ValueError):
    """The text is not an answer."""


@dataclass(frozen=True)
class Read:
    """A value; `exact` is False for an instance of a subclass, which has another type than `value`."""

    value: Any
    exact: bool = True


class _Nothing:
    """Equal to nothing, not even to itself."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


NOTHING = Read(_Nothing(), False)


def read(text: str, limit: int | None = MAX_TEXT) -> Read:
    """The value of an answer's line of at most `limit` characters. Raises NotAnAnswer, and nothing else."""
    if text == "?":
        return NOTHING
    if _INTEGER.fullmatch(text):
        return Read(int(text))
    if _FLOAT.fullmatch(text):
        return Read(float(text))
    if limit is not None and len(text) > limit:
        raise NotAnAnswer("too long")
    try:
        with PARSER:
            node = ast.parse(text, mode="eval").body
        if text == "nothing()":
            return NOTHING
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sub":
            return Read(_value(node.args[0]), False)
        return Read(_value(node))
    except NotAnAnswer:
        raise
    except Exception as fault:
        raise NotAnAnswer(f"no answer: {type(fault).__name__}") from None


def value_of(node: ast.expr) -> Any:
    """The value of a parsed expression. Raises NotAnAnswer, and nothing else."""
    try:
        return _value(node)
    except NotAnAnswer:
        raise
    except Exception as fault:
        raise NotAnAnswer(f"no value: {type(fault).__name__}") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.List():
            return [_value(part) for part in node.elts]
        case ast.Tuple():
            return tuple(_value(part) for part in node.elts)
        case ast.Set():
            return set(_keys([_value(part) for part in node.elts]))
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return dict(_pairs([(_value(key), _value(value)) for key, value in pairs if key is not None]))
        case ast.UnaryOp(op=ast.USub()):
            return -_number(node.operand)
        case ast.BinOp(op=ast.Add()):  # a complex number
            return _number(node.left) + _number(node.right)
        case ast.BinOp(op=ast.Sub()):
            return _number(node.left) - _number(node.right)
        case ast.Name(id=name) if name in _NUMBERS:
            return float(name)  # each NaN is an object of its own, as in another process
        case ast.Call(
            func=ast.Name(id="set" | "frozenset" as name), args=[], keywords=[]
        ):  # as Python writes the empty ones
            return set() if name == "set" else frozenset()
        case ast.Call(func=ast.Name(id="frozenset"), args=[ast.Set() as inner], keywords=[]):
            return frozenset(_value(inner))
        case ast.Call(func=ast.Name(id=name)) if name in _MAKERS and not node.keywords:
            return _MAKERS[name](*(_value(part) for part in node.args))
        case _:
            raise NotAnAnswer(f"no answer: {type(node).__name__}")


def _number(node: ast.expr) -> Any:
    value = _value(node)
    if type(value) not in (int, float, complex):
        raise NotAnAnswer("no number")
    return value


def _array(kind: Any, shape: Any, items: Any) -> Any:
    import numpy as np

    dtype = np.dtype(kind)
    if dtype.kind not in "biufcU" or dtype.itemsize * len(_list(items)) > MAX_BYTES:
        raise NotAnAnswer(f"an array of {kind}")
    return np.array(items, dtype=dtype).reshape(shape)


def _list(items: Any) -> list[Any]:
    """A list that was written out: a range or a number in its place could stand for more than memory holds."""
    if type(items) is not list:
        raise NotAnAnswer("no list")
    return items


def _keys(items: Any) -> list[Any]:
    """What a set or dict is built of; building one of very many equal hashes would take quadratic time."""
    counts = Counter(map(hash, _list(items))) if len(_list(items)) > MAX_EQUAL_HASHES else Counter[int]()
    if counts and max(counts.values()) > MAX_EQUAL_HASHES:
        raise NotAnAnswer("too many keys of equal hash")
    return items


def _pairs(items: Any) -> list[Any]:
    _keys([key for key, _ in _list(items)])
    return items


def _fraction(text: Any) -> Fraction:
    if not isinstance(text, str) or not re.fullmatch(r"-?\d{1,9999}(/\d{1,9999})?", text):
        raise NotAnAnswer("no fraction")
    return Fraction(text)


_MAKERS: dict[str, Callable[..., Any]] = {
    "set": lambda items: set(_keys(items)),
    "frozenset": lambda items: frozenset(_keys(items)),
    "dict_keys": lambda items: dict.fromkeys(_keys(items)).keys(),
    "dict_items": lambda items: dict(_pairs(items)).items(),
    "range": range,
    "bytearray": lambda items: bytearray(_list(items)),
    "OrderedDict": lambda items: OrderedDict(_pairs(items)),
    "Counter": lambda items: Counter(dict(_pairs(items))),
    "defaultdict": lambda items: defaultdict(None, _pairs(items)),
    "deque": lambda items: deque(_list(items)),
    "Decimal": Decimal,
    "Fraction": _fraction,
    "array": _array,
    "scalar": lambda kind, item: _array(kind, (1,), [item])[0],
    "sub": lambda value: value,
    "nothing": _Nothing,
}
