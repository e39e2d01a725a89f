import pytest
from pydantic import ValidationError

from codea1_cli.extract import parse_suite
from codea1_cli.game.judged_tests import (
    JudgedCandidate,
    calls_for_reference,
    judged_book,
    judged_suite,
    read_book_test,
    stated_answers,
)
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import MAX_BOOK_TEST_CHARS, score_problem
from codea1_cli.sandbox.verdicts import Verdict
from tests.game.play import Expected, Given, judge

RULES = Game(tests_per_suite=4)
UNVALIDATED = RULES.model_copy(update={"validation": False})
REFERENCE = "def f(x):\n    return x + 1"


def test_each_distinct_call_is_asked_once_the_book_first() -> None:
    suites = [
        parse_suite("assert f(1) == 2\nassert f( 1 ) == 3\nassert g(1) == 1", "f"),
        parse_suite("assert f(2) == 3", "f"),
    ]
    book = [read_book_test("assert f(2) == 3"), read_book_test("assert f(3) == 4")]
    assert calls_for_reference(RULES, suites, [t for t in book if t]) == ["f(2)", "f(3)", "f(1)"]
    assert calls_for_reference(UNVALIDATED, suites, [t for t in book if t]) == []


def test_asserts_past_the_cap_are_neither_asked_nor_judged() -> None:
    suite = parse_suite("\n".join(f"assert f({n}) == 1" for n in range(20)), "f")
    calls = calls_for_reference(RULES, [suite])
    assert len(calls) == 8
    expected = {call: Expected(True, None, 1, "1") for call in calls}
    assert [test.call for test in judged_suite(RULES, "", suite, expected, {}, lambda a, b: a == b).tests] == calls


def test_a_judged_test_says_all_there_is_to_say() -> None:
    reply = (
        "assert f(1) == 2\nassert f(2) == 9\nassert f(1)==2\nassert f('a') == 1\nassert f(3) == A(4)\nassert f(1) != 2"
    )
    judged = judge(RULES, REFERENCE, "f", "def f(x):\n    return 2", [reply])
    right, wrong, again, raising, opaque, other = judged.suites[0].tests
    assert (right.source, right.valid, right.stated_correctly, right.verdict) == (
        "assert f(1) == 2",
        True,
        True,
        Verdict.PASSED,
    )
    assert (wrong.source, wrong.expected, wrong.got) == ("assert f(2) == 3", "3", "2")
    assert (wrong.valid, wrong.stated_correctly, wrong.verdict) == (True, False, Verdict.FAILED)
    assert (again.valid, again.reason, again.verdict) == (False, "duplicate", None)
    assert not raising.valid
    assert str(raising.reason).startswith("raised")
    assert (opaque.valid, opaque.stated_correctly) == (True, False)
    assert (other.valid, other.reason, other.source) == (False, "other_comparison", "assert f(1) != 2")


def test_a_suite_is_unscored_when_the_sandbox_failed_on_either_side() -> None:
    suite = parse_suite("assert f(1) == 2\nassert f(2) == 3", "f")
    fine = {"f(1)": Expected(True, None, 2, "2"), "f(2)": Expected(True, None, 3, "3")}
    passed = {call: Given(Verdict.PASSED) for call in fine}

    def unscored(expected: dict[str, Expected], given: dict[str, Given]) -> bool:
        return judged_suite(RULES, "", suite, expected, given, lambda a, b: a == b).unscored

    assert not unscored(fine, passed)
    assert not unscored(fine, {})
    assert unscored({**fine, "f(2)": Expected(False, "unscored")}, passed)
    assert unscored(fine, {**passed, "f(1)": Given(Verdict.UNSCORED)})


