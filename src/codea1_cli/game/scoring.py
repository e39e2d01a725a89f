"""One problem of one step: from judged candidates to rewards, the Mistake Book's events and the suites to train on."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from codea1_cli.game.judged_tests import JudgedCandidate, JudgedSuite, JudgedTest, read_book_test
from codea1_cli.game.mistake_book import Book, BookEvent, Entries
from codea1_cli.game.pool import JudgedPool, kills
from codea1_cli.game.rewards import SuiteCounts, SuiteReward, code_reward, nonprintable_share, suite_reward
from codea1_cli.game.rules import Game
from codea1_cli.game.step_counts import Stats, problem_stats
from codea1_cli.sandbox.verdicts import Verdict

MAX_BOOK_TEST_CHARS = 4_000
"""Longer tests earn their rewards but are not kept: a book is replayed, stored and exported as source text."""


@dataclass(frozen=True)
class ProblemOutcome:
    """What a problem's step came to. Rewards are None where unscored; `suite_rewards[c][s]` belongs to suite s on
    candidate c, `suite_parts` likewise; `selected` are indices of candidates."""

    code_rewards: list[float | None]
    suite_rewards: list[list[float | None]]
    suite_parts: list[list[SuiteReward]]
    selected: list[int]
    events: tuple[BookEvent, ...]
    book_after: Entries
    stats: Stats = field(default_factory=dict)
    breaks: list[list[tuple[str, ...]]] | None = None


def score_problem(
    rules: Game,
    book_entries: Entries,
    candidates: Sequence[JudgedCandidate],
    problem_id: str = "",
    pool: JudgedPool | None = None,
) -> ProblemOutcome:
    """Score all candidates of one problem and their suites; `pool` where the game has one."""
    if not rules.book:
        book_entries = ()
    scored = [_score(rules, candidate, pool) for candidate in candidates]
    parts = [suite_parts for _, suite_parts in scored]
    suite_rewards = [[part.reward for part in suite_parts] for suite_parts in parts]
    book = Book(book_entries)
    events: tuple[BookEvent, ...] = ()
    if rules.book:
        loading = [candidate if candidate.loaded else JudgedCandidate("", False) for candidate in candidates]
        passed = [[test.source for test in c.book if test.verdict is Verdict.PASSED] for c in loading]
        failed = [[test.source for suite in c.suites for test in suite.tests if _kept(rules, test)] for c in loading]
        book, events = book.update(problem_id, passed, failed)
    return ProblemOutcome(
        code_rewards=[reward for reward, _ in scored],
        suite_rewards=suite_rewards,
        suite_parts=parts,
        selected=select(rules, suite_rewards),
        events=events,
        book_after=book.entries,
        stats=problem_stats(rules, candidates, suite_rewards),
        breaks=None if pool is None else [[pool.breaks_ids(rules, s) for s in c.suites] for c in candidates],
    )


def _score(rules: Game, candidate: JudgedCandidate, pool: JudgedPool | None) -> tuple[float | None, list[SuiteReward]]:
    """The candidate's reward and its suites' rewards with their parts."""
    book = candidate.book if rules.book else ()
    shares: list[float | None] = []
    parts = []
    kill_terms = [None] * len(candidate.suites) if pool is None else kills(rules, candidate, pool)
    for suite, kill in zip(candidate.suites, kill_terms, strict=True):
        counts = _counts(rules, candidate, suite, book)
        penalty = nonprintable_share(suite.text)
        part = suite_reward(rules, counts, loads=bool(candidate.loaded), penalty=penalty, kill=kill)
        # A suite is not to blame for a candidate that does not load, nor for a sandbox that fails.
        scorable = rules.paper or (bool(candidate.loaded) and not suite.unscored)
        parts.append(part if scorable else SuiteReward(None, part.validity, part.adversarial, part.penalty))
        share = code_reward(rules, counts) if scorable else None
        shares.append(0.0 if share is None and rules.paper else share)
    if candidate.loaded is False or (rules.paper and not candidate.loaded):
        return 0.0, parts
    counting = [share for share in shares if share is not None]
    if candidate.loaded is None or not counting:
        return None, parts
    return sum(counting) / len(counting), parts


def _counts(rules: Game, candidate: JudgedCandidate, suite: JudgedSuite, book: Sequence[JudgedTest]) -> SuiteCounts:
    valid = [test for test in suite.tests if test.valid]
    passes = [bool(candidate.loaded) and test.verdict is Verdict.PASSED for test in valid]
    wrong = sum(test.stated_correctly is False for test in valid)
    replayed = book if rules.paper else [test for test in book if test.valid and test.verdict is not Verdict.UNSCORED]
    return SuiteCounts(
        valid=len(valid),
        invalid=len(suite.tests) - len(valid) + wrong,
        early_fails=passes[: rules.tests_per_suite].count(False),
        passes=passes.count(True),
        book_total=len(replayed),
        book_passes=sum(bool(candidate.loaded) and test.verdict is Verdict.PASSED for test in replayed),
    )


def _kept(rules: Game, test: JudgedTest) -> bool:
    """Whether a new test is a mistake for the book: valid, run to a verdict, and not passed."""
    failed = test.valid and test.verdict is not Verdict.PASSED
    if not failed or not (rules.paper or test.verdict not in (None, Verdict.UNSCORED)):
        return False
    # A value may have no source of its own, or too long a one: the book must be able to read the test back.
    return len(test.source) <= MAX_BOOK_TEST_CHARS and read_book_test(test.source) is not None


def population_std(values: Sequence[float]) -> float:
    """The population standard deviation, 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5


def select(rules: Game, suite_rewards: Sequence[Sequence[float | None]]) -> list[int]:
    """Indices of the `update_n` candidates whose suite rewards vary most; ties go to the lowest index.

    A candidate with fewer than two scored suites has no group to compare and is left out, so there may be fewer.
    """
    spread = []
    for index, rewards in enumerate(suite_rewards):
        scored = [reward for reward in rewards if reward is not None]
        if len(scored) >= 2 or (rules.paper and scored):
            # Rounded: rewards in another order differ in the last bit, which must not decide a tie.
            spread.append((-round(population_std(scored), 12), index))
    return [index for _, index in sorted(spread)[: rules.update_n]]
