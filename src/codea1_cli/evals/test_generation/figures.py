"""Figures of generated tests, from rows of counts. No program runs here.

published: as Code-A1's authors run UnLeakedTestBench. The tests of k rounds are statements, each passes or fails by
itself; mut@k is about the functions of a fixed sample whose k tests all pass, and about no others.

one-shot: suites of K tests as in training, judged as in training, scored on every function. A suite's right tests are
those that a user could keep: the call is answered, it is not a repetition, and the answer stated is the function's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codea1_cli.errors import counted
from codea1_cli.evals.statistics import share_interval
from codea1_cli.evals.test_generation.execution import Outcome
from codea1_cli.sandbox.base import Limits

PUBLISHED, ONE_SHOT = PROTOCOLS = ("published", "one-shot")
_COVERAGE = ("lines", "all_lines", "branches", "all_branches")
_FIELDS = {
    PUBLISHED: ("id", "outcomes", *_COVERAGE, "mutants", "killed", "unscored", "tests", "details"),
    ONE_SHOT: (
        *("id", "asserts", "valid", "right", "validity", "mutants", "killed", "killed_by_calls", "wrong", "exposed"),
        *(*_COVERAGE, "unscored", "invalid", "tests"),
    ),
}


@dataclass(frozen=True)
class Scoring:
    """What scores depend on. `k` tests in rounds, `tests_per_suite` in a suite; seconds as in `Limits` and
    `MutantLimits`."""

    k: int = 5
    tests_per_suite: int = 8
    test_s: float = 4.0
    mutant_s: float = 10.0
    memory_mb: int = 1024
    tolerance: float = 1e-6

    @property
    def limits(self) -> Limits:
        """The limits of one test on the function itself."""
        return Limits(time_s=self.test_s, memory_mb=self.memory_mb)


@dataclass(frozen=True)
class FunctionScore:
    """One function and its tests under one protocol; what belongs to the other protocol keeps its default.

    Both: `tests` as they were run; lines and branches covered, of all; `killed` of `mutants`; `unscored` when the
    sandbox failed.

    Published: `outcomes` of the k tests in order and their `details`; failing tests cover too, passing ones kill.

    One-shot: `asserts` read of at most 2K; `valid` calls that the function answers, none twice; `right` of those with
    the right answer; `validity` as the game has it; `invalid` counts the reasons of the others. `killed` by the right
    tests and `killed_by_calls` by all valid calls with the function's own answers, both among the first K valid ones.
    `wrong`: mutants (at most 8) that the calls which came with the function expose, `exposed` those that the suite's
    calls expose too.
    """

    id: str
    outcomes: list[str] = field(default_factory=list)
    asserts: int = 0
    valid: int = 0
    right: int = 0
    validity: float = 0.0
    mutants: int = 0
    killed: int = 0
    killed_by_calls: int = 0
    wrong: int = 0
    exposed: int = 0
    lines: int = 0
    all_lines: int = 0
    branches: int = 0
    all_branches: int = 0
    unscored: bool = False
    invalid: dict[str, int] = field(default_factory=dict)
    tests: list[str | None] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    @property
    def all_pass(self) -> bool:
        """Whether every test passes on the function; False without tests."""
        return bool(self.outcomes) and set(self.outcomes) == {Outcome.PASSED.value}

    def dump(self, protocol: str) -> dict[str, Any]:
        """The fields of one protocol, as files hold them."""
        return {name: getattr(self, name) for name in _FIELDS[protocol]}


def published_figures(rows: Sequence[FunctionScore], k: int, sample: Collection[str]) -> dict[str, Any]:
    """The published protocol's figures, in percent; None where there is nothing to take a figure of.

    `pass@j`: passed among the first j tests of each function, over functions x j. `line_coverage`, `branch_coverage`:
    summed over functions. `mut@k`: the mean over the `mut@k_functions` (in the sample, all k tests pass) of killed over
    mutants, 100 for a function without mutants (no mutant survives). `mul`: pass@k x mut@k / 100. `*_all`: the same
    over all functions whose tests all pass. `mutation_unconditional`: the mean over all functions with mutants, killed
    by the tests that pass.
    """
    scored = [row for row in rows if not row.unscored]
    found: dict[str, Any] = {"protocol": PUBLISHED, "functions": len(scored), "unscored": len(rows) - len(scored)}
    for j in sorted({j for j in (1, 2, 5, k) if j <= k}):
        passed = sum(row.outcomes[:j].count(Outcome.PASSED.value) for row in scored)
        found[f"pass@{j}"] = _percent(passed, len(scored) * j)
    found |= _coverage(scored)
    everywhere = [row for row in scored if row.all_pass]
    sampled = [row for row in everywhere if row.id in sample]
    for suffix, part in (("", sampled), ("_all", everywhere)):
        found[f"mut@{k}{suffix}_functions"] = len(part)
        found[f"mut@{k}{suffix}"] = _mean([_killed(row) for row in part])
        found[f"mul{suffix}"] = mul(found[f"pass@{k}"], found[f"mut@{k}{suffix}"])
    found["sample"] = sum(row.id in sample for row in scored)
    found["mutation_unconditional"] = _mean([_killed(row) for row in scored if row.mutants])
    found["mutants"] = sum(row.mutants for row in scored)
    counts = Counter(outcome for row in scored for outcome in row.outcomes)
    found["outcomes"] = {outcome.value: counts[outcome.value] for outcome in Outcome}
    return found


def mul(pass_at_k: float | None, mut_at_k: float | None) -> float | None:
    """`pass@k * mut@k / 100`, all in percent; None when either is."""
    return None if pass_at_k is None or mut_at_k is None else pass_at_k * mut_at_k / 100


def one_shot_figures(rows: Sequence[FunctionScore], k: int) -> dict[str, Any]:
    """The one-shot protocol's figures: means over all functions, in percent unless said otherwise; None where there is
    nothing to take a mean of.

    `validity` of the game; `valid_tests` and `right_tests` over the K asked; `stated_correctly` right over valid, in
    sum; `distinct_calls` per suite, a number. `mutation` by right tests, `mutation_by_calls` by all valid calls;
    `kill_rate` the share of wrong candidates exposed, over the `kill_rate_functions` that have any.
    """
    scored = [row for row in rows if not row.unscored]
    found: dict[str, Any] = {"protocol": ONE_SHOT, "functions": len(scored), "unscored": len(rows) - len(scored)}
    parts = [_one_shot_values(row.dump(ONE_SHOT), k) for row in scored]
    for name in ("validity", "valid tests", "right tests", "mutation", "mutation by calls", "kill rate"):
        there = [value for part in parts if (value := part[name]) is not None]
        found[name.replace(" ", "_")] = _percent(sum(there), len(there))
    valid = sum(row.valid for row in scored)
    found["stated_correctly"] = _percent(sum(row.right for row in scored), valid)
    found["distinct_calls"] = valid / len(scored) if scored else None
    found["mutation_functions"] = sum(bool(row.mutants) for row in scored)
    found["kill_rate_functions"] = sum(bool(row.wrong) for row in scored)
    found |= _coverage(scored)
    found["mutants"] = sum(row.mutants for row in scored)
    found["invalid"] = dict(sorted(sum((Counter(row.invalid) for row in scored), Counter()).items()))
    return found


def values(protocol: str, row: Mapping[str, Any], k: int) -> dict[str, float | None]:
    """One function's share of each figure, 0 to 1, for intervals and comparisons; None where it has none. `row` as
    `FunctionScore.dump` gives it; `k`: the tests that a suite of one-shot was asked for."""
    return _one_shot_values(row, k) if protocol == ONE_SHOT else _published_values(row)


def _published_values(row: Mapping[str, Any]) -> dict[str, float | None]:
    outcomes = row["outcomes"]
    passed = outcomes.count(Outcome.PASSED.value)
    return {
        "pass": share(passed, len(outcomes)),
        "all pass": float(bool(outcomes) and passed == len(outcomes)),
        "line coverage": share(row["lines"], row["all_lines"]),
        "branch coverage": share(row["branches"], row["all_branches"]),
        "mutation, unconditional": share(row["killed"], row["mutants"]),
    }


def _one_shot_values(row: Mapping[str, Any], k: int) -> dict[str, float | None]:
    return {
        "validity": row["validity"],
        "valid tests": min(row["valid"], k) / k,
        "right tests": min(row["right"], k) / k,
        "mutation": share(row["killed"], row["mutants"]),
        "mutation by calls": share(row["killed_by_calls"], row["mutants"]),
        "kill rate": share(row["exposed"], row["wrong"]),
        "line coverage": share(row["lines"], row["all_lines"]),
        "branch coverage": share(row["branches"], row["all_branches"]),
    }


def summary(protocol: str, rows: Sequence[FunctionScore], scoring: Scoring, sample: Collection[str]) -> dict[str, Any]:
    """A protocol's figures, with 95 % intervals over functions (in percent) of their per-function means."""
    if protocol == PUBLISHED:
        found = published_figures(rows, scoring.k, sample)
    else:
        found = one_shot_figures(rows, scoring.tests_per_suite)
    found["intervals"] = {}
    parts = [values(protocol, row.dump(protocol), scoring.tests_per_suite) for row in rows if not row.unscored]
    for name in parts[0] if parts else ():
        there = [value for part in parts if (value := part[name]) is not None]
        if there:
            interval = share_interval(there)
            bounds = {"mean": 100 * interval.mean, "low": 100 * interval.low, "high": 100 * interval.high}
            found["intervals"][name] = {"functions": len(there), **bounds}
    return found


