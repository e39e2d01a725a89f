"""The candidate's side of the value encoding: exact types to JSON text, each within caps. Standard library only.

JSON's own null, booleans, numbers, strings and arrays stand for None, bool, int, finite float, str and list; every
other value is a JSON object with one key, its tag (`sandbox.values` has the list). Types are matched exactly: a
subclass never runs its own methods here, and what has no tag is refused. Nothing in this module is trusted: a
program may send any text it likes, and gains nothing by it.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import sys
from enum import Enum
from json.encoder import encode_basestring_ascii as quote

MAX_NODES = 100_000
MAX_DEPTH = 100
MAX_CHARS = 1_000_000
MAX_INT_BITS = 100_000

_object_get = object.__getattribute__
_type_get = type.__getattribute__
_modules = sys.modules
_float_repr = float.__repr__
_int_repr = int.__repr__
_plain = frozenset([type(None), bool, int, float, str, bytes])
_BYTES: dict[type, str] = {bytes: "b", bytearray: "ba"}
_DICTS: dict[type, str] = {
    dict: "d",
    collections.defaultdict: "d",
    collections.OrderedDict: "od",
    collections.Counter: "cn",
}
_SEQUENCES: dict[type, str] = {tuple: "t", set: "s", frozenset: "z", collections.deque: "dq"}
_EMPTY: dict[int, int] = {}
_VIEWS = (type(_EMPTY.keys()), type(_EMPTY.items()))
_CLOCK = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)


class Refused(Exception):
    """The value has no encoding, or is beyond a cap."""


def encode(value: object) -> str:
    """JSON text of `value`. Raises Refused (or whatever a hostile object makes Python raise)."""
    out: list[str] = []
    _Encoder(out.append).put(value, 0)
    return "".join(out)


class _Encoder:
    def __init__(self, emit) -> None:
        self.emit = emit
        self.nodes = MAX_NODES
        self.chars = MAX_CHARS

    def put(self, v, depth: int) -> None:
        self.nodes -= 1
        if self.nodes < 0:
            raise Refused("too many elements")
        kind = type(v)
        emit = self.emit
        if kind is int:
            if -(1 << 62) < v < (1 << 62):
                return emit(_int_repr(v))
            bits = v.bit_length()
            if bits > MAX_INT_BITS:
                raise Refused(f"integer of {bits} bits")
            self.spend(bits // 4)
            return emit(f'{{"i":"{v:x}"}}')
        if kind is str:
            self.spend(len(v))
            return emit(quote(v))
        if v is None:
            return emit("null")
        if kind is bool:
            return emit("true" if v else "false")
        if kind is float:
            text = _float_repr(v)
            return emit(text if text[-1] not in "fn" else f'{{"f":"{text}"}}')
        if depth >= MAX_DEPTH:
            raise Refused("nested too deeply")
        if kind is list:
            return self.items(v, depth)
        if kind in _SEQUENCES:
            emit(f'{{"{_SEQUENCES[kind]}":')
            self.items(v, depth)
            return emit("}")
        if kind in _DICTS:
            return self.pairs(_DICTS[kind], kind.items(v), depth)
        return self.rare(v, kind, depth)

    def spend(self, chars: int) -> None:
        self.chars -= chars
        if self.chars < 0:
            raise Refused("too much text")

    def items(self, values, depth: int) -> None:
        emit, put = self.emit, self.put
        lead = "["
        for x in values:
            emit(lead)
            put(x, depth + 1)
            lead = ","
        emit("]" if lead == "," else "[]")

    def pairs(self, tag: str, pairs, depth: int) -> None:
        emit, put = self.emit, self.put
        emit(f'{{"{tag}":[')
        lead = "["
        for k, x in pairs:
            emit(lead)
            put(k, depth + 1)
            emit(",")
            put(x, depth + 1)
            emit("]")
            lead = ",["
        emit("]}")

    def tagged(self, tag: str, parts, depth: int) -> None:
        self.emit(f'{{"{tag}":')
        self.items(parts, depth)
        self.emit("}")

    def rare(self, v, kind, depth: int) -> None:
        if kind in _BYTES:
            self.spend(2 * len(v))
            return self.emit(f'{{"{_BYTES[kind]}":"{v.hex()}"}}')
        if kind is complex:
            return self.tagged("c", (v.real, v.imag), depth)
        if kind is range:
            return self.tagged("r", (v.start, v.stop, v.step), depth)
        if kind is slice:
            return self.tagged("sl", (v.start, v.stop, v.step), depth)
        if v is Ellipsis or v is NotImplemented:
            return self.emit('{"k":"%s"}' % ("..." if v is Ellipsis else "NotImplemented"))
        if kind is decimal.Decimal:
            text = decimal.Decimal.__str__(v)
            self.spend(len(text))
            return self.emit(f'{{"D":{quote(text)}}}')
        if kind is fractions.Fraction:
            return self.tagged("F", (_object_get(v, "_numerator"), _object_get(v, "_denominator")), depth)
        if kind in _CLOCK:
            return self.tagged("T", _clock(v, kind), depth)
        if kind is datetime.timezone:
            return self.tagged("T", ("zone", *_zone(v)), depth)
        if kind in _VIEWS:
            return self.tagged("s", v, depth)
        return self.by_content(v, kind, depth)

    def by_content(self, v, kind, depth: int) -> None:
        mro = _type_get(kind, "__mro__")
        own = _type_get(kind, "__dict__")
        name = _name(kind)
        numpy = _modules.get("numpy")
        if numpy is not None:
            if numpy.generic in mro:
                return self.put_numpy_scalar(v, depth)
            if kind is numpy.ndarray:
                return self.put_array(v, depth)
        if Enum in mro:
            inner = _object_get(v, "_value_")
            mixed = int in mro or str in mro or float in mro  # IntEnum and its like equal their plain value
            return self.tagged("E", (name, _object_get(v, "_name_"), inner, mixed), depth)
        fields = own.get("__dataclass_fields__")
        if type(fields) is dict:
            names = [n for n, f in fields.items() if type(n) is str and f._field_type.name == "_FIELD" and f.compare]
            self.emit(f'{{"O":[{quote(name)},')
            self.pairs("d", [(n, _object_get(v, n)) for n in names], depth + 1)
            return self.emit("]}")
        if _type_get(kind, "__bases__") == (tuple,) and type(own.get("_fields")) is tuple and "__eq__" not in own:
            return self.tagged("t", tuple.__iter__(v), depth)
        raise Refused("a value of type " + name)

    def put_numpy_scalar(self, v, depth: int) -> None:
        plain = v.item()
        if v.dtype.kind in "mM" and type(plain) not in _CLOCK:  # beyond what datetime can hold, or NaT
            raise Refused("a numpy time of no datetime")
        if type(plain) not in _plain and type(plain) is not complex and type(plain) not in _CLOCK:
            raise Refused("a numpy value of type " + _name(type(v)))
        self.put(plain, depth)

    def put_array(self, v, depth: int) -> None:
        if v.size > MAX_NODES or v.ndim > 32:
            raise Refused("too many elements")
        if v.dtype.kind not in "biufcSUO":
            raise Refused("an array of " + str(v.dtype))
        self.emit('{"A":[')
        self.items(v.shape, depth)
        self.emit(",")
        self.items(v.ravel().tolist(), depth + 1)
        self.emit("]}")


def _name(kind) -> str:
    text = _type_get(kind, "__qualname__")
    return text[:200] if type(text) is str else "?"


def _zone(tz) -> tuple:
    offset = tz.utcoffset(None)
    return (offset.days, offset.seconds, offset.microseconds)


def _clock(v, kind) -> tuple:
    if kind is datetime.timedelta:
        return ("delta", v.days, v.seconds, v.microseconds)
    if kind is datetime.date:
        return ("date", v.year, v.month, v.day)
    offset = v.utcoffset()
    zone = None if offset is None else [offset.days, offset.seconds, offset.microseconds]
    clock = (v.hour, v.minute, v.second, v.microsecond, v.fold)
    if kind is datetime.time:
        return ("time", *clock, zone)
    return ("moment", v.year, v.month, v.day, *clock, zone)
