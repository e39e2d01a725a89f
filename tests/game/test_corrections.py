"""Each choice of the published code that is a defect: ours by default, theirs in paper mode."""

from dataclasses import replace

import pytest

from codea1_cli.game.judged_tests import JudgedCandidate, JudgedSuite, JudgedTest
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import score_problem
from codea1_cli.sandbox.verdicts import Verdict
from tests.game.play import judge

DEFAULT = Game(tests_per_suite=4, kill="own")
PAPER = Game(mode="paper", tests_per_suite=4)
REFERENCE = "def f(x):\n    return x + 1"
WRONG = "def f(x):\n    return x + (x < 3)"  # right for 0 to 2
NOT_LOADING = "def f(x:\n"
GOOD = "assert f(1) == 2\nassert f(5) == 6\nassert f(2) == 3\nassert f(6) == 7"  # kills with 5 and 6
EMPTY = "I cannot think of any."
BOOK = ("assert f(9) == 10", "assert f(0) == 1")


def candidate(rules: Game, program: str, *replies: str, book: tuple[str, ...] = ()) -> JudgedCandidate:
    return judge(rules, REFERENCE, "f", program, replies, book)


def scored(rules: Game, *candidates: JudgedCandidate):
    return score_problem(rules, (), candidates)


def with_verdict(judged: JudgedCandidate, verdict: Verdict, suite: int, test: int) -> JudgedCandidate:
    """The same candidate with one test's verdict replaced."""
    suites = list(judged.suites)
    tests = list(suites[suite].tests)
    tests[test] = replace(tests[test], verdict=verdict)
    suites[suite] = JudgedSuite(suites[suite].text, tuple(tests), verdict is Verdict.UNSCORED)
    return replace(judged, suites=tuple(suites))


# (a) a candidate that does not load


def test_a_candidate_that_does_not_load_fails_everything_and_has_no_suites() -> None:
    outcome = scored(DEFAULT, candidate(DEFAULT, NOT_LOADING), candidate(DEFAULT, REFERENCE, GOOD))
    assert outcome.code_rewards == [0.0, 1.0]
    assert outcome.suite_rewards[0] == []
    assert outcome.stats["candidates_loaded"] == 1


def test_its_suites_are_unscored_where_there_are_any_and_zero_in_paper_mode() -> None:
    dirty = GOOD + " # é"
    ours = scored(DEFAULT, candidate(DEFAULT, NOT_LOADING, GOOD, dirty))
    theirs = scored(PAPER, candidate(PAPER, NOT_LOADING, GOOD, dirty))
    assert ours.suite_rewards == [[None, None]]
    assert theirs.suite_rewards == [[0.0, pytest.approx(-1 / len(dirty))]]
    assert ours.code_rewards == theirs.code_rewards == [0.0]
    assert ours.selected == []
    assert theirs.selected == [0]


def test_what_does_not_load_teaches_the_book_nothing() -> None:
    for rules in (DEFAULT, PAPER):
        assert scored(rules, candidate(rules, NOT_LOADING, GOOD, book=BOOK)).events == ()


# (b) a suite without a valid test


def test_a_suite_without_a_valid_test_does_not_count_for_the_candidate() -> None:
    ours = scored(DEFAULT, candidate(DEFAULT, REFERENCE, GOOD, EMPTY))
    theirs = scored(PAPER, candidate(PAPER, REFERENCE, GOOD, EMPTY))
    assert ours.code_rewards == [1.0]
    assert theirs.code_rewards == [0.5]
    assert ours.suite_rewards == theirs.suite_rewards == [[pytest.approx(0.5), 0.0]]


def test_a_candidate_with_no_suite_that_counts_is_unscored() -> None:
    assert scored(DEFAULT, candidate(DEFAULT, REFERENCE, EMPTY, EMPTY)).code_rewards == [None]
    assert scored(PAPER, candidate(PAPER, REFERENCE, EMPTY, EMPTY)).code_rewards == [0.0]
    assert scored(DEFAULT, candidate(DEFAULT, REFERENCE)).code_rewards == [None]


def test_with_a_book_such_a_suite_counts_by_the_book_alone() -> None:
    for rules in (DEFAULT, PAPER):
        assert scored(rules, candidate(rules, WRONG, EMPTY, book=BOOK)).code_rewards == [0.5]


# (c) a sandbox that fails


