"""Answers are written in the sandbox and read here: exact types, nothing runs, large ones as digests."""

from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import numpy as np
import pytest

from codea1_cli.evals.evalplus import answers
from codea1_cli.evals.evalplus.values import NOTHING, NotAnAnswer, Read, read

Point = namedtuple("Point", "x y")


class Colour(IntEnum):
    RED = 1


class Liar(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


def through(value):
    return read(answers.wire(value, 4000))


@pytest.mark.parametrize(
    "value",
    [
        0, -5, 1 << 80, -(1 << 80), 1.5, -0.0, float("inf"), True, None, "a\n'\"\\", "\ud800é", b"\0x", 1 + 2j, [], (), (1,),
        set(), {1, 2}, frozenset({3}), frozenset(), {}, {"a": [1, {2: (3,)}]}, [[1, 2.5], ("x", None)], [1 << 15000],
    ],
)  # fmt: skip
def test_builtins_come_back_as_they_were(value):
    found = through(value)
    assert (found.value, type(found.value), found.exact) == (value, type(value), True)


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(a=1), Counter("aab"), defaultdict(int, {1: 2}), deque([1, 2]), range(1, 9, 2), bytearray(b"xy"),
        Decimal("1.50"), Fraction(1, 3), {1: 2}.keys(), {1: 2}.items(),
    ],
)  # fmt: skip
def test_containers_of_the_library(value):
    found = through(value)
    assert found.value == value
    assert type(found.value) is type(value)


def test_numpys_values_keep_their_types():
    for value in (np.float64(1.5), np.int32(3), np.bool_(True), np.str_("x")):
        found = through(value)
        assert (found.value, type(found.value)) == (value, type(value))
    array = through(np.array([[1.5, 2.0]], dtype=np.float32)).value
    assert (array.dtype, array.shape, array.tolist()) == (np.float32, (1, 2), [[1.5, 2.0]])
    assert answers.wire([np.float64(2.0)], 4000) == "[scalar('<f8', 2.0)]"


def test_a_subclass_is_the_value_that_it_is_but_not_its_type():
    assert through(Point(1, 2)) == Read((1, 2), False)
    assert through(Colour.RED) == Read(1, False)
    assert through([Colour.RED]).value == [1]


def test_what_equals_nothing():
    for value in (Liar(3), iter([1]), lambda: 1, object(), int, [].append, {1: 2}.values()):
        assert through(value) is NOTHING
    assert through([Liar(3)]).value != [3]
    assert NOTHING.value != NOTHING.value


def test_large_values_are_sent_as_digests():
    big = list(range(5000))
    line = answers.wire(big, 4000)
    assert line.startswith("#l ")
    assert line == answers.wire(list(range(5000)), 4000)
    assert line != answers.wire([*range(4999), 4999.0], 4000)
    assert line != answers.wire([*range(4999), True], 4000)
    assert answers.wire(tuple(big), 4000).startswith("#t ")
    assert answers.wire([0.5] * 5000, 4000).startswith("#lf ")
    assert answers.wire([*range(3000), float("nan")], 4000).startswith("#ln ")
    assert answers.wire("x" * 9000, 4000).startswith("#c ")
    assert answers.wire(1 << 90000, 4000).startswith("#i ")
    assert answers.wire(dict.fromkeys(range(900), "y" * 9), 4000).startswith("#d ")


def test_values_without_end():
    loop = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        answers.wire(loop, 4000)
    deep = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(RecursionError):
        answers.wire(deep, 4000)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "open('x')", "[].append(1)", "f'{1}'", "x", "1 if 2 else 3", "lambda: 1", "(", "a.b", "[x for x in y]",
        "range(", "array('O', (1,), [1])", "set(x=1)", "'a' + 'b'", "1 * 2", "-'a'", "{**{}}" "(", "1\n2",
        "[" * 500 + "]" * 500, "{[]: 1}", "*a",
    ],
)  # fmt: skip
def test_nothing_else_is_read(text):
    with pytest.raises(NotAnAnswer):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        "deque(range(10**9))", "deque(range(1000000000000))", "set(range(1000000000000))", "bytearray(1000000000000)",
        "array('<U1000000000', (1,), ['a'])", "Fraction('1e999999999')", "dict_keys(range(1000000000000))",
        "{" + ",".join(str(i * ((1 << 61) - 1)) for i in range(1, 90)) + "}",
        "{" + ",".join(f"{i * ((1 << 61) - 1)}: 0" for i in range(1, 90)) + "}",
    ],
)  # fmt: skip
def test_short_texts_of_endless_values_are_not_read(text):
    with pytest.raises(NotAnAnswer):
        read(text)


def test_long_texts_are_not_read():
    with pytest.raises(NotAnAnswer):
        read("'" + "x" * 2_000_000 + "'")
