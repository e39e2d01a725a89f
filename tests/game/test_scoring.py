"""A whole problem at once: bounds, shapes and what the numbers say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1_cli.game.judged_tests import JudgedCandidate
from codea1_cli.game.mistake_book import Book
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import merge_stats, score_problem
from tests.game.play import judge

REFERENCE = "def f(x):\n    return abs(x)"
PROGRAMS = [
    REFERENCE,
    "def f(x):\n    return x",
    "def f(x):\n    return 0",
    "def f(x):\n    raise ValueError",
    "def f(x:",
    "x = 1",
]
ODD = ["assert f('a') == 1", "assert f(1) != 2", "assert f("]
lines = st.sampled_from([*(f"assert f({n}) == {m}" for n in range(-4, 5) for m in (abs(n), 7)), *ODD])
replies = st.lists(lines, max_size=10).map("\n".join)
problems = st.lists(st.tuples(st.sampled_from(PROGRAMS), st.lists(replies, max_size=3)), max_size=4)
rules = st.builds(
    Game,
    mode=st.sampled_from(["default", "paper"]),
    tests_per_suite=st.integers(1, 6),
    alpha=st.floats(0, 1),
    book=st.booleans(),
    validation=st.booleans(),
    update_n=st.integers(1, 3),
)
books = st.lists(st.integers(-4, 4), unique=True, max_size=4).map(
    lambda ns: tuple((f"assert f({n}) == {abs(n)}", 2) for n in ns)
)


@given(rules, problems, books)
@settings(max_examples=150, deadline=None)
def test_every_outcome_is_in_bounds(
    rules: Game, problem: list[tuple[str, list[str]]], book: tuple[tuple[str, int], ...]
) -> None:
    replayed = Book(book).replay(rules.book_replay) if rules.book else ()
    candidates = [judge(rules, REFERENCE, "f", program, replies, replayed) for program, replies in problem]
    outcome = score_problem(rules, book, candidates, "p")
    assert len(outcome.code_rewards) == len(outcome.suite_rewards) == len(candidates)
    for candidate, reward, rewards, parts in zip(
        candidates, outcome.code_rewards, outcome.suite_rewards, outcome.suite_parts, strict=True
    ):
        assert reward is None or 0 <= reward <= 1
        assert rewards == [part.reward for part in parts]
        assert len(rewards) == len(candidate.suites)
        assert all(r is None or -1 <= r <= 1 for r in rewards)
        if candidate.code == REFERENCE and rules.validation:
            assert rules.paper or reward in (None, 1.0)
        if rules.paper:
            assert None not in rewards
    assert len(outcome.selected) <= rules.update_n
    assert len(set(outcome.selected)) == len(outcome.selected)
    assert Book(book if rules.book else ()).apply(outcome.events).entries == outcome.book_after
    assert rules.book or (outcome.events, outcome.book_after) == ((), ())
    assert outcome.stats.get("kills", 0) <= outcome.stats.get("valid_run", 0) <= outcome.stats.get("valid", 0)


def test_the_numbers_of_a_problem_are_counted() -> None:
    rules = Game(tests_per_suite=2)
    book = ("assert f(-9) == 9", "assert f(8) == 8")
    identity = PROGRAMS[1]
    suite = "assert f(-1) == 1\nassert f(-1) == 1\nassert f(2) == 3\nassert f('a') == 1"
    candidates = [
        judge(rules, REFERENCE, "f", identity, [suite, "assert f(2) == 2"], book),
        JudgedCandidate("f(", False),
    ]
    outcome = score_problem(rules, tuple((test, 1) for test in book), candidates, "p")
    expected = {
        "candidates": 2, "candidates_loaded": 1, "candidates_unscored": 0, "suites": 2, "suites_unscored": 0,
        "suites_short": 1, "asserts": 5, "valid": 3, "invalid": 2, "invalid_duplicate": 1, "invalid_raised": 1,
        "stated_correctly": 2, "valid_run": 3, "kills": 1, "distinct_calls": 2, "book_run": 2, "book_passed": 1,
        "verdict_failed": 1, "verdict_passed": 2, "attacked": 1, "attacked_wrong": 1, "suites_on_wrong": 2,
        "suites_exposing": 1, "suites_false_alarm": 1, "group_calls_total": 2,
    }  # fmt: skip
    rates = {
        "loaded_share": 1 / 2, "valid_share": 3 / 5, "stated_correctly_share": 2 / 3, "kills_per_valid": 1 / 3,
        "repeated_share": 1 / 5, "short_share": 1 / 2, "distinct_share": 2 / 3, "book_pass_rate": 1 / 2,
        "wrong_share": 1.0, "exposed_share": 1 / 2, "false_alarm_share": 1 / 2, "asserts_per_suite": 5 / 2,
        "group_calls": 2.0,
    }  # fmt: skip
    assert outcome.stats == pytest.approx({**expected, **rates})


def test_rates_of_several_problems_are_rates_of_the_sums() -> None:
    merged = merge_stats([{"kills": 1, "valid_run": 1, "kills_per_valid": 1.0}, {"kills": 0, "valid_run": 3}, {}])
    assert merged == {"kills": 1, "valid_run": 4, "kills_per_valid": 0.25}
    assert merge_stats([]) == {}


def test_a_reward_is_the_mean_over_the_suites() -> None:
    rules = Game(tests_per_suite=2, kill="own")
    judged = judge(
        rules, REFERENCE, "f", PROGRAMS[1], ["assert f(1) == 1\nassert f(-1) == 1", "assert f(2) == 2", "none"]
    )
    outcome = score_problem(rules, (), [judged])
    assert outcome.code_rewards == [pytest.approx((0.5 + 1.0) / 2)]
    assert outcome.suite_rewards == [[pytest.approx(0.5 + 0.5 * 0.5), pytest.approx(0.25), pytest.approx(0.0)]]


def test_without_the_book_its_tests_count_nowhere() -> None:
    rules = Game(tests_per_suite=2, book=False)
    judged = judge(rules, REFERENCE, "f", PROGRAMS[1], ["assert f(-1) == 1"], ["assert f(5) == 5"])
    outcome = score_problem(rules, (("assert f(5) == 5", 1),), [judged])
    assert outcome.code_rewards == [0.0]
    assert (outcome.events, outcome.book_after) == ((), ())
    assert "book_run" not in outcome.stats
