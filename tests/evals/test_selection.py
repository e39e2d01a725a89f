"""Choosing among candidates: what each selector prefers, and that nothing but the matrix decides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1_cli.evals.selection import SELECTORS, Assert, Matrix, agreement, choose, dual_agreement, gains, passes


def matrix(*rows: str, suites: int = 1, answers: tuple[str, ...] = ()) -> Matrix:
    """One row an assert, one column a candidate, `x` where it passes; of answers a letter is a value, `.` is none."""
    asserts = tuple(Assert(f"assert f({at}) == 0", suites, tuple(c == "x" for c in row)) for at, row in enumerate(rows))
    numbers = tuple(tuple(None if c == "." else ord(c) for c in row) for row in answers)
    return Matrix(len((rows or answers)[0]), asserts, numbers)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    n = draw(st.integers(1, 6))
    row = st.tuples(*[st.booleans()] * n)
    asserts = draw(st.lists(st.builds(Assert, st.just("a"), st.integers(1, 3), row), max_size=6))
    answers = draw(st.lists(st.tuples(*[st.sampled_from((None, 0, 1, 2))] * n), max_size=4))
    return Matrix(n, tuple(asserts), tuple(answers))


def reordered(one: Matrix, order: list[int]) -> Matrix:
    asserts = tuple(Assert(a.text, a.suites, tuple(a.passed[at] for at in order)) for a in one.asserts)
    return Matrix(one.candidates, asserts, tuple(tuple(row[at] for at in order) for row in one.answers))


@settings(max_examples=40)
@given(matrices().flatmap(lambda one: st.tuples(st.just(one), st.permutations(range(one.candidates)))))
def test_a_score_is_the_candidates_own_wherever_it_stands(drawn: tuple[Matrix, list[int]]) -> None:
    one, order = drawn
    turned = reordered(one, order)
    for score in (passes, agreement, dual_agreement):
        assert score(turned) == [score(one)[at] for at in order]
    shuffled = Matrix(one.candidates, one.asserts[::-1], one.answers[::-1])
    for name in SELECTORS:
        assert choose(shuffled, name) == choose(one, name), "the order of tests decides nothing"


@settings(max_examples=40)
@given(matrices())
def test_the_chosen_one_has_the_highest_score_and_is_the_first_of_equals(one: Matrix) -> None:
    for name, scores in SELECTORS.items():
        ranks = list(zip(*(score(one) for score in scores), strict=True))
        assert ranks.index(max(ranks)) == choose(one, name)


@settings(max_examples=40)
@given(matrices())
def test_what_passes_more_than_another_is_never_left_for_it(one: Matrix) -> None:
    mine = [{at for at, a in enumerate(one.asserts) if a.passed[c]} for c in range(one.candidates)]
    best = mine[choose(one, "tests")]
    assert not any(best < other for other in mine)


@settings(max_examples=40)
@given(matrices())
def test_a_test_that_all_pass_or_all_fail_changes_no_choice_by_tests(one: Matrix) -> None:
    for outcome in (True, False):
        more = Assert("b", 2, (outcome,) * one.candidates)
        assert choose(Matrix(one.candidates, (*one.asserts, more), one.answers), "tests") == choose(one, "tests")


def test_without_tests_or_answers_the_first_is_taken() -> None:
    assert {choose(Matrix(3), name) for name in SELECTORS} == {0}


def test_tests_count_passes_and_as_often_as_suites_hold_them() -> None:
    assert choose(matrix("x..", ".xx", ".x."), "tests") == 1
    wrong = Assert("assert f(0) == 1", 1, (True, False))
    right = Assert("assert f(0) == 2", 3, (False, True))
    assert choose(Matrix(2, (wrong, right)), "tests") == 1


def test_of_those_that_pass_as_many_the_one_that_most_agree_with() -> None:
    tied = matrix("xxx", answers=("abb",))
    assert (choose(tied, "tests"), choose(tied, "consensus")) == (1, 1)
    assert agreement(matrix(answers=("ab..b", "....."))) == [0, 1, 0, 0, 1]  # no answers do not agree


def test_codet_prefers_a_set_of_many_candidates_and_many_tests() -> None:
    # One candidate passes three tests (3), three pass the same two (6): consensus beats the single one.
    assert dual_agreement(matrix("x...", "xxxx", "x...", ".xxx")) == [3, 6, 6, 6]
    assert choose(matrix("x...", "xxxx", "x...", ".xxx"), "codet") == 1
    assert choose(matrix("x...", "xxxx", "x...", ".xxx"), "tests") == 0
    assert dual_agreement(matrix("x.", suites=5)) == [1, 0], "an assert counts once"


def test_what_a_choice_is_worth() -> None:
    passed = {"a": [True, False], "b": [False, True], "c": [False, False], "d": [True, True]}
    found = gains(passed, {"a": 0, "b": 0, "c": 1, "d": 1, "unknown": 0})
    assert found["tasks"] == 4
    means = {key: found[key]["mean"] for key in ("pass@1", "selected", "oracle", "gain", "gap_closed")}
    assert means == {"pass@1": 0.5, "selected": 0.5, "oracle": 0.75, "gain": 0.0, "gap_closed": 0.0}
    perfect = gains(passed, {"a": 0, "b": 1, "c": 0, "d": 0})
    assert perfect["gap_closed"]["mean"] == 1.0
    assert perfect["gap_closed"]["low"] < 1.0, "two tasks do not make sure of it"
    assert perfect["gain"] == pytest.approx({"mean": 0.25, "low": 0.0, "high": 0.5, "level": 0.95})


def test_a_figure_over_nothing_is_none() -> None:
    assert gains({}, {"a": 0}) == {"tasks": 0}
    assert gains({"a": [True, True]}, {"a": 1})["gap_closed"] is None
