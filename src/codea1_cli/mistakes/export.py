"""A run's Mistake Book as files for others: jsonl rows, or a pytest file that passes on the references."""

import ast
import json
import math
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

from codea1_cli.errors import counted
from codea1_cli.mistakes import BookRow
from codea1_cli.problems.problem import Problem
from codea1_cli.runs.rollout_files import call_of

_EXACT_REPR = (bool, str, bytes, bytearray, range, slice, Decimal, Fraction, date, datetime, time, timedelta, timezone)


@dataclass(frozen=True)
class ExportedTest:
    """One test for export: the call as source and the reference's value as a Python expression."""

    test: str
    call: str
    expected: str
    count: int


def jsonl(rows: Iterable[BookRow], problems: Mapping[str, Problem]) -> str:
    """One JSON line per live test: id, entry point, test, call, count, first and last step."""
    lines = []
    for row in rows:
        problem = problems.get(row.problem_id)
        named = {"problem_id": row.problem_id, "entry_point": problem.entry_point if problem else None}
        record = {**named, "test": row.test, "call": call_of(row.test), **vars(row)}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    return "".join(lines)


def value_source(value: Any) -> str:
    """A Python expression that builds exactly `value`; it may use the names that the exported file imports.

    Raises:
        TypeError: a value of another type than the judge's builtins.
    """
    kind = type(value)
    if kind is float:
        return "nan" if math.isnan(value) else repr(value)
    if kind is int:
        return repr(value) if abs(value) < 10**1000 else hex(value)  # repr refuses more than 4300 digits
    if value is None or value is Ellipsis or value is NotImplemented or kind in _EXACT_REPR:
        return repr(value)
    if kind is complex:
        return f"complex({value_source(value.real)}, {value_source(value.imag)})"
    if kind is list:
        return f"[{', '.join(map(value_source, value))}]"
    if kind is tuple:
        return f"({', '.join(map(value_source, value))}{',' if len(value) == 1 else ''})"
    if kind in (set, frozenset):
        items = ", ".join(sorted(map(value_source, value)))
        if kind is frozenset:
            return f"frozenset({{{items}}})" if items else "frozenset()"
        return f"{{{items}}}" if items else "set()"
    if kind is deque:
        return f"deque([{', '.join(map(value_source, value))}])"
    if kind in (dict, Counter, OrderedDict):
        items = "{" + ", ".join(f"{value_source(k)}: {value_source(v)}" for k, v in value.items()) + "}"
        return items if kind is dict else f"{kind.__name__}({items})"
    raise TypeError(f"no source for a {kind.__name__}")


def text_source(text: str) -> str:
    """A literal of `text`: a raw triple-quoted block where Python reads that as the same text, else its repr."""
    block = f'r"""{text}"""'
    try:
        exact = ast.literal_eval(block) == text and text.isascii()
    except (SyntaxError, ValueError):
        exact = False
    return block if exact else ascii(text)


_HEAD = '''"""The Mistake Book of run {run} after step {step}: {tests} of {problems}.

Each problem's reference answers its tests here. To test other code, replace its source in SOURCES.
"""

import cmath
import datetime
import sys
import types
from collections import Counter, OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from numbers import Number

import pytest

TOLERANCE = {tolerance!r}  # absolute and relative, for floats, also inside containers


def same(got, want):
    """Python's ==, with floats within TOLERANCE and NaN equal to NaN, also inside containers."""
    if isinstance(got, Number) and isinstance(want, Number):
        return same_number(got, want)
    for kind in (list, tuple, deque):
        if isinstance(got, kind) or isinstance(want, kind):
            both = isinstance(got, kind) and isinstance(want, kind)
            return both and len(got) == len(want) and all(map(same, got, want))
    if isinstance(got, dict) and isinstance(want, dict):
        if isinstance(got, OrderedDict) and isinstance(want, OrderedDict):
            return same(list(got.items()), list(want.items()))
        if isinstance(got, Counter) and isinstance(want, Counter):  # a missing count is zero
            got, want = ({{key: count for key, count in each.items() if count != 0}} for each in (got, want))
        if got.keys() == want.keys():
            return all(same(got[key], want[key]) for key in want)
        return same_members(got.items(), want.items())
    if isinstance(got, (set, frozenset)) and isinstance(want, (set, frozenset)):
        return got == want or same_members(got, want)
    return bool(got == want)


def same_members(got, want):
    left = list(got)
    for item in want:
        match = next((index for index, other in enumerate(left) if same(other, item)), None)
        if match is None:
            return False
        del left[match]
    return not left


def same_number(got, want):
    try:
        if got == want:
            return True
        if isinstance(got, complex) or isinstance(want, complex):
            got, want = complex(got), complex(want)
            return same_number(got.real, want.real) and same_number(got.imag, want.imag)
        if got != got and want != want:
            return True
        if all(isinstance(number, (int, Decimal, Fraction)) for number in (got, want)):
            return False
        return cmath.isclose(got, want, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except ArithmeticError:  # beyond a float's range, or a signalling NaN
        return str(got) == str(want)


def answer(problem, call):
    """What `call` gives with the problem's source freshly loaded."""
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    exec(compile(SOURCES[problem], f"<{{problem}}>", "exec", dont_inherit=True), module.__dict__)
    return eval(call, module.__dict__)


SOURCES = {{}}
'''


def pytest_file(
    run: str, step: int, cases: Mapping[str, Sequence[ExportedTest]], problems: Mapping[str, Problem], tolerance: float
) -> str:
    """The source of a pytest file with one parametrised test function per problem; values equal within `tolerance`."""
    total = sum(len(own) for own in cases.values())
    shown = re.sub(r"[^\w .:/@+-]", "?", run)
    tests, of = counted(total, "test"), counted(len(cases), "problem")
    parts = [_HEAD.format(run=shown, step=step, tests=tests, problems=of, tolerance=tolerance)]
    names: set[str] = set()
    for problem_id, own in cases.items():
        name = _function_name(problem_id, names)
        rows = "".join(f"        ({case.call!a}, {case.expected}),\n" for case in own)
        parts.append(
            f"\n\nSOURCES[{problem_id!a}] = {text_source(problems[problem_id].reference)}\n\n\n"
            f"@pytest.mark.parametrize(\n"
            f'    ("call", "expected"),\n'
            f"    [\n{rows}    ],\n"
            f'    ids=[f"mistake{{number}}" for number in range({len(own)})],\n'
            f")\n"
            f"def {name}(call, expected):\n"
            f"    assert same(answer({problem_id!a}, call), expected)\n"
        )
    return "".join(parts)


def _function_name(problem_id: str, taken: set[str]) -> str:
    stem = "test_" + (re.sub(r"\W+", "_", problem_id, flags=re.ASCII).strip("_") or "problem")
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    taken.add(name)
    return name
