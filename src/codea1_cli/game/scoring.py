"""One problem of one step: from judged candidates to rewards, the Mistake Book's events, the suites to train on and
counts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from codea1_cli.game.judged_tests import JudgedCandidate, JudgedSuite, JudgedTest, read_book_test
from codea1_cli.game.mistake_book import Book, BookEvent, Entries
from codea1_cli.game.pool import JudgedPool, breaks_own, evidence, kills
from codea1_cli.game.rewards import SuiteCounts, SuiteReward, code_reward, nonprintable_share, suite_reward
from codea1_cli.game.rules import Game
from codea1_cli.sandbox.verdicts import Verdict

MAX_BOOK_TEST_CHARS = 4_000
"""Longer tests earn their rewards but are not kept: a book is replayed, stored and exported as source text."""

Stats = dict[str, float | int]
"""Counts of one problem's step and the rates computed from them; counts are summed over problems, rates recomputed."""


@dataclass(frozen=True)
class ProblemOutcome:
    """What a problem's step came to. Rewards are None where unscored; `suite_rewards[c][s]` belongs to suite s on
    candidate c, `suite_parts` likewise; `selected` are indices of candidates; `breaks[c][s]` are the ids of the pool's
    members that the suite breaks; None without a pool."""

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


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Whether a group's scored rewards differ: only such a group teaches anything."""
    return len({reward for reward in rewards if reward is not None}) > 1


def signal_share(groups: Sequence[Sequence[float | None]]) -> float | None:
    """The share of groups with a signal; None without a group."""
    return sum(map(has_signal, groups)) / len(groups) if groups else None


_RATES = {
    "loaded_share": ("candidates_loaded", "candidates"),
    "valid_share": ("valid", "asserts"),
    "stated_correctly_share": ("stated_correctly", "valid"),
    "kills_per_valid": ("kills", "valid_run"),
    "repeated_share": ("invalid_duplicate", "asserts"),
    "short_share": ("suites_short", "suites"),
    "distinct_share": ("distinct_calls", "valid"),
    "book_pass_rate": ("book_passed", "book_run"),
    "wrong_share": ("attacked_wrong", "attacked"),
    "exposed_share": ("suites_exposing", "suites_on_wrong"),
    "false_alarm_share": ("suites_false_alarm", "suites"),
    "asserts_per_suite": ("asserts", "suites"),
    "group_calls": ("group_calls_total", "attacked"),
}


def problem_stats(
    rules: Game, candidates: Sequence[JudgedCandidate], suite_rewards: Sequence[Sequence[float | None]]
) -> Stats:
    """Counts and rates of one problem.

    `valid_run`: valid tests run to a verdict on candidates that load; `kills`: those of them not passed;
    `suites_short`: suites of fewer than K asserts; `distinct_calls`: among all valid tests of the problem.
    `attacked`: candidates that suites were written for; `attacked_wrong`: those of them that fail a valid test.
    `suites_exposing`: suites on such a one of whose first K rightly stated tests it fails one. `suites_false_alarm`:
    suites that would reject a right program, because one of their first K valid tests states a wrong answer.
    `group_calls`: distinct valid calls in the suites of one candidate.
    """
    counts: Counter[str] = Counter(candidates=len(candidates))
    calls: set[str | None] = set()
    for candidate, rewards in zip(candidates, suite_rewards, strict=True):
        counts["candidates_loaded"] += candidate.loaded is True
        counts["candidates_unscored"] += candidate.loaded is None
        counts["suites"] += len(candidate.suites)
        counts["suites_unscored"] += sum(reward is None for reward in rewards)
        for test in candidate.book if rules.book else ():
            if candidate.loaded and test.verdict not in (None, Verdict.UNSCORED):
                counts["book_run"] += 1
                counts["book_passed"] += test.verdict is Verdict.PASSED
        if candidate.suites and candidate.loaded:
            wrong = evidence(candidate) is not None
            counts["attacked"] += 1
            counts["attacked_wrong"] += wrong
            counts["suites_on_wrong"] += wrong * len(candidate.suites)
            counts["suites_exposing"] += wrong * sum(breaks_own(rules, suite) for suite in candidate.suites)
            counts["group_calls_total"] += len({t.call for suite in candidate.suites for t in suite.tests if t.valid})
        for suite in candidate.suites:
            first = [test for test in suite.tests if test.valid][: rules.tests_per_suite]
            counts["suites_false_alarm"] += any(test.stated_correctly is False for test in first)
            counts["suites_short"] += len(suite.tests) < rules.tests_per_suite
            counts["asserts"] += len(suite.tests)
            for test in suite.tests:
                if not test.valid:
                    counts["invalid"] += 1
                    counts[f"invalid_{_kind(test.reason)}"] += 1
                    continue
                calls.add(test.call)
                counts["valid"] += 1
                counts["stated_correctly"] += test.stated_correctly is True
                if candidate.loaded and test.verdict is not None:
                    counts[f"verdict_{test.verdict.value}"] += 1
                    if test.verdict is not Verdict.UNSCORED:
                        counts["valid_run"] += 1
                        counts["kills"] += test.verdict is not Verdict.PASSED
    counts["distinct_calls"] = len(calls)
    return _with_rates(counts)


def _kind(reason: str | None) -> str:
    """The kind of a reason, less its detail: "raised: ValueError: ..." counts as raised."""
    return (reason or "unknown").partition(":")[0].replace(" ", "_")


def merge_stats(problems: Iterable[Mapping[str, float | int]]) -> Stats:
    """The counts of several problems added up, with the rates of the sums."""
    total: Counter[str] = Counter()
    for stats in problems:
        total.update({name: int(value) for name, value in stats.items() if name not in _RATES})
    return _with_rates(total)


def _with_rates(counts: Mapping[str, int]) -> Stats:
    """`counts` and each rate whose denominator is not 0; a rate over nothing is left out, not called 0."""
    stats: Stats = dict(counts)
    for name, (part, whole) in _RATES.items():
        if counts.get(whole):
            stats[name] = counts.get(part, 0) / counts[whole]
    return stats
