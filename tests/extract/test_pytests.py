"""From pytest files to asserts that stand alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1_cli.extract import parse_suite
from codea1_cli.extract.pytests import MAX_CASES, MAX_TESTS, convert_tests

CASES = {
    "plain": ("from solution import f\ndef test_a():\n    assert f(1) == 2, 'message'", ["assert f(1) == 2"]),
    "bare": ("assert f(1) == 2\nassert f(2) == 3", ["assert f(1) == 2", "assert f(2) == 3"]),
    "argument in a variable": ("def test_a():\n    x = [1]\n    y: int = 2\n    assert f(x, y) == 3", ["assert f([1], 2) == 3"]),
    "answer in a variable": ("def test_a():\n    got = f('a')\n    want = ['b']\n    assert got == want", ["assert f('a') == ['b']"]),
    "variables of variables": ("def test_a():\n    a = 1\n    b = [a, a]\n    assert f(b) == a", ["assert f([1, 1]) == 1"]),
    "an old value": ("def test_a():\n    a = 1\n    r = f(a)\n    a = 5\n    assert r == 2", ["assert f(1) == 2"]),
    "pairs": ("def test_a():\n    a, b = 1, 2\n    assert f(a) == b", ["assert f(1) == 2"]),
    "turned round": ("def test_a():\n    assert 2 == f(1)", ["assert f(1) == 2"]),
    "module constant": ("N = 3\ndef test_a():\n    assert f(N) == 1", ["assert f(3) == 1"]),
    "module prefix": ("import solution\ndef test_a():\n    assert solution.f(1) == 2", ["assert f(1) == 2"]),
    "class": ("class TestF:\n    def test_a(self):\n        assert f(1) == 2", ["assert f(1) == 2"]),
    "unittest": ("class T(TestCase):\n    def test_a(self):\n        self.assertEqual(f(1), 2)", ["assert f(1) == 2"]),
    "approx": ("def test_a():\n    assert f(1) == pytest.approx(0.5)", ["assert f(1) == 0.5"]),
    "loop": ("def test_a():\n    for x, y in [(1, 2), (3, 4)]:\n        assert f(x) == y", ["assert f(1) == 2", "assert f(3) == 4"]),
    "parametrised": (
        "@pytest.mark.parametrize('x, y', [(1, 2), pytest.param(3, 4, id='b')])\ndef test_a(x, y):\n    assert f(x) == y",
        ["assert f(1) == 2", "assert f(3) == 4"],
    ),
    "parametrised twice": (
        "@pytest.mark.parametrize('x', [1, 2])\n@pytest.mark.parametrize('y', [5])\ndef test_a(x, y):\n    assert f(x, y) == 0",
        ["assert f(1, 5) == 0", "assert f(2, 5) == 0"],
    ),
    "fixture": ("@pytest.fixture\ndef d():\n    return [1, 2]\ndef test_a(d):\n    assert f(d) == 3", ["assert f([1, 2]) == 3"]),
    "comprehension's own name": ("x = 9\ndef test_a():\n    assert f([x for x in range(3)]) == 3", ["assert f([x for x in range(3)]) == 3"]),
    "repeated call": ("assert f(1) == 2\nassert f(1) == 2", ["assert f(1) == 2"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_followed(name):
    source, tests = CASES[name]
    assert convert_tests(source, "f").tests == tests


LEFT_OUT = {
    "def test_a():\n    assert f(1) is True": "other_comparison",
    "def test_a():\n    assert f(1)": "no_comparison",
    "def test_a():\n    assert g(1) == 2": "other_call",
    "def test_a():\n    assert f(Node(1)) == 2": "arguments",
    "def test_a():\n    assert f(1) == helper()": "not_literal",
    "def test_a():\n    with pytest.raises(ValueError):\n        f(1)": "raises",
    "def test_a():\n    for i in range(3):\n        assert f(i) == i": "loop",
    "def test_a():\n    if True:\n        assert f(1) == 1": "nested",
    "def test_a(tmp_path):\n    assert f(1) == 1": "fixture",
    "@pytest.fixture\ndef d():\n    x = 1\n    yield x\ndef test_a(d):\n    assert f(d) == 1": "fixture",
    "@pytest.mark.parametrize('x', make())\ndef test_a(x):\n    assert f(x) == 1": "fixture",
    "def test_a():\n    assert f(1) == pytest.approx(1, abs=1)": "approx",
    "def test_a(:": "syntax",
    "assert f(1) == 2\nassert f(1) == 3": "repeated",
}


@pytest.mark.parametrize("source", LEFT_OUT)
def test_what_is_left_out_has_a_reason(source):
    converted = convert_tests(source, "f")
    assert +converted.skipped == {LEFT_OUT[source]: 1}


def test_an_assert_of_a_call_that_states_something_else_is_kept_apart():
    source = "assert f(1) == 2\nassert f(1) == 3\ndef test_a():\n    assert 2 == f(1)\n    assert f(1) == 1 + 2"
    converted = convert_tests(source, "f", ["assert f(1) == 4"])
    assert (converted.tests, converted.contrary) == (["assert f(1) == 2"], ["assert f(1) == 3", "assert f(1) == 4"])


def test_an_assert_of_the_function_that_cannot_be_read_is_told_from_those_of_others():
    source = "def test_a():\n    x = f(1)\n    assert x is not None\n    assert g(1) is None\n    assert f(2) == h(1)"
    assert +convert_tests(source, "f").unread == {
        ("assert f(1) is not None", "other_comparison"): 1, ("assert f(2) == h(1)", "not_literal"): 1,
    }  # fmt: skip


def test_a_changed_variable_is_unknown_again():
    source = "def test_a():\n    x = [1]\n    x.append(2)\n    assert f(x) == 3\n    y = {}\n    y['a'] = 1\n    assert f(y) == 1"
    converted = convert_tests(source, "f")
    assert converted.tests == []
    assert converted.skipped["arguments"] == 2


def test_expansion_is_bounded():
    doubling = "a = [1]\n" + "".join(f"a = [a, a]  # {i}\n" for i in range(16)) + "assert f(a) == 1"
    assert convert_tests(doubling, "f").tests == []
    many = "\n".join(f"assert f({i}) == {i}" for i in range(MAX_TESTS + 5))
    assert len(convert_tests(many, "f").tests) == MAX_TESTS
    grid = f"@pytest.mark.parametrize('x', {list(range(60))})\n@pytest.mark.parametrize('y', {list(range(60))})\n"
    assert len(convert_tests(grid + "def test_a(x, y):\n    assert f(x, y) == 0", "f").tests) == MAX_CASES


PIECES = st.sampled_from(
    ["def test_a():\n    ", "x = [1]\n", "assert f(x) == 1\n", "for x, in [(1,)]: assert f(x) == 1\n", "x = f\n", "f = 1\n",
     "@pytest.mark.parametrize()\ndef test_b(x): assert f(x) == 1\n", "class T:\n  def test(self): assert f(*x) == {**x}\n",
     "assert f(1) == (lambda x: x)(2)\n", "with a.raises(b): pass\n", "assert f(1) == x\n", "x = x\n", "\t", "\0", "(", "é"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=8).map("".join)))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_well_formed_tests_or_none(source):
    for test in convert_tests(source, "f").tests:
        (statement,) = parse_suite(test, "f")
        assert statement.invalid is None
        assert statement.stated is not None