def test_a_suite_on_which_the_sandbox_failed_is_unscored() -> None:
    ours = scored(DEFAULT, with_verdict(candidate(DEFAULT, REFERENCE, GOOD, GOOD), Verdict.UNSCORED, 0, 1))
    theirs = scored(PAPER, with_verdict(candidate(PAPER, REFERENCE, GOOD, GOOD), Verdict.UNSCORED, 0, 1))
    assert ours.code_rewards == [1.0]
    assert ours.suite_rewards == [[None, pytest.approx(0.5)]]
    assert ours.stats["suites_unscored"] == 1
    assert ours.events == ()
    assert theirs.code_rewards == [pytest.approx((0.75 + 1) / 2)]
    assert theirs.suite_rewards == [[pytest.approx(0.5 + 0.5 / 4), pytest.approx(0.5)]]
    assert [event.test for event in theirs.events] == ["assert f(5) == 6"]


def test_a_candidate_that_could_not_be_judged_is_unscored() -> None:
    broken = JudgedCandidate(REFERENCE, None, (), (JudgedSuite(GOOD, (), True),))
    ours, theirs = scored(DEFAULT, broken), scored(PAPER, broken)
    assert (ours.code_rewards, ours.suite_rewards) == ([None], [[None]])
    assert (theirs.code_rewards, theirs.suite_rewards) == ([0.0], [[0.0]])
    assert ours.stats["candidates_unscored"] == 1


def test_an_unscored_test_of_the_book_is_left_out_of_its_rate() -> None:
    judged = candidate(DEFAULT, WRONG, EMPTY, book=BOOK)
    book = (replace(judged.book[0], verdict=Verdict.UNSCORED), judged.book[1])
    assert scored(DEFAULT, replace(judged, book=book)).code_rewards == [1.0]
    assert scored(PAPER, replace(judged, book=book)).code_rewards == [0.5]


def test_a_book_test_that_the_reference_no_longer_answers_is_left_out() -> None:
    judged = candidate(DEFAULT, REFERENCE, EMPTY, book=(*BOOK, "assert f('a') == 1"))
    assert [test.valid for test in judged.book] == [True, True, False]
    assert scored(DEFAULT, judged).code_rewards == [1.0]


# (d) malformed asserts


def test_other_comparisons_are_invalid_and_counted() -> None:
    reply = "assert f(5) != 6\nassert f(5) is 6\nassert f(1) == 2\nassert g(1) == 2"
    ours = scored(DEFAULT, candidate(DEFAULT, WRONG, reply))
    theirs = scored(PAPER, candidate(PAPER, WRONG, reply))
    assert ours.suite_parts[0][0].validity == pytest.approx(0.25)  # 1 of 4, 3 invalid
    assert ours.stats["invalid_other_comparison"] == 2
    assert ours.stats["invalid_other_call"] == 1
    assert ours.suite_rewards == [[pytest.approx(0.5 * 0.25)]]
    # Both wrong operators become f(5) == 6, one of them a repetition; g(1) raises.
    assert theirs.suite_rewards == [[pytest.approx(0.5 * 0.5 + 0.5 * 0.25)]]


def test_asserts_past_the_cap_are_ignored() -> None:
    reply = "\n".join(f"assert f({n}) == {n + 1}" for n in range(1, 13))  # fails from 3 on
    ours = scored(DEFAULT, candidate(DEFAULT, WRONG, reply))
    theirs = scored(PAPER, candidate(PAPER, WRONG, reply))
    assert ours.stats["asserts"] == 8
    assert ours.code_rewards == [pytest.approx(2 / 8)]
    assert theirs.stats["asserts"] == 12
    assert theirs.code_rewards == [pytest.approx(2 / 12)]
    assert ours.suite_rewards == theirs.suite_rewards == [[pytest.approx(0.5 + 0.5 * 2 / 4)]]
    explicit = PAPER.model_copy(update={"max_tests_per_suite": 5})
    assert scored(explicit, candidate(explicit, WRONG, reply)).stats["asserts"] == 5


# (e) is the judge's: no value is compared here but through what it hands in


def test_a_lying_equality_does_not_reach_the_game() -> None:
    class Always:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared outside the judge")

        __hash__ = None  # type: ignore[assignment]

    test = JudgedTest("assert f(1) == 2", "f(1)", True, None, True, Verdict.FAILED, "2", str(Always))
    judged = JudgedCandidate(WRONG, True, (), (JudgedSuite(GOOD, (test,)),))
    assert scored(DEFAULT, judged).code_rewards == [0.0]
