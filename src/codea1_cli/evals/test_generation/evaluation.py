"""Scoring suites on functions under one or both protocols, resumable, with one file of rows a protocol."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.statistics import bootstrap
from codea1_cli.evals.test_generation import oneshot, published
from codea1_cli.evals.test_generation.execution import MutantLimits, TestRunner
from codea1_cli.evals.test_generation.functions import Function
from codea1_cli.evals.test_generation.sampling import Progress
from codea1_cli.evals.test_generation.suites import Suite, read_rows, write_rows
from codea1_cli.judging.judge import Judge
from codea1_cli.judging.parallel import in_order
from codea1_cli.sandbox.base import Limits, Sandbox

PROTOCOLS = (published.PROTOCOL, oneshot.PROTOCOL)
WARM = ("numpy", "coverage", "sqlite3")  # what a sandbox for this should have loaded
Row = published.PublishedRow | oneshot.OneShotRow


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
        return Limits(time_s=self.test_s, memory_mb=self.memory_mb)


class Scorer:
    """Scores single suites. Thread-safe."""

    def __init__(self, sandbox: Sandbox, scoring: Scoring) -> None:
        self.scoring = scoring
        self.runner = TestRunner(sandbox, scoring.limits, MutantLimits(most_s=scoring.mutant_s))
        self.judge = Judge(sandbox, limits=scoring.limits, tolerance=scoring.tolerance)

    def faults(self, functions: Sequence[Function], workers: int) -> dict[str, str]:
        """Why functions do not load, by id; those that do are not in it."""
        jobs = in_order(lambda f: self.runner.load(f.program, f.name) if f.name else "no function", functions, workers)
        return {function.id: fault for function, fault in jobs if fault is not None}

    def score(self, protocol: str, function: Function, suite: Suite) -> Row:
        if protocol == published.PROTOCOL:
            return published.score(self.runner, function, suite.tests, self.scoring.k)
        return oneshot.score(self.judge, self.runner, function, suite.text, self.scoring.tests_per_suite)


def score_all(
    scorer: Scorer,
    protocol: str,
    functions: Sequence[Function],
    suites: Mapping[str, Suite],
    file: Path | None,
    *,
    workers: int,
    progress: Progress | None = None,
) -> list[Row]:
    """A row for each function, in order; a function without a suite has an empty one. Rows that `file` holds for the same
    suite, function and settings are taken from it, others are appended as they are made, and what the sandbox failed on
    is tried again next time."""
    make: Any = published.PublishedRow if protocol == published.PROTOCOL else oneshot.OneShotRow
    known: dict[str, Row] = {}
    for stored in read_rows(file) if file is not None else []:
        if not stored["row"]["unscored"]:
            known[stored["key"]] = make(**stored["row"])
    jobs = [(function, suites.get(function.id, Suite(function.id, (), ""))) for function in functions]
    keys = [_key(scorer.scoring, function, suite) for function, suite in jobs]
    due = [job for job, key in zip(jobs, keys, strict=True) if key not in known]
    done = len(jobs) - len(due)
    fresh: dict[str, Row] = {}
    results = in_order(lambda job: scorer.score(protocol, *job), due, workers)
    try:
        for (function, suite), row in results:
            key = _key(scorer.scoring, function, suite)
            fresh[key] = row
            if file is not None:
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps({"key": key, "row": asdict(row)}) + "\n")
            done += 1
            if progress is not None:
                progress(f"scoring, {protocol}", done, len(jobs))
    finally:
        results.close()
    rows = [known.get(key) or fresh[key] for key in keys]
    if file is not None:
        write_rows(file, ({"key": key, "row": asdict(row)} for key, row in zip(keys, rows, strict=True)))
    return rows


def _key(scoring: Scoring, function: Function, suite: Suite) -> str:
    parts = [asdict(scoring), function.program, function.name, function.calls, suite.tests, suite.text]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def summary(protocol: str, rows: Sequence[Row], scoring: Scoring, sample: set[str]) -> dict[str, Any]:
    """A protocol's figures, with 95 % bootstrap intervals over functions (in percent) of their per-function means."""
    scored = [row for row in rows if not row.unscored]
    if protocol == published.PROTOCOL:
        chosen = [row for row in rows if isinstance(row, published.PublishedRow)]
        found = published.figures(chosen, scoring.k, sample)
    else:
        suites = [row for row in rows if isinstance(row, oneshot.OneShotRow)]
        found = oneshot.figures(suites, scoring.tests_per_suite)
    found["intervals"] = {}
    parts = [values(protocol, asdict(row), scoring) for row in scored]
    for name in parts[0] if parts else ():
        there = [value for part in parts if (value := part[name]) is not None]
        if there:
            interval = bootstrap(there)
            found["intervals"][name] = {
                "functions": len(there),
                "mean": 100 * interval.mean,
                "low": 100 * interval.low,
                "high": 100 * interval.high,
            }
    return found


def values(protocol: str, row: Mapping[str, Any], scoring: Scoring) -> dict[str, float | None]:
    """One function's share of each figure, 0 to 1."""
    return published.values(row) if protocol == published.PROTOCOL else oneshot.values(row, scoring.tests_per_suite)


def check_results(folder: Path, settings: Mapping[str, Any]) -> None:
    """Whether results of these settings may go into the folder; nothing is made.

    Raises:
        UserError: it holds results of other settings, which are named.
    """
    file = folder / "settings.json"
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        wanted = json.loads(json.dumps(settings))
        other = sorted(name for name in {*before, *wanted} if before.get(name) != wanted.get(name))
        if other:
            raise UserError(
                f"{folder} holds results of other settings: {', '.join(other)}",
                hint="give another --out, or remove the folder",
            )


def open_results(folder: Path, settings: Mapping[str, Any]) -> None:
    """Makes the folder of results, or takes up one that was begun with the same settings.

    Raises:
        UserError: it holds results of other settings, which are named.
    """
    from codea1_cli.durable import write_atomic

    check_results(folder, settings)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.json"
    if not file.exists():
        write_atomic(file, json.dumps(settings, indent=2) + "\n")