def test_the_models_own_answer_counts_with_validation_off() -> None:
    reply = "assert f(1) == 5\nassert f(1) == 2\nassert f(2) == g()\nassert f(3) == 4"
    judged = judge(UNVALIDATED, "raise SystemExit", "f", REFERENCE, [reply])
    first, again, opaque, last = judged.suites[0].tests
    assert (first.source, first.valid, first.stated_correctly, first.verdict) == (
        "assert f(1) == 5",
        True,
        True,
        Verdict.FAILED,
    )
    assert (again.valid, again.reason) == (False, "duplicate")
    assert (opaque.valid, opaque.reason) == (False, "not_foldable")
    assert last.verdict is Verdict.PASSED


def test_two_suites_may_state_two_answers_with_validation_off() -> None:
    judged = judge(UNVALIDATED, "", "f", REFERENCE, ["assert f(1) == 5", "assert f(1) == 2"])
    assert [suite.tests[0].verdict for suite in judged.suites] == [Verdict.FAILED, Verdict.PASSED]
    outcome = score_problem(UNVALIDATED, (), [judged])
    assert [event.test for event in outcome.events] == ["assert f(1) == 5"]


def test_the_book_replays_what_it_holds_with_validation_off() -> None:
    judged = judge(UNVALIDATED, "", "f", REFERENCE, [""], book=["assert f(1) == 5", "assert f(2) == 3"])
    assert [test.verdict for test in judged.book] == [Verdict.FAILED, Verdict.PASSED]


def test_the_first_statement_of_a_call_is_its_answer() -> None:
    assert stated_answers(parse_suite("assert f(1) == g()\nassert f(1) == 5\nassert f(1) == 2", "f"))["f(1)"].value == 5


def test_a_book_test_keeps_its_text() -> None:
    test = read_book_test("assert f(1) == 2.0")
    assert test is not None
    (judged,) = judged_book([test], {"f(1)": Expected(True, None, 2, "2")}, {"f(1)": Given(Verdict.PASSED)})
    assert judged.source == "assert f(1) == 2.0"


@pytest.mark.parametrize(
    "text", ["", "f(1)", "assert f(1)", "assert f(1) != 2", "assert f(1) == 2; x = 1", "assert (", "\0"]
)
def test_what_is_no_book_test_is_refused(text: str) -> None:
    assert read_book_test(text) is None


def test_what_the_book_could_not_read_back_is_not_kept() -> None:
    long = "def f(x):\n    return 'a' * x"
    reply = f"assert f(1) == 'a'\nassert f({MAX_BOOK_TEST_CHARS}) == 'a'"
    judged = judge(RULES, long, "f", "def f(x):\n    return ''", [reply])
    outcome = score_problem(RULES, (), [judged])
    assert outcome.stats["kills"] == 2
    assert [event.test for event in outcome.events] == ["assert f(1) == 'a'"]
    odd = judge(RULES, "class A: pass\ndef f(x): return A()", "f", "def f(x):\n    return ''", ["assert f(1) == 2"])
    assert [test.valid for test in odd.suites[0].tests] == [True]
    assert score_problem(RULES, (), [odd]).events == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "other"},
        {"alpha": -0.1},
        {"alpha": 1.5},
        {"alpha": float("nan")},
        {"tests_per_suite": 0},
        {"max_tests_per_suite": 0},
        {"book_replay": -1},
        {"update_n": 0},
    ],
)
def test_impossible_rules_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        Game(**changes)  # type: ignore[arg-type]
    (refused,) = caught.value.errors()
    assert refused["loc"] == tuple(changes)
    assert refused["msg"].startswith("Input should be ")


def test_the_cap_is_twice_k_by_default_and_none_in_paper_mode() -> None:
    assert (Game().cap, Game(mode="paper").cap) == (16, None)
    assert Game(tests_per_suite=3).cap == 6
    assert Game(max_tests_per_suite=9).cap == Game(mode="paper", max_tests_per_suite=9).cap == 9


def test_a_candidate_without_suites_or_book_is_no_error() -> None:
    outcome = score_problem(
        RULES, (), [JudgedCandidate("", True), JudgedCandidate("", False), JudgedCandidate("", None)]
    )
    assert outcome.code_rewards == [None, 0.0, None]
    assert score_problem(RULES, (), []).code_rewards == []
