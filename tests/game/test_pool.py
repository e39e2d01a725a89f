"""The pool of wrong programs: who is a member, and what a suite earns by it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.game.judged_tests import JudgedCandidate, JudgedSuite, JudgedTest
from codea1_cli.game.pool import (
    JudgedPool,
    PoolMember,
    changed_pool,
    evidence,
    judged_pool,
    kills,
    wrong_candidates,
)
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import score_problem
from codea1_cli.sandbox.verdicts import Verdict

RULES = Game(tests_per_suite=2, trust=False)
PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


def asserted(call: str, verdict: Verdict | None = PASSED, stated: bool = True, valid: bool = True) -> JudgedTest:
    return JudgedTest(f"assert {call} == 1", call, valid, stated_correctly=stated, verdict=verdict, expected="1")


def suite(*tests: JudgedTest) -> JudgedSuite:
    return JudgedSuite("", tests)


def member(code: str, step: int = 1) -> PoolMember:
    return PoolMember(code, "assert f(0) == 1", False, step)


def pool_of(*broken_by: str) -> JudgedPool:
    """A pool whose member i does not pass the calls in `broken_by[i]`, one letter each."""
    answers = {
        f"p{i}": {call: (FAILED if call in calls else PASSED, f"{i}" if call in calls else "1") for call in "abcd"}
        for i, calls in enumerate(broken_by)
    }
    return judged_pool([member(code) for code in answers], answers.get, 8)


def test_only_the_first_k_rightly_stated_tests_break_a_member() -> None:
    pool = pool_of("a", "ab", "c", "d")
    candidate = JudgedCandidate(
        "x",
        True,
        suites=(
            suite(asserted("a"), asserted("b")),
            suite(asserted("d", stated=False), asserted("a", valid=False), asserted("c"), asserted("a"), asserted("d")),
            suite(),
        ),
    )
    assert kills(RULES, candidate, pool) == [0.5, 0.75, 0.0]  # of the second, c and a count: p2, p0 and p1
    assert pool.breaks_ids(RULES, candidate.suites[0]) == (pool.members[0].id, pool.members[1].id)


def test_a_marginal_kill_counts_less_the_more_siblings_make_it() -> None:
    pool = pool_of("a", "b")
    candidate = JudgedCandidate("x", True, suites=(suite(asserted("a")), suite(asserted("a"), asserted("b")), suite()))
    assert kills(Game(tests_per_suite=2, kill="marginal", trust=False), candidate, pool) == [0.25, 0.75, 0.0]


def test_a_kill_counts_as_far_as_the_suite_can_be_trusted() -> None:
    rules = Game(tests_per_suite=2)
    wrong, right = asserted("b", stated=False), asserted("a")
    candidate = JudgedCandidate(
        "x", True, suites=(suite(right, wrong), suite(right), suite(wrong), suite(right, asserted("b"), wrong))
    )
    assert kills(rules, candidate, pool_of("a", "a", "ab", "c")) == [0.375, 0.75, 0.0, 0.75]
    breaks = suite(asserted("a", Verdict.FAILED), wrong)
    assert kills(rules, JudgedCandidate("x", True, suites=(breaks,)), JudgedPool()) == [1.0]


def test_without_a_pool_the_own_candidate_counts_and_then_validity_alone() -> None:
    breaks, bland = suite(asserted("a", Verdict.TIMEOUT)), suite(asserted("b"))
    candidate = JudgedCandidate("x", True, suites=(breaks, bland))
    assert kills(RULES, candidate, JudgedPool()) == [1.0, 0.0]
    outcome = score_problem(RULES, (), [candidate], pool=JudgedPool())
    assert outcome.suite_rewards == [[pytest.approx(0.3 * 0.5 + 0.7), pytest.approx(0.3 * 0.5)]]


def test_the_reward_weighs_validity_against_the_share_of_the_pool() -> None:
    candidate = JudgedCandidate("x", True, suites=(suite(asserted("a"), asserted("c")),))
    for rules, expected in ((RULES, 0.3 + 0.7 * 0.5), (replace_alpha(0.15), 0.15 + 0.85 * 0.5)):
        outcome = score_problem(rules, (), [candidate], pool=pool_of("a", "b"))
        assert outcome.suite_rewards == [[pytest.approx(expected)]]
        assert outcome.suite_parts[0][0].adversarial == 0.5


def replace_alpha(alpha: float) -> Game:
    return RULES.model_copy(update={"alpha": alpha})


def test_who_is_known_to_be_wrong_and_why() -> None:
    right = JudgedCandidate("right", True, own=(asserted("a"),), suites=(suite(asserted("b")),))
    slow = JudgedCandidate("slow", True, suites=(suite(asserted("b", Verdict.TIMEOUT)),))
    invalid = JudgedCandidate("invalid", True, suites=(suite(asserted("b", FAILED, valid=False)),))
    lost = JudgedCandidate("lost", True, suites=(suite(asserted("b", Verdict.UNSCORED)),))
    by_own = JudgedCandidate("own", True, own=(asserted("a", FAILED),), suites=(suite(asserted("b", FAILED)),))
    by_book = JudgedCandidate("book", True, book=(asserted("c", Verdict.RAISED),))
    by_suite = JudgedCandidate("suite", True, suites=(suite(asserted("b", FAILED, stated=False)),))
    broken = JudgedCandidate("broken", False, suites=(suite(asserted("b", FAILED)),))
    surrogate = replace(by_suite, code="'\ud800'")
    everybody = [right, slow, invalid, lost, by_own, by_book, by_suite, broken, by_own, surrogate]
    assert [evidence(one) is None for one in (right, slow, invalid, lost)] == [True] * 4
    assert [(m.code, m.evidence, m.own, m.step) for m in wrong_candidates(everybody, 7)] == [
        ("own", "assert a == 1", True, 7),
        ("book", "assert c == 1", False, 7),
        ("suite", "assert b == 1", False, 7),
    ]


def test_members_that_answer_alike_are_one_and_the_newest_stay() -> None:
    answers = {
        "one": {"a": (FAILED, "3"), "b": (PASSED, "1")},
        "same": {"a": (FAILED, "3")},
        "other value": {"a": (FAILED, "4")},
        "nothing in common": {"z": (FAILED, "3")},
        "slow": {"y": (Verdict.TIMEOUT, "")},
        "lost": {"x": (Verdict.UNSCORED, "")},
    }
    members = [member(code) for code in (*answers, "unknown")]
    pool = judged_pool(members, answers.get, 8)
    assert [m.code for m in pool.members] == ["one", "other value", "nothing in common"]
    assert [m.code for m in pool.unjudged] == ["lost"]
    assert [m.code for m in judged_pool(members, answers.get, 2).members] == ["one", "other value"]


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcdef")), st.lists(st.sampled_from("abcdef"), unique=True))))
def test_a_pool_is_the_fold_of_its_changes(steps) -> None:
    pool: tuple[PoolMember, ...] = ()
    for number, (gone, new) in enumerate(steps):
        fresh = [member(code, number) for code in new if code not in {m.code for m in pool} or code in gone]
        judged = JudgedPool(tuple(fresh) + tuple(m for m in pool if m.code not in gone))
        after = judged.after(pool)
        assert set(after) == set(judged.members)
        assert after == changed_pool(pool, {m.code for m in set(pool) - set(after)}, fresh)
        pool = after


def test_a_pool_is_not_for_the_papers_game() -> None:
    assert not Game(mode="paper").has_pool
    assert not Game(validation=False).has_pool
    assert Game(mode="paper").resolved_alpha == Game(kill="own").resolved_alpha == 0.5
    for wrong in (
        {"mode": "paper", "kill": "pool"},
        {"validation": False, "kill": "marginal"},
        {"mode": "paper", "sparring": 1},
    ):
        with pytest.raises(ValueError, match="kill"):
            Game(**wrong)
