"""A user's own functions: their mutants against suites, and the mutants that survive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from codea1_cli.evals.test_generation.coverage import Covered, covered
from codea1_cli.evals.test_generation.execution import Outcome, TestRun, TestRunner
from codea1_cli.evals.test_generation.functions import Function
from codea1_cli.evals.test_generation.mutants import Mutant, make_mutants


@dataclass(frozen=True)
class FileRow:
    """One function of the file. `tests` with what each came to on the function itself; of `mutants`, `killed` by the
    tests that pass, and the `survivors`. Coverage counts the lines of the whole file that run, from loading on."""

    id: str
    tests: list[tuple[str, str, str]]
    mutants: int
    killed: int
    survivors: list[Mutant] = field(default_factory=list)
    unscored: bool = False
    covered: Covered | None = None

    @property
    def passing(self) -> int:
        return sum(outcome == Outcome.PASSED.value for _, outcome, _ in self.tests)


def own_mutants(function: Function) -> list[Mutant]:
    """The mutants of the file that change the function's own lines."""
    return [m for m in _all_mutants(function.program) if function.first <= m.line <= function.last]


@lru_cache(maxsize=2)
def _all_mutants(program: str) -> tuple[Mutant, ...]:
    return tuple(make_mutants(program))  # of a whole file: once for all its functions


def score(runner: TestRunner, function: Function, tests: Sequence[str | None]) -> FileRow:
    """Runs the tests on the function and those that pass on its mutants."""
    there = [test for test in tests if test is not None]
    runs: list[TestRun] = [runner.run(function.program, function.name, test, trace=True) for test in there]
    told = [(test, run.outcome.value, run.detail) for test, run in zip(there, runs, strict=True)]
    mutants = own_mutants(function)
    passing = [(test, run.seconds) for test, run in zip(there, runs, strict=True) if run.passed]
    killed = runner.kill(function.name, passing, mutants)
    arcs = runner.trace_calls(function.program, function.name, [])
    if killed is None or arcs is None or any(run.outcome is Outcome.UNSCORED for run in runs):
        return FileRow(function.id, told, len(mutants), 0, unscored=True)
    counts = covered(function.program, arcs.union(*(run.arcs or () for run in runs)))
    alive = [mutant for mutant, dead in zip(mutants, killed, strict=True) if not dead]
    return FileRow(function.id, told, len(mutants), len(mutants) - len(alive), alive, covered=counts)
