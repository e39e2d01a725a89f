"""A reply is cut to its first assert, with what stands before it."""

import pytest

from codea1_cli.evals.test_generation.split_tests import binds, first_test, is_plain, split_suite, wrap_test

ONE = "assert f(1) == 2"


@pytest.mark.parametrize(
    ("reply", "test"),
    [
        (ONE, ONE),
        (f"```python\n{ONE}\n```", ONE),
        (f"Here is a test:\n```python\n{ONE}\nassert f(2) == 3\n```\nIt is good.", ONE),
        (f"{ONE}\nThis one tests a thing.", ONE),
        (f"Sure!\n{ONE}", ONE),
        (f"{ONE}\n```", ONE),
        ("assert f(1) == 2, 'no'", "assert f(1) == 2, 'no'"),
        ("x = [1,\n 2]\nassert f(x) == 2", "x = [1, 2]\nassert f(x) == 2"),
        ("assert f(\n  1\n) == 2", ONE),
        ("import math\nassert f(math.pi) > 3", "import math\nassert f(math.pi) > 3"),
        ("def test_f():\n    x = 1\n    assert f(x) == 2\n    assert f(3) == 4\n", "x = 1\nassert f(x) == 2"),
        ("def test_f(x):\n    assert f(x) == 2", None),
        ("if True:\n    assert f(1) == 2", None),
        ("class T:\n    def test(self):\n        assert f(1) == 2", None),
        (f"<think>{ONE}</think>\nassert f(5) == 6", "assert f(5) == 6"),
        (f"<think>{ONE}", None),
        ("assert f(1) == ", None),
        ("There is nothing to assert here.", None),
        ("", None),
        ("```python\nassert f(7) == 8\n", "assert f(7) == 8"),
        (f"{ONE}\r\nassert f(2) == 3", ONE),
        (f"{ONE}\n\ndef broken(:", ONE),
    ],
)
def test_cut(reply, test):
    assert first_test(reply) == test


def test_a_suite_gives_one_test_an_assert_with_what_stands_before():
    text = "x = 1\nassert f(x) == 2\ny = 2\nassert f(x + y) == 4\nnot python at all\nassert f(0) == 1"
    assert split_suite(text) == [
        "x = 1\nassert f(x) == 2",
        "x = 1\ny = 2\nassert f(x + y) == 4",
        "x = 1\ny = 2\nassert f(0) == 1",
    ]


def test_suites_of_functions_are_taken_apart():
    text = "def test_a():\n    assert f(1) == 2\n\ndef test_b():\n    assert f(2) == 3\n"
    assert split_suite(text) == [ONE, "assert f(2) == 3"]


def test_many_asserts_take_no_time_and_nested_text_no_stack():
    assert len(split_suite("\n".join(f"assert f({i}) == {i}" for i in range(3000)))) == 3000
    assert len(split_suite("x = 1\nassert f(x) == 1\n" * 8000)) > 100
    assert first_test("x = 1\n" * 30_000 + "assert f(x)").endswith("assert f(x)")
    assert first_test("assert " + "(" * 5000 + ")" * 5000) is None
    assert split_suite("assert f(" + "[" * 3000) == []


def test_the_wrapped_test_ends_with_the_token():
    assert wrap_test(ONE, "abc") == f"def codea1_test():\n    {ONE}\n    return 'abc'"
    assert wrap_test("assert (", "abc") is None


@pytest.mark.parametrize(
    ("test", "own"),
    [
        (ONE, False),
        ("f = lambda x: 2\nassert f(1) == 2", True),
        ("def f(x):\n    return 2\nassert f(1) == 2", True),
        ("from other import f\nassert f(1) == 2", True),
        ("import other as f\nassert f(1) == 2", True),
        ("assert (f := (lambda x: 2))(1) == 2", True),
        ("assert [f for f in (1, 2)]", True),
        ("g = f\nassert g(1) == 2", False),
    ],
)
def test_whether_a_test_brings_its_own_function(test, own):
    assert binds(test, "f") is own


@pytest.mark.parametrize(
    ("test", "plain"),
    [
        (ONE, True),
        ("assert sorted(f([1, -2], key={'a': (1,)})) == [1.5]", True),
        ("assert f(1) and not f(2) or f(3)[0] in (1, 2), 'no'", True),
        ("x = 1\nassert f(x) == 2", False),
        ("assert f.__code__", False),
        ("assert f(1).real", False),
        ("assert g(1) == 2", False),
        ("assert exec('f = 1') is None", False),
        ("assert (x := f(1)) == 2", False),
        ("assert f(lambda: 1)", False),
        ("assert [f(i) for i in (1, 2)]", False),
        ("assert f(f'{exit()}')", False),
        ("assert setattr(f, 'x', 1) is None", False),
    ],
)
def test_tests_that_can_change_nothing(test, plain):
    assert is_plain(test, "f") is plain
