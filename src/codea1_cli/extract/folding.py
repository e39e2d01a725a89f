"""Folding a stated answer to a value without running it: literals, arithmetic and a few constructors, all bounded."""

import ast
import operator
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from codea1_cli.extract.inline_variables import imported_class

MAX_WEIGHT = 20_000
"""Elements, and 50 characters each, that one folded answer may come to, counted through its containers: a million
characters in all, as many as the sandbox returns of one answer."""

MAX_INT_BITS = 100_000
"""A longer integer does not come out of the sandbox either."""

_CHARS = 50
_MAX_WORK = 3 * MAX_WEIGHT  # what all the intermediate values of one answer may weigh together

_FRACTION_TEXT = re.compile(r"\s*[+-]?\d{1,1000}(?:/\d{1,1000}|\.\d{1,1000})?\s*", re.ASCII)  # no exponent: 1e999999999


@dataclass(frozen=True)
class Stated:
    """A stated answer; wrapped, so that a stated None is not "no answer"."""

    value: Any


class _NotFoldable(Exception):
    pass


def fold(node: ast.expr) -> Stated | None:
    """The value that `node` states, or None when it is not a foldable expression or too large."""
    folder = _Folder()
    try:
        value = folder.value(node)
        folder.weigh(value)
    except (_NotFoldable, ArithmeticError, TypeError, ValueError, RecursionError, MemoryError):
        return None
    return Stated(value)


class _Folder:
    def __init__(self) -> None:
        self.work = 0

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name("inf" | "nan" as name):  # as repr writes them
                return float(name)
            case ast.List(items):
                return [self.value(item) for item in items]
            case ast.Tuple(items):
                return tuple([self.value(item) for item in items])
            case ast.Set(items):
                return {self.value(item) for item in items}
            case ast.Dict(keys, values) if None not in keys:
                return {self.value(key): self.value(value) for key, value in zip(keys, values, strict=True) if key}
            case ast.UnaryOp(op, operand):
                return _UNARY[type(op)](self.value(operand))
            case ast.BinOp(left, op, right) if type(op) in _BINARY:
                return self.binary(type(op), self.value(left), self.value(right))
            case ast.Call(function, arguments, keywords):
                return self.construct(str(imported_class(function) or getattr(function, "id", "")), arguments, keywords)
        raise _NotFoldable

    def binary(self, op: type[ast.operator], left: Any, right: Any) -> Any:
        """Applies `op` once its result is known to be small: `10**10**10` and `"a" * 10**10` are never computed."""
        weights = self.weigh(left), self.weigh(right)
        integers = isinstance(left, int) and isinstance(right, int)
        refused = False
        if op is ast.Mult:
            refused = (_spread(left, right) and _spread_weight(left, weights[0], right) > MAX_WEIGHT) or (
                _spread(right, left) and _spread_weight(right, weights[1], left) > MAX_WEIGHT
            )
        elif op is ast.Pow:
            numbers = isinstance(left, int | float | complex) and isinstance(right, int | float | complex)
            refused = not numbers or (integers and left.bit_length() * abs(right) > MAX_INT_BITS)
        elif op is ast.LShift:
            refused = not integers or right > MAX_INT_BITS
        elif op is ast.Mod:
            refused = isinstance(left, str | bytes)  # "%99999999d" % 1
        if refused:
            raise _NotFoldable
        made = _BINARY[op](left, right)
        if isinstance(made, str | bytes):  # long ones weigh little as parts: each must count
            self.weigh(made)
        return made

    def construct(self, name: str, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> Any:
        values = [self.value(argument) for argument in arguments]
        self.weigh(values)
        if name == "dict" and len(values) <= 1 and all(keyword.arg for keyword in keywords):
            return dict(*values, **{str(keyword.arg): self.value(keyword.value) for keyword in keywords})
        if name in _TIMES:
            named = {str(keyword.arg): self.value(keyword.value) for keyword in keywords if keyword.arg}
            if len(named) < len(keywords) or not all(isinstance(v, int | float) for v in (*values, *named.values())):
                raise _NotFoldable
            return _TIMES[name](*values, **named)
        if keywords:
            raise _NotFoldable
        if name == "range":
            return range(*values)
        if name in _COLLECTIONS and len(values) <= 1:
            if any(len(value) > MAX_WEIGHT for value in values):  # a range weighs nothing until it is spread
                raise _NotFoldable
            return _COLLECTIONS[name](*values)
        made, taken = _SCALARS.get(name, (None, ()))
        if made is None or not all(isinstance(value, taken) for value in values):
            raise _NotFoldable
        if made is Fraction and any(isinstance(value, str) and not _FRACTION_TEXT.fullmatch(value) for value in values):
            raise _NotFoldable
        return made(*values)

    def weigh(self, value: Any) -> int:
        """The weight of `value`, through every path to a shared element; raises _NotFoldable past a limit."""
        total = 0
        pending = [value]
        while pending:
            item = pending.pop()
            total += 1
            if isinstance(item, int | Fraction):
                if max(item.numerator.bit_length(), item.denominator.bit_length()) > MAX_INT_BITS:
                    raise _NotFoldable
                total += item.numerator.bit_length() // 64
            elif isinstance(item, str | bytes | bytearray):
                total += len(item) // _CHARS
            elif isinstance(item, list | tuple | set | frozenset | dict | deque):
                total += len(item)
                if total <= MAX_WEIGHT:
                    pending += item
                    pending += item.values() if isinstance(item, dict) else ()
            if total > MAX_WEIGHT or self.work + total > _MAX_WORK:
                raise _NotFoldable
        self.work += total
        return total


def _spread(sequence: Any, times: Any) -> bool:
    return isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int)


def _spread_weight(sequence: Any, weight: int, times: int) -> int:
    """What a sequence will weigh when it is repeated."""
    return len(sequence) * times // _CHARS if isinstance(sequence, str | bytes) else weight * times


_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}


_COLLECTIONS: dict[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (list, tuple, set, frozenset, sorted, bytes, bytearray, deque, Counter, OrderedDict)
}

_TIMES: dict[str, Callable[..., Any]] = {"date": date, "datetime": datetime, "time": time, "timedelta": timedelta}

# int(Decimal("1e999999999")) would be computed digit by digit: no Decimal goes into another constructor.
_TEXT_OR_REAL = (int, float, str)
_SCALARS: dict[str, tuple[Callable[..., Any], tuple[type, ...]]] = {
    "int": (int, _TEXT_OR_REAL),
    "float": (float, _TEXT_OR_REAL),
    "complex": (complex, (*_TEXT_OR_REAL, complex)),
    "bool": (bool, (object,)),
    "str": (str, _TEXT_OR_REAL),
    "Decimal": (Decimal, _TEXT_OR_REAL),
    "Fraction": (Fraction, _TEXT_OR_REAL),
}
