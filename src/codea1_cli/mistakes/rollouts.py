"""Reading one problem's candidates back from a run's `rollouts/step-NNNNNN.parquet` files."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The verdicts of a candidate that did run a test and did not pass it.
FAILING = frozenset({"failed", "raised", "timeout", "memory", "crashed", "output_limit", "load_error"})

_COLUMNS = ["step", "problem_id", "candidate_index", "code", "loaded", "load_detail", "reward", "book", "suites"]


@dataclass(frozen=True)
class TestRun:
    """One test on one candidate: the verdict, the reference's answer and the candidate's, both as text."""

    __test__ = False  # pytest: no test class

    test: str
    verdict: str
    expected: str
    got: str

    @property
    def failing(self) -> bool:
        return self.verdict in FAILING


@dataclass(frozen=True)
class Candidate:
    """One row of a rollout file: a candidate, how it loaded, and every test that ran on it, book first."""

    step: int
    index: int
    code: str
    loaded: bool | None
    load_detail: str
    reward: float | None
    runs: tuple[TestRun, ...]

    def run_of(self, test: str) -> TestRun | None:
        """The run of `test`: the same text, else the same call."""
        exact = next((run for run in self.runs if run.test == test), None)
        if exact is not None:
            return exact
        key = call_of(test)
        return next((run for run in self.runs if call_of(run.test) == key), None)


def call_of(test: str) -> str:
    """The normalised call of a test, given as `assert f(x) == y` or as `f(x)`; the text itself when it does not parse."""
    try:
        (statement,) = ast.parse(test.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return test.strip()
    expression = (
        getattr(statement, "test", None) if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
    )
    if isinstance(expression, ast.Compare):
        expression = expression.left
    return ast.unparse(expression) if isinstance(expression, ast.expr) else test.strip()


def rollout_files(folder: Path) -> dict[int, Path]:
    """The rollout files of a run by step, newest first."""
    files = {int(path.stem.removeprefix("step-")): path for path in folder.glob("step-*.parquet")}
    return dict(sorted(files.items(), reverse=True))


def candidates_of(file: Path, problem_id: str) -> list[Candidate]:
    """The candidates of one problem in one rollout file, by index; empty when it was not sampled there."""
    import pyarrow.parquet as pq

    rows = pq.read_table(file, columns=_COLUMNS, filters=[("problem_id", "=", problem_id)]).to_pylist()
    return sorted((_candidate(row) for row in rows), key=lambda candidate: candidate.index)


def history(folder: Path, problem_id: str, *, since: int = 0) -> Iterator[list[Candidate]]:
    """The problem's candidates step by step, newest first, down to step `since`; steps without it are skipped."""
    for step, file in rollout_files(folder).items():
        if step < since:
            return
        if found := candidates_of(file, problem_id):
            yield found


def _candidate(row: dict[str, Any]) -> Candidate:
    entries = [*(row["book"] or ()), *(test for suite in row["suites"] or () for test in suite["tests"] or ())]
    return Candidate(
        step=row["step"],
        index=row["candidate_index"],
        code=row["code"] or "",
        loaded=row["loaded"],
        load_detail=row["load_detail"] or "",
        reward=row["reward"],
        # Without a verdict it did not run: an invalid test, or a candidate that does not load.
        runs=tuple(_run(entry) for entry in entries if entry["verdict"]),
    )


def _run(entry: dict[str, Any]) -> TestRun:
    return TestRun(entry["test"], entry["verdict"], entry["expected"] or "", entry["got"] or "")
