"""Reading the answers that a candidate's process wrote: expressions of a few builtins and numpy's values, never code."""

from __future__ import annotations

import ast
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_TEXT = 1_200_000
_NUMBERS = ("inf", "nan")


class Unreadable(ValueError):
    """The text is no answer."""


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
    """The value of an answer's line of at most `limit` characters. Raises Unreadable, and nothing else."""
    if text == "?":
        return NOTHING
    if limit is not None and len(text) > limit:
        raise Unreadable("too long")
    try:
        node = ast.parse(text, mode="eval").body
        if text == "nothing()":
            return NOTHING
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sub":
            return Read(_value(node.args[0]), False)
        return Read(_value(node))
    except Unreadable:
        raise
    except Exception as fault:
        raise Unreadable(f"no answer: {type(fault).__name__}") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.List():
            return [_value(part) for part in node.elts]
        case ast.Tuple():
            return tuple(_value(part) for part in node.elts)
        case ast.Set():
            return {_value(part) for part in node.elts}
        case ast.Dict():
            return {_value(k): _value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
        case ast.UnaryOp(op=ast.USub()):
            return -_number(node.operand)
        case ast.BinOp(op=ast.Add()):  # a complex number
            return _number(node.left) + _number(node.right)
        case ast.BinOp(op=ast.Sub()):
            return _number(node.left) - _number(node.right)
        case ast.Name(id=name) if name in _NUMBERS:
            return float(name)  # each NaN is an object of its own, as in another process
        case ast.Call(func=ast.Name(id=name)) if name in _MAKERS and not node.keywords:
            return _MAKERS[name](*(_value(part) for part in node.args))
        case _:
            raise Unreadable(f"no answer: {type(node).__name__}")


def _number(node: ast.expr) -> Any:
    value = _value(node)
    if type(value) not in (int, float, complex):
        raise Unreadable("no number")
    return value


def _array(kind: Any, shape: Any, items: Any) -> Any:
    import numpy as np

    if np.dtype(kind).kind not in "biufcU":
        raise Unreadable(f"an array of {kind}")
    return np.array(items, dtype=kind).reshape(shape)


def _scalar(kind: Any, item: Any) -> Any:
    return _array(kind, (1,), [item])[0]


def _no_code(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > 10_000:
        raise Unreadable("no number")
    return value


_MAKERS: dict[str, Callable[..., Any]] = {
    "set": lambda items=(): set(items),
    "frozenset": lambda items=(): frozenset(items),
    "dict_keys": lambda items: dict.fromkeys(items).keys(),
    "dict_items": lambda items: dict(items).items(),
    "range": range,
    "bytearray": lambda items: bytearray(items),
    "OrderedDict": lambda items: OrderedDict(items),
    "Counter": lambda items: Counter(dict(items)),
    "defaultdict": lambda items: defaultdict(None, items),
    "deque": lambda items: deque(items),
    "Decimal": lambda text: Decimal(_no_code(text)),
    "Fraction": lambda text: Fraction(_no_code(text)),
    "array": _array,
    "scalar": _scalar,
    "sub": lambda value: value,
    "nothing": _Nothing,
}
