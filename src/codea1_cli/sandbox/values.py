"""The parent's side of the value encoding: text that a candidate sent becomes builtins, within caps, never code.

The text is JSON. null, booleans, numbers, strings and arrays are None, bool, int, float, str and list; any other value
is an object with one key:

    i big int (hex)     f inf, -inf, nan       c complex        b, ba bytes, bytearray (hex)
    t tuple             s, z set, frozenset    d, od, cn dict, OrderedDict, Counter (pairs)      dq deque
    r, sl range, slice  D Decimal (text)       F Fraction       T a date, time, datetime, timedelta or timezone
    A array: shape, flat items                 E enum member    O dataclass: class name, fields  k ..., NotImplemented

Numpy scalars arrive as builtins, named tuples as tuples. Iterators, generators, coroutines, functions, classes, modules
and instances of other classes (subclasses of builtins among them) have no encoding: they cannot be compared.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, NoReturn

MAX_NODES = 400_000  # JSON nodes: a pair or a tag counts too
MAX_DEPTH = 110
MAX_INT_DIGITS = 25_000  # hexadecimal
MAX_EQUAL_HASHES = 50  # more than this in one set or dict is an attack on the table, not data


class Undecodable(ValueError):
    """The text is not an encoding of a value, or beyond a cap."""


@dataclass(frozen=True, slots=True, eq=False)
class Unreadable:
    """Stands for text that is not an encoding; it is equal to nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class Array:
    """A numpy array: its shape and its items in row order; element types are not kept apart beyond int, float, ..."""

    shape: tuple[int, ...]
    items: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass instance: its class's name and the fields that its class compares, in order."""

    type_name: str
    fields: tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """An enum member. `plain` ones (of IntEnum, StrEnum and their like) equal their bare value."""

    type_name: str
    name: str
    value: object
    plain: bool

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Member):
            return (self.type_name, self.name) == (other.type_name, other.name) and self.value == other.value
        return self.plain and self.value == other

    def __hash__(self) -> int:
        return hash(self.value) if self.plain else hash((self.type_name, self.name))


def decode(wire: str) -> Any:
    """The value that `wire` encodes. Raises Undecodable, and nothing else."""
    try:
        return _Decoder().value(json.loads(wire, parse_constant=_no_constant), 0)
    except Undecodable:
        raise
    except RecursionError:
        raise Undecodable("nested too deeply") from None
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, InvalidOperation) as fault:
        raise Undecodable(f"no encoding of a value: {type(fault).__name__}") from None


def _no_constant(text: str) -> NoReturn:
    raise Undecodable(f"no encoding of a value: {text}")


