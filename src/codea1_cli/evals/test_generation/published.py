"""The published protocol's figures: each function's row of counts, and what rows of counts come to.

As Code-A1's authors run UnLeakedTestBench: the tests of k rounds are statements, each passes or fails by itself; mut@k
is about the functions of a fixed sample whose k tests all pass, and about no others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from codea1_cli.evals.test_generation.coverage import Covered, covered
from codea1_cli.evals.test_generation.execution import Outcome, TestRun, TestRunner
from codea1_cli.evals.test_generation.functions import Function
from codea1_cli.evals.test_generation.mutants import make_mutants

PROTOCOL = "published"


@dataclass(frozen=True)
class PublishedRow:
    """One function. `outcomes` of the k tests in order; the counts of `Covered` over all k tests, failing ones too;
    `killed` of `mutants` by the tests that pass; `tests` as they were run. A row is `unscored` when the sandbox failed."""

    id: str
    outcomes: list[str]
    lines: int = 0
    all_lines: int = 0
    branches: int = 0
    all_branches: int = 0
    mutants: int = 0
    killed: int = 0
    unscored: bool = False
    tests: list[str | None] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    @property
    def passed(self) -> int:
        return self.outcomes.count(Outcome.PASSED.value)

    @property
    def all_pass(self) -> bool:
        return bool(self.outcomes) and self.passed == len(self.outcomes)


def score(runner: TestRunner, function: Function, tests: Sequence[str | None], k: int) -> PublishedRow:
    """Runs the first k tests, on the function and on its mutants; a missing test counts as failing."""
    chosen = [*tests[:k], *[None] * (k - len(tests))]
    runs = [runner.run(function.program, function.name, test, trace=True) for test in chosen]
    outcomes = [run.outcome.value for run in runs]
    if Outcome.UNSCORED.value in outcomes:
        return PublishedRow(function.id, outcomes, unscored=True)
    mutants = make_mutants(function.program)
    passing = [(test, run.seconds) for test, run in zip(chosen, runs, strict=True) if run.passed and test is not None]
    killed = runner.kill(function.name, passing, mutants)
    counts = _covered(runner, function, runs)
    if killed is None or counts is None:
        return PublishedRow(function.id, outcomes, unscored=True)
    return PublishedRow(
        function.id,
        outcomes,
        **asdict(counts),
        mutants=len(mutants),
        killed=sum(killed),
        tests=chosen,
        details=[run.detail for run in runs],
    )


def _covered(runner: TestRunner, function: Function, runs: Sequence[TestRun]) -> Covered | None:
    arcs = frozenset().union(*(run.arcs or () for run in runs))
    if any(run.arcs is None for run in runs):  # loading the function covers its first lines, whatever the tests do
        loaded = runner.trace_calls(function.program, function.name, [])
        if loaded is None:
            return None
        arcs |= loaded
    return covered(function.program, arcs)


def figures(rows: Sequence[PublishedRow], k: int, sample: Collection[str]) -> dict[str, Any]:
    """The figures, in percent; None where there is nothing to take a figure of.

    `pass@j`: passed among the first j tests of each function, over functions x j. `line_coverage`, `branch_coverage`:
    summed over functions. `mut@k`: the mean over the `mut@k_functions` (in the sample, all k tests pass) of killed over
    mutants, 100 for a function without mutants (no mutant survives). `mul`: pass@k x mut@k / 100. `*_all`: the same
    over all functions whose tests all pass. `mutation_unconditional`: the mean over all functions with mutants, killed
    by the tests that pass.
    """
    scored = [row for row in rows if not row.unscored]
    found: dict[str, Any] = {"protocol": PROTOCOL, "functions": len(scored), "unscored": len(rows) - len(scored)}
    for j in sorted({j for j in (1, 2, 5, k) if j <= k}):
        passed = sum(row.outcomes[:j].count(Outcome.PASSED.value) for row in scored)
        found[f"pass@{j}"] = _share(passed, len(scored) * j)
    found["line_coverage"] = _share(sum(row.lines for row in scored), sum(row.all_lines for row in scored))
    found["branch_coverage"] = _share(sum(row.branches for row in scored), sum(row.all_branches for row in scored))
    everywhere = [row for row in scored if row.all_pass]
    sampled = [row for row in everywhere if row.id in sample]
    for suffix, part in (("", sampled), ("_all", everywhere)):
        found[f"mut@{k}{suffix}_functions"] = len(part)
        found[f"mut@{k}{suffix}"] = _mean([_killed(row) for row in part])
        found[f"mul{suffix}"] = mul(found[f"pass@{k}"], found[f"mut@{k}{suffix}"])
    found["sample"] = sum(row.id in sample for row in scored)
    mutated = [row for row in scored if row.mutants]
    found["mutation_unconditional"] = _mean([_killed(row) for row in mutated])
    found["mutants"] = sum(row.mutants for row in scored)
    for outcome in Outcome:
        found.setdefault("outcomes", {})[outcome.value] = sum(row.outcomes.count(outcome.value) for row in scored)
    return found


def mul(pass_at_k: float | None, mut_at_k: float | None) -> float | None:
    """`pass@k * mut@k / 100`, all in percent; None when either is."""
    return None if pass_at_k is None or mut_at_k is None else pass_at_k * mut_at_k / 100


def values(row: Mapping[str, Any]) -> dict[str, float | None]:
    """One function's share of each figure, for intervals and comparisons; None where it has none."""
    outcomes = row["outcomes"]
    passed = outcomes.count(Outcome.PASSED.value)
    return {
        "pass": passed / len(outcomes) if outcomes else None,
        "all pass": float(bool(outcomes) and passed == len(outcomes)),
        "line coverage": row["lines"] / row["all_lines"] if row["all_lines"] else None,
        "branch coverage": row["branches"] / row["all_branches"] if row["all_branches"] else None,
        "mutation, unconditional": row["killed"] / row["mutants"] if row["mutants"] else None,
    }


def _killed(row: PublishedRow) -> float:
    return 100.0 * row.killed / row.mutants if row.mutants else 100.0


def _share(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None
