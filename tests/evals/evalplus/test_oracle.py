"""EvalPlus' rules on answers, case by case as its own loop decides them."""

import pytest

from codea1_cli.evals.evalplus.oracle import Rules, digit_distance, is_floats, poly, surface_area
from codea1_cli.evals.evalplus.values import NotAnAnswer


def right(answer, expected, *, atol=0.0, benchmark="mbpp", entry="f", arguments=()):
    return Rules(benchmark, entry, atol).right(answer, expected, arguments)


@pytest.mark.parametrize(
    ("answer", "expected", "verdict"),
    [
        ("1", "1", True),
        ("1.0", "1", True),
        ("True", "1", True),
        ("(1, 2)", "[1, 2]", False),
        ("{2, 1}", "{1, 2}", True),
        ("{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}", True),
        ("1.0000001", "1.0", True),  # a float forces a tolerance of 1e-6
        ("1.00001", "1.0", False),
        ("1", "1.0", True),
        ("[0.1, 0.30000000000000004]", "[0.1, 0.3]", True),
        ("(0.1, 0.30000000000000004)", "[0.1, 0.3]", False),
        ("[0.1]", "[0.1, 0.3]", False),
        ("[1, 0.30000000000000004]", "[1, 0.3]", False),  # not all floats: no tolerance
        ("nan", "nan", False),
        ("[nan]", "[nan]", False),
        ("inf", "inf", True),
        ("?", "?", False),
        ("None", "None", True),
        ("sub(1)", "1", True),
        ("sub(1.0000001)", "1.0", False),  # another type, so no tolerance
        ("scalar('<f8', 1.0)", "1.0", True),
        ("scalar('<f8', 1.0000001)", "1.0", False),
        ("array('<i8', (2,), [1, 2])", "[1, 2]", False),  # an array of truths is not true
        ("array('<i8', (1,), [3])", "[3]", True),
        ("Counter([('a', 1)])", "{'a': 1}", True),
        ("dict_keys([1, 2])", "{1, 2}", True),
        ("Fraction('1/2')", "0.5", True),
        ("(1+2j)", "(1+2j)", True),
        ("-1", "1", False),
        ("'a'", "'b'", False),
    ],
)
def test_answers(answer, expected, verdict):
    assert right(answer, expected) is verdict


def test_a_tolerance_stays_once_a_float_has_set_it():
    rules = Rules("mbpp", "f", 0.0)
    assert not rules.right("[1, 1.0000001]", "[1, 1.0]", ())
    assert rules.right("1.0000001", "1.0", ())
    assert rules.right("[1, 1.0000001]", "[1, 1.0]", ())


def test_a_task_with_a_tolerance():
    assert right("1.00001", "1.0", atol=1e-4)
    assert right("[1, 2.00001]", "[1, 2.0]", atol=1e-4)
    assert not right("'x'", "1.0", atol=1e-4)


def test_digests():
    assert right("#l ab", "#l ab")
    for pair in (("#l ab", "#l cd"), ("#ln ab", "#ln ab"), ("[1]", "#l ab")):
        with pytest.raises(NotAnAnswer):
            right(*pair)
    rules = Rules("mbpp", "f", 0.0)
    assert rules.right("#lf ab", "#lf ab", ())
    assert rules.atol == 1e-6


def test_special_tasks():
    assert right("[9]", "0", entry="are_equivalent")
    assert right("0", "7", entry="sum_div")
    assert not right("1", "7", entry="sum_div")
    assert right(str(surface_area(3, 4)), "33", entry="surface_Area", arguments=[3, 4])
    assert surface_area(3, 4) == 35  # 9 + 2 * 3 * sqrt(1.5 ** 2 + 4 ** 2)
    assert right("4", "0", entry="digit_distance_nums", arguments=[1, 23])
    assert digit_distance(1, 23) == 4
    assert poly([1, 2, 3], 2) == 17


def test_a_root_must_be_one_of_the_tasks_own_polynomial():
    ask = {"atol": 1e-4, "benchmark": "humaneval", "entry": "find_zero"}
    assert right("([1, 2], -0.5)", "([1, 2], -0.5)", arguments=[[1, 2]], **ask)
    assert right("([1, 2], -0.50001)", "([1, 2], -0.5)", arguments=[[1, 2]], **ask)
    assert not right("([1, 2], 0.5)", "([1, 2], -0.5)", arguments=[[1, 2]], **ask)
    assert not right("([], 3)", "([1, 2], -0.5)", arguments=[[1, 2]], **ask)  # the list was emptied
    assert not right("?", "([1, 2], -0.5)", arguments=[[1, 2]], **ask)


def test_floats():
    assert [is_floats(x) for x in (1.0, [1.0, 2.0], (1.0,), [], [1.0, 1], 1, "a", None)] == [
        True, True, True, False, False, False, False, False
    ]  # fmt: skip
