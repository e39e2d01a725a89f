"""When two values are the same answer: Python's `==` on builtins, with a tolerance for floats wherever they stand."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from codea1_cli.extract.folding import Stated
from codea1_cli.sandbox.values import Array, Member, Record

_NUMBERS = (int, float, complex, Decimal, Fraction)
_MAX_PAIRED = 300  # floats that are close but not equal, matched pair by pair in sets and keys


def same(a: Any, b: Any, tolerance: float = 1e-6, arrays_as_lists: bool = False) -> bool:
    """Whether `a` and `b` are the same answer.

    4 == 4.0 and True == 1 hold, a list is not a tuple, sets and dicts compare by content (OrderedDicts in order). Where
    one number is a float or complex, a difference within `tolerance`, absolute or relative, is none; NaN equals NaN.
    With `arrays_as_lists` an array equals the nested lists or tuples of its items: it has no literal of its own.
    """
    return _Comparison(tolerance, arrays_as_lists).same(a, b)


def numbered(values: Sequence[Stated | None], equal: Callable[[Any, Any], bool]) -> list[int | None]:
    """A number for each value, from 0 in order of appearance; equal ones have the same, None has none."""
    kinds: list[Stated] = []
    numbers: list[int | None] = []
    for one in values:
        if one is None:
            numbers.append(None)
            continue
        at = next((at for at, kind in enumerate(kinds) if equal(kind.value, one.value)), len(kinds))
        kinds += [one] if at == len(kinds) else []
        numbers.append(at)
    return numbers


class _Comparison:
    def __init__(self, tolerance: float, arrays_as_lists: bool) -> None:
        self.tolerance = tolerance
        self.arrays_as_lists = arrays_as_lists

    def same(self, a: Any, b: Any) -> bool:
        if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
            return self.numbers(a, b)
        if isinstance(a, Member) or isinstance(b, Member):
            return self.members(a, b)
        if isinstance(a, Array) or isinstance(b, Array):
            return self.arrays(a, b)
        if isinstance(a, Set) and isinstance(b, Set):
            return self.sets(a, b)
        if isinstance(a, dict) and isinstance(b, dict):
            return self.dicts(a, b)
        for kind in (list, tuple, deque):
            if isinstance(a, kind) or isinstance(b, kind):
                return isinstance(a, kind) and isinstance(b, kind) and self.sequences(a, b)
        if isinstance(a, Record) and isinstance(b, Record):
            return a.type_name == b.type_name and self.sequences(a.fields, b.fields)
        return bool(a == b)

    def numbers(self, a: Any, b: Any) -> bool:
        try:
            if a == b:
                return True
        except InvalidOperation:  # a signalling NaN
            return str(a) == str(b)
        if isinstance(a, complex) or isinstance(b, complex):
            try:
                a, b = complex(a), complex(b)
            except OverflowError:
                return False
            return self.numbers(a.real, b.real) and self.numbers(a.imag, b.imag)
        if isinstance(a, Decimal) and isinstance(b, Decimal):
            return a.is_nan() and b.is_nan()
        if not (isinstance(a, float) or isinstance(b, float)):
            return False
        try:
            a, b = float(a), float(b)
        except (OverflowError, ValueError):
            return False
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return math.isclose(a, b, rel_tol=self.tolerance, abs_tol=self.tolerance)

    def members(self, a: Any, b: Any) -> bool:
        if isinstance(a, Member) and isinstance(b, Member):
            if (a.type_name, a.name) == (b.type_name, b.name):
                return self.same(a.value, b.value)
            return a.plain and b.plain and self.same(a.value, b.value)
        member, other = (a, b) if isinstance(a, Member) else (b, a)
        return member.plain and self.same(member.value, other)

    def arrays(self, a: Any, b: Any) -> bool:
        if isinstance(a, Array) and isinstance(b, Array):
            return a.shape == b.shape and self.sequences(a.items, b.items)
        if not self.arrays_as_lists:
            return False
        array, other = (a, b) if isinstance(a, Array) else (b, a)
        return self.nested(array.shape, iter(array.items), other)

    def nested(self, shape: tuple[int, ...], items: Any, other: Any) -> bool:
        if not shape:
            return self.same(next(items, None), other)
        if not isinstance(other, (list, tuple)) or len(other) != shape[0]:
            return False
        return all(self.nested(shape[1:], items, part) for part in other)

    def sequences(self, a: Any, b: Any) -> bool:
        return len(a) == len(b) and all(map(self.same, a, b))

    def sets(self, a: Set[Any], b: Set[Any]) -> bool:
        return len(a) == len(b) and self.pair_up([x for x in a if x not in b], [y for y in b if y not in a]) is not None

    def dicts(self, a: dict[Any, Any], b: dict[Any, Any]) -> bool:
        if isinstance(a, OrderedDict) and isinstance(b, OrderedDict):
            return self.sequences(list(a.items()), list(b.items()))
        if isinstance(a, Counter) and isinstance(b, Counter):  # a missing count is zero
            a, b = {k: v for k, v in a.items() if v != 0}, {k: v for k, v in b.items() if v != 0}
        if len(a) != len(b):
            return False
        pairs = self.pair_up([k for k in a if k not in b], [k for k in b if k not in a])
        if pairs is None:
            return False
        return all(self.same(a[k], b[k]) for k in a if k in b) and all(self.same(a[k], b[other]) for k, other in pairs)

    def pair_up(self, left: list[Any], right: Iterable[Any]) -> list[tuple[Any, Any]] | None:
        """Each of `left` with a partner of its own in `right` that is the same within the tolerance; None if none."""
        rest = list(right)
        if len(left) != len(rest) or len(rest) > _MAX_PAIRED:
            return None
        pairs = []
        for x in left:
            for at, y in enumerate(rest):
                if self.same(x, y):
                    pairs.append((x, y))
                    del rest[at]
                    break
            else:
                return None
        return pairs