def _coverage(rows: Sequence[FunctionScore]) -> dict[str, float | None]:
    return {
        "line_coverage": _percent(sum(row.lines for row in rows), sum(row.all_lines for row in rows)),
        "branch_coverage": _percent(sum(row.branches for row in rows), sum(row.all_branches for row in rows)),
    }


def _killed(row: FunctionScore) -> float:
    return 100.0 * row.killed / row.mutants if row.mutants else 100.0


def share(part: float, whole: int) -> float | None:
    """`part` of `whole`, from 0 to 1; None of nothing."""
    return part / whole if whole else None


def _percent(part: float, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def lines_of(protocol: str, figures: Mapping[str, Any], scoring: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Lines of a table of figures: name, figure, interval, what it is of."""
    if protocol == ONE_SHOT:
        asked = f"{counted(scoring['tests_per_suite'], 'test')} asked"
        mutated = f"{counted(figures['mutation_functions'], 'function')} with mutants"
        known = counted(figures["kill_rate_functions"], "function")
        return [
            ("validity", "validity", "validity", "as the game counts it"),
            ("valid tests", "valid_tests", "valid tests", f"distinct calls the function answers, of {asked}"),
            ("right tests", "right_tests", "right tests", f"valid, with the right answer, of {asked}"),
            ("stated correctly", "stated_correctly", "", "valid tests"),
            ("mutation score", "mutation", "mutation", f"by right tests; {mutated}"),
            ("mutation score of calls", "mutation_by_calls", "mutation by calls", f"right answers put in; {mutated}"),
            ("kill rate", "kill_rate", "kill rate", f"wrong candidates of {known}"),
            ("line coverage", "line_coverage", "", "by valid calls, summed over functions"),
            ("branch coverage", "branch_coverage", "", "by valid calls, summed over functions"),
        ]
    k, unconditional = scoring["k"], "mutation, unconditional"
    some = f"{figures[f'mut@{k}_functions']} of {counted(figures['sample'], 'sampled function')}: all {k} tests pass"
    every = f"{counted(figures[f'mut@{k}_all_functions'], 'function')}: all {k} tests pass"
    passes = [(f"pass@{j}", f"pass@{j}", "pass" if j == k else "", "tests that pass") for j in (1, 2, 5, k) if j <= k]
    return [
        *dict.fromkeys(passes),
        ("line coverage", "line_coverage", "", "by all tests, summed over functions"),
        ("branch coverage", "branch_coverage", "", "by all tests, summed over functions"),
        (f"mut@{k}, conditional", f"mut@{k}", "", some),
        ("Mul", "mul", "", f"pass@{k} x mut@{k} / 100"),
        (f"mut@{k}, all functions", f"mut@{k}_all", "", every),
        ("Mul, all functions", "mul_all", "", "the same, without the sample"),
        (unconditional, "mutation_unconditional", unconditional, "by passing tests, all functions"),
    ]
