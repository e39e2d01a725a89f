"""Values: what a candidate encodes is what the parent decodes, hostile text is refused, and when two are the same."""

import collections
import contextlib
import dataclasses
import datetime as dt
import enum
import json
import math
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import codea1_cli.sandbox.local as local
from codea1_cli.judging.compare import same
from codea1_cli.sandbox.values import Array, Member, Record, Undecodable, decode, show

sys.path.insert(0, str(Path(local.__file__).parent / "jailed"))
import encode as child_side

sys.path.pop(0)

zones = st.none() | st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone)
texts = st.text(st.characters(codec=None, exclude_categories=[]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**9000), 2**9000)
    | st.floats()
    | st.complex_numbers()
    | texts
    | st.binary()
    | st.decimals()
    | st.fractions()
    | st.datetimes(timezones=st.just(None))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | zones
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 9))
    | st.just(...)
)
keys = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.dates()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.lists(inner).map(collections.deque)
        | st.sets(keys)
        | st.frozensets(keys)
        | st.dictionaries(keys, inner)
        | st.dictionaries(keys, inner).map(collections.OrderedDict)
        | st.dictionaries(keys, st.integers()).map(collections.Counter)
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(values)
def test_a_value_comes_back_with_its_type(value: object) -> None:
    wire = child_side.encode(value)
    assert wire.isascii()
    back = decode(wire)
    assert type(back) is type(value)
    assert same(back, value, 0.0)
    assert same(value, back, 0.0)
    assert len(show(back)) <= 10_003


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        scalars.filter(lambda v: v is not ...).map(repr) | st.integers() | st.text(max_size=3),
        lambda x: (
            st.lists(x, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "i",
                        "f",
                        "c",
                        "b",
                        "ba",
                        "t",
                        "s",
                        "z",
                        "d",
                        "od",
                        "cn",
                        "r",
                        "sl",
                        "D",
                        "F",
                        "T",
                        "A",
                        "E",
                        "O",
                        "k",
                        "dq",
                        "x",
                    ]
                ),
                x,
                max_size=2,
            )
        ),
        max_leaves=12,
    )
)
def test_wild_json_is_decoded_or_refused(raw: object) -> None:
    try:
        value = decode(json.dumps(raw))
    except Undecodable:
        return
    assert same(value, value)
    assert isinstance(show(value), str)


@given(st.text())
def test_wild_text_is_decoded_or_refused(text: str) -> None:
    with contextlib.suppress(Undecodable):
        decode(text)


@pytest.mark.parametrize(
    "wire",
    [
        "[" * 100_000 + "]" * 100_000,
        "[" * 200 + "]" * 200,
        '{"i":"' + "f" * 30_000 + '"}',
        "1" * 5000,
        "NaN",
        "Infinity",
        '{"s":[' + ",".join(str(k * (2**61 - 1)) for k in range(5000)) + "]}",
        '{"d":[' + ",".join(f"[{k * (2**61 - 1)},0]" for k in range(5000)) + "]}",
        "[" + "0," * 500_000 + "0]",
        '{"s":[[1]]}',
        '{"t":[1],"s":[1]}',
        "{}",
        '{"__class__":1}',
        '{"F":[1,0]}',
        '{"r":[0,1,0]}',
        '{"T":["moment",0,0,0,0,0,0,0,0,null]}',
        '{"A":[[true],[1]]}',
        "",
    ],
    ids=range(18),
)
def test_what_is_beyond_a_cap_or_no_encoding_is_refused(wire: str) -> None:
    with pytest.raises(Undecodable):
        decode(wire)


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int
    y: list[float]
    hidden: int = dataclasses.field(default=0, compare=False)


class Word(str):
    pass


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.int8(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.complex128(1j), 1j),
        (np.array([[1, 2], [3, 4]]), Array((2, 2), (1, 2, 3, 4))),
        (np.array(7), Array((), (7,))),
        (np.array(["a"], dtype=object), Array((1,), ("a",))),
        (Colour.RED, Member("Colour", "RED", 1, False)),
        (Level.LOW, Member("Level", "LOW", 1, True)),
        (Point(1, [2.0], 9), Record("Point", (("x", 1), ("y", [2.0])))),
        (Pair(1, 2), (1, 2)),
        (collections.defaultdict(int, a=1), {"a": 1}),
        ({"a": 1}.keys(), {"a"}),
        ({"a": 1}.items(), {("a", 1)}),
        (bytearray(b"a"), bytearray(b"a")),
        (slice(1, None), slice(1, None)),
        (NotImplemented, NotImplemented),
    ],
    ids=repr,
)
def test_what_is_encoded_by_content(value: object, wanted: object) -> None:
    back = decode(child_side.encode(value))
    assert type(back) is type(wanted)
    assert back == wanted
    assert same(back, wanted)


