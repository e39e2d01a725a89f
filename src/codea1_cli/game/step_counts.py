"""Counts of one problem's step and the rates computed from them; counts are summed over problems, rates recomputed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from codea1_cli.game.judged_tests import JudgedCandidate
from codea1_cli.game.pool import breaks_own, evidence
from codea1_cli.game.rules import Game
from codea1_cli.sandbox.verdicts import Verdict

Stats = dict[str, float | int]

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
