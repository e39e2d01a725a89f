"""How an answer is written inside the sandbox: one line of ASCII. Shipped as source in front of `in_jail`.

A line is a Python expression (`evals.evalplus.values` reads it), `nothing()` for a value that equals no other, `?` where it
is too large to write, or `#KIND DIGEST` for a large value: the kind's letter, then n where it holds a NaN and f where it
is all floats. Types are matched exactly, so a subclass never runs its own methods here.
"""

import hashlib
import marshal
import math
import operator
import sys
from itertools import chain

_NOTHING = "nothing()"
_NONE = type(None)
_SCALARS = frozenset({int, float, str, bool, _NONE, bytes, complex})
_NUMBERS = frozenset({int, float, bool})
_BOXES = frozenset({list, tuple, dict, set, frozenset})
_KINDS = {list: "l", tuple: "t", dict: "d", set: "s", frozenset: "z"}
_ascii, _type, _dumps, _blake = ascii, type, marshal.dumps, hashlib.blake2b
_get, _len = type.__getattribute__, len
_modules, _differ = sys.modules, operator.ne
_LONG = 1 << 9000  # an integer that Python does not write in digits, or close to it


def wire(value, small):
    """The line of one answer."""
    kind = _type(value)
    if kind is int:
        if -(1 << 63) < value < 1 << 63:
            return _ascii(value)
        text = hex(value)
        return text if _len(text) <= small else "#i " + _digest(text.encode())
    if kind is str:
        if _len(value) * 10 <= small or (_len(value) < small and _len(_ascii(value)) <= small):
            return _ascii(value)
        return "#c " + _digest(value.encode("utf-8", "surrogatepass"))
    if kind in _SCALARS:
        return _ascii(value)
    if kind in _BOXES:
        if _len(value) > 1000 and (kind is list or kind is tuple):
            return _large(value, kind)
        count, strange = survey(value)
        if count > 0:
            if count <= small // 2 and "n" not in strange:
                text = express(value, 0) if strange else _ascii(value)
                if _len(text) <= small:
                    return text
            return _large(value, kind, strange)
    text = express(value, 0)
    return text if _len(text) <= 20 * small else "?"


def _digest(data):
    return _blake(data, digest_size=20).hexdigest()


def _large(value, kind, strange=""):
    """A digest of the exact value: of its type, its length and its parts a thousand at a time."""
    state = _blake(digest_size=20)
    if kind is not list and kind is not tuple:
        return f"#{_KINDS[kind]}{strange.replace('i', '')} " + _digest(_dumps(value, 2))
    state.update(b"%d " % _len(value))
    for start in range(0, _len(value), 1000):
        piece = value[start : start + 1000] if kind is list else list(value[start : start + 1000])
        count, odd = survey(piece, False)
        if count < 0:
            return "?"
        strange += odd
        state.update(_dumps(piece, 2))
    floats = "f" if value and _type(value[0]) is float and _kinds(value) == {float} else ""
    return f"#{_KINDS[kind]}{'n' if 'n' in strange else ''}{floats} {state.hexdigest()}"


def _kinds(level):
    """The types of a level's parts, most often one: counting is quicker than a set."""
    kinds = list(map(_type, level))
    return {kinds[0]} if kinds.count(kinds[0]) == _len(kinds) else set(kinds)


def survey(value, integers=True):
    """How many parts a value has, -1 when one of them is no exact builtin; with "n" for a NaN, and "i" for a long
    integer where those are asked for."""
    level, count, strange = [value], 0, ""
    for _ in range(60):
        kinds = _kinds(level)
        count += _len(level)
        if not (kinds <= _SCALARS or kinds <= _SCALARS | _BOXES) or count > 3_000_000:
            return -1, ""
        if float in kinds:
            try:  # the sum is NaN where one is, or where infinities meet
                total = sum(level) if kinds <= _NUMBERS else math.nan
            except OverflowError:  # an integer that no float can hold
                total = math.nan
            if total != total:
                floats = [x for x in level if _type(x) is float]
                if any(map(_differ, floats, floats)):
                    strange += "n"
        if integers and int in kinds:
            whole = level if kinds == {int} else [x for x in level if _type(x) is int]
            if max(whole) >= _LONG or min(whole) <= -_LONG:
                strange += "i"
        boxes = kinds & _BOXES
        if not boxes:
            return count, strange
        if boxes != kinds:
            level = [x for x in level if _type(x) in _BOXES]
        if dict in boxes:
            level = [chain(x, x.values()) if _type(x) is dict else x for x in level]
        level = list(chain.from_iterable(level))
        if not level:
            return count, strange
    return -1, ""


def express(value, depth):
    """An expression for any value that can equal another: builtins, numpy's, a subclass by the value that it is."""
    kind = _type(value)
    if depth > 60:
        raise RecursionError
    if kind is int:
        return hex(value) if value.bit_length() > 60 else _ascii(value)
    if kind in _SCALARS:
        return _ascii(value)
    if kind in _BOXES:
        return _box(kind, value, depth)
    numpy = _modules.get("numpy")
    if numpy is not None and kind is numpy.ndarray:
        return f"array({value.dtype.str!r}, {value.shape!r}, {express(value.ravel().tolist(), depth + 1)})"
    if numpy is not None and numpy.generic in _get(kind, "__mro__"):
        return f"scalar({value.dtype.str!r}, {express(value.item(), depth + 1)})"
    name, module = _get(kind, "__name__"), _module(kind)
    if module == "builtins" and name in ("dict_keys", "dict_items", "range", "bytearray"):
        args: tuple = (value.start, value.stop, value.step) if name == "range" else (list(value),)
        return f"{name}({', '.join(express(arg, depth + 1) for arg in args)})"
    if module == "collections" and name in ("OrderedDict", "Counter", "defaultdict", "deque"):
        items: list = list(value) if name == "deque" else list(dict.items(value))
        return f"{name}({express(items, depth + 1)})"
    if (module, name) in (("decimal", "Decimal"), ("fractions", "Fraction")):
        return f"{name}({_ascii(str(value))})"
    for base in _get(kind, "__mro__"):
        if base in _BOXES or base in _SCALARS:
            if _get(kind, "__eq__") is not _get(base, "__eq__"):
                return _NOTHING  # it would decide itself what it equals
            plain = base(value) if base is not dict else dict(dict.items(value))
            return f"sub({express(plain, depth + 1)})"
    return _NOTHING


def _module(kind):
    try:
        return _get(kind, "__module__")
    except AttributeError:  # made where no module has a name
        return ""


def _box(kind, value, depth):
    parts = [(express(x, depth + 1)) for x in value]
    if kind is dict:
        return "{" + ", ".join(f"{k}: {express(x, depth + 1)}" for k, x in zip(parts, value.values())) + "}"  # noqa: B905
    inner = ", ".join(parts)
    if kind is list:
        return f"[{inner}]"
    if kind is tuple:
        return f"({inner},)" if parts else "()"
    return f"{kind.__name__}([{inner}])"