@pytest.mark.parametrize(
    "value",
    [iter([1]), (x for x in [1]), map(int, []), zip([]), Word("a"), object(), len, int, math, Word, ValueError(1),
     {}.values(), 1 << 200_000, "a" * 2_000_000, [0] * 200_000, np.zeros(200_000), np.datetime64("nat")],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_what_is_no_comparable_value(value: object) -> None:
    with pytest.raises(child_side.Refused):
        child_side.encode(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(child_side.Refused):
        child_side.encode(loop)
    wide: object = []
    for _ in range(60):
        wide = [wide, wide]
    with pytest.raises(child_side.Refused):
        child_side.encode(wide)


NAN = float("nan")
SAME = [
    (4, 4.0), (True, 1), (0.15, 0.15000000000000002), ([1.0, (2.0,)], [1.0000001, (2,)]), (NAN, NAN), ([NAN], [NAN]),
    ({1.0}, {1.0000000001}), ({NAN}, {NAN}), ({0.1 + 0.2: "a"}, {0.3: "a"}), ({1: 0.1 + 0.2}, {1: 0.3}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (Decimal("1.50"), 1.5), (Decimal("0.1"), 0.1), (Fraction(1, 5), 0.2), (Decimal("NaN"), Decimal("NaN")), (1e300, 1e300 * (1 + 1e-9)),
    (complex(1, NAN), complex(1, NAN)), (frozenset([1]), {1}), (b"a", bytearray(b"a")), (collections.Counter(a=0), collections.Counter()),
    (collections.OrderedDict(a=1, b=2), {"b": 2, "a": 1}), (Member("L", "LOW", 1, True), 1), (range(3), range(0, 3, 1)),
    (float("inf"), float("inf")), (Decimal("sNaN"), Decimal("sNaN")), (10**400, 10**400), (-0.0, 0.0),
]  # fmt: skip
DIFFERENT = [
    (1, 2), (1.0, 1.1), ([1], (1,)), ([1], {1}), ("a", b"a"), (None, 0), (None, False), ([], ()), ({}, set()), (NAN, 1.0), (NAN, None),
    (float("inf"), 1e308), (float("inf"), float("-inf")), ([1, 2], [2, 1]), ({1: 2}, {1: 3}), ({1: 2}, {2: 2}), ("1", 1), (10**400, 1.0),
    (Array((2,), (1, 2)), [1, 2]), (Array((2,), (1, 2)), Array((1, 2), (1, 2))), (Member("C", "RED", 1, False), 1), (10**16, 10**16 + 1),
    (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)), ({1.0, 2.0}, {1.0, 2.1}), (range(3), [0, 1, 2]),
    (Record("P", (("x", 1),)), Record("Q", (("x", 1),))), (dt.date(2000, 1, 1), dt.datetime(2000, 1, 1)), (collections.deque([1]), [1]),
    ({0.1, 0.1000000001}, {0.1, 5.0}), (Fraction(1, 3), Decimal("0.3333333333")), (Decimal("1e999999"), 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SAME, ids=str)
def test_same(a: object, b: object) -> None:
    assert same(a, b)
    assert same(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT, ids=str)
def test_different(a: object, b: object) -> None:
    assert not same(a, b)
    assert not same(b, a)


def test_an_array_may_be_stated_as_nested_lists() -> None:
    array = Array((2, 2), (1, 2, 3, 4.0))
    assert same(array, [[1, 2], (3, 4)], arrays_as_lists=True)
    assert not same(array, [1, 2, 3, 4], arrays_as_lists=True)
    assert not same(array, [[1, 2], [3]], arrays_as_lists=True)


@settings(max_examples=100, deadline=None)
@given(values, values)
def test_same_is_symmetric_and_agrees_with_equality_at_tolerance_zero(a: object, b: object) -> None:
    assert same(a, b, 0.0) == same(b, a, 0.0)
    try:
        equal = bool(a == b)
    except ArithmeticError:
        return
    if equal:
        assert same(a, b, 0.0)