class _Decoder:
    def __init__(self) -> None:
        self.nodes = MAX_NODES

    def value(self, raw: Any, depth: int) -> Any:
        self.nodes -= 1
        if self.nodes < 0 or depth > MAX_DEPTH:
            raise Undecodable("too many elements" if self.nodes < 0 else "nested too deeply")
        if type(raw) is list:
            return [self.value(part, depth + 1) for part in raw]
        if type(raw) is not dict:
            return raw
        ((tag, body),) = raw.items()
        return _TAGS[tag](self, body, depth + 1)

    def parts(self, body: Any, depth: int, count: int | None = None) -> list[Any]:
        if type(body) is not list or (count is not None and len(body) != count):
            raise Undecodable("no encoding of a value: wrong shape")
        return [self.value(part, depth) for part in body]

    def pairs(self, body: Any, depth: int) -> list[tuple[Any, Any]]:
        pairs = [(key, value) for key, value in (self.parts(pair, depth, 2) for pair in body)]
        _check_hashes([key for key, _ in pairs])
        return pairs

    def hashable(self, body: Any, depth: int) -> list[Any]:
        parts = self.parts(body, depth)
        _check_hashes(parts)
        return parts

    def integer(self, body: str, depth: int) -> int:
        if len(body) > MAX_INT_DIGITS + 1:
            raise Undecodable("an integer beyond the cap")
        return int(body, 16)

    def complex(self, body: Any, depth: int) -> complex:
        real, imag = self.parts(body, depth, 2)
        return complex(float(real), float(imag))

    def fraction(self, body: Any, depth: int) -> Fraction:
        above, below = self.parts(body, depth, 2)
        return Fraction(_int(above), _int(below))

    def moment(self, body: Any, depth: int) -> object:
        kind, *numbers = self.parts(body, depth)
        if kind == "date":
            return date(*numbers)
        if kind == "delta":
            return timedelta(*numbers)
        if kind == "zone":
            return timezone(timedelta(*numbers))
        *clock, fold, zone = numbers
        offset = None if zone is None else timezone(timedelta(*zone))
        moment: Any = {"time": time, "moment": datetime}[kind]
        return moment(*clock, tzinfo=offset, fold=fold)

    def array(self, body: Any, depth: int) -> Array:
        shape, items = self.parts(body, depth, 2)
        return Array(tuple(_int(n) for n in shape), tuple(items))

    def member(self, body: Any, depth: int) -> Member:
        type_name, name, value, plain = self.parts(body, depth, 4)
        return Member(str(type_name), str(name), value, plain is True)

    def record(self, body: Any, depth: int) -> Record:
        type_name, fields = self.parts(body, depth, 2)
        return Record(str(type_name), tuple((str(name), value) for name, value in fields.items()))


_FLOATS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
_SINGLETONS = {"...": Ellipsis, "NotImplemented": NotImplemented}
_TAGS: dict[str, Callable[[_Decoder, Any, int], object]] = {
    "i": _Decoder.integer,
    "f": lambda decoder, body, depth: _FLOATS[body],
    "c": _Decoder.complex,
    "b": lambda decoder, body, depth: bytes.fromhex(body),
    "ba": lambda decoder, body, depth: bytearray.fromhex(body),
    "t": lambda decoder, body, depth: tuple(decoder.parts(body, depth)),
    "s": lambda decoder, body, depth: set(decoder.hashable(body, depth)),
    "z": lambda decoder, body, depth: frozenset(decoder.hashable(body, depth)),
    "dq": lambda decoder, body, depth: deque(decoder.parts(body, depth)),
    "d": lambda decoder, body, depth: dict(decoder.pairs(body, depth)),
    "od": lambda decoder, body, depth: OrderedDict(decoder.pairs(body, depth)),
    "cn": lambda decoder, body, depth: Counter(dict(decoder.pairs(body, depth))),
    "r": lambda decoder, body, depth: range(*decoder.parts(body, depth, 3)),
    "sl": lambda decoder, body, depth: slice(*decoder.parts(body, depth, 3)),
    "k": lambda decoder, body, depth: _SINGLETONS[body],
    "D": lambda decoder, body, depth: Decimal(body),
    "F": _Decoder.fraction,
    "T": _Decoder.moment,
    "A": _Decoder.array,
    "E": _Decoder.member,
    "O": _Decoder.record,
}


def _int(value: Any) -> int:
    if type(value) is not int:
        raise Undecodable("no encoding of a value: not an integer")
    return value


def _check_hashes(parts: list[Any]) -> None:
    """Raises Undecodable where building a table would take time quadratic in its size."""
    if len(parts) <= MAX_EQUAL_HASHES:
        return
    hashes = sorted(map(hash, parts))
    if any(a == b for a, b in zip(hashes, hashes[MAX_EQUAL_HASHES:], strict=False)):
        raise Undecodable("too many keys of equal hash")


MAX_SHOWN = 10_000
TOO_LONG = "with an integer of too many digits to show>"


def show(value: object, limit: int = MAX_SHOWN) -> str:
    """The value's repr, cut at `limit` characters; never raises, whatever the size of its integers."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python writes out
        text = f"<{type(value).__name__} {TOO_LONG}"
    return text if len(text) <= limit else text[:limit] + "..."
