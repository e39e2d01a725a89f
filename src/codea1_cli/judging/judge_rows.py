"""Rows of `codea1 judge`: a reference, a candidate and tests or a suite each, judged in parallel and given in order."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError, did_you_mean
from codea1_cli.extract import AssertStatement, parse_suite
from codea1_cli.game.judged_tests import NOT_FOLDABLE, judged_suite
from codea1_cli.game.rules import Game
from codea1_cli.judging.judge import Expected, Judge
from codea1_cli.problems.row_files import whole_rows
from codea1_cli.sandbox.base import Limits, Sandbox, in_order
from codea1_cli.sandbox.verdicts import Verdict

NO_VALID_TEST = "no_valid_test"
_TEXTS = ("id", "reference", "candidate", "entry_point")
_NUMBERS = ("tolerance", "time_limit_s", "memory_mb")
_WORST_FIRST = (
    Verdict.UNSCORED, Verdict.LOAD_ERROR, Verdict.CRASHED, Verdict.MEMORY, Verdict.TIMEOUT, Verdict.OUTPUT_LIMIT,
    Verdict.RAISED, Verdict.FAILED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One line: `tests` (assert statements) or `suite` (text as a model wrote it), and the limits that it sets."""

    id: str
    reference: str
    candidate: str
    entry_point: str
    tests: tuple[str, ...] | None = None
    suite: str | None = None
    tolerance: float | None = None
    time_limit_s: float | None = None
    memory_mb: int | None = None


def read_rows(path: Path) -> Iterator[JudgeRow]:
    """The rows of a file (`row_files.read_rows`). Raises UserError naming the line and the field that is wrong."""
    for where, raw in whole_rows(path):
        yield row_of(raw, where)


def row_of(raw: dict[str, Any], where: str) -> JudgeRow:
    """A row from its fields; `where` is for messages. Raises UserError naming the field that is wrong, or that nobody
    reads but for its spelling; others of the user's own are left alone."""
    asked = () if {"tests", "suite"} & raw.keys() else ("tests", "suite")
    lacking = [name for name in (*_TEXTS, *asked, *_NUMBERS) if name not in raw]
    for name in raw:
        if hint := did_you_mean(str(name), lacking):
            raise UserError(f"{where}: no field of a row is called {name}", hint)
    for name in _TEXTS:
        if not isinstance(raw.get(name), str):
            raise UserError(f"{where}: {name} is {'missing' if name not in raw else 'no text'}")
    tests, suite = raw.get("tests"), raw.get("suite")
    if (tests is None) == (suite is None):
        raise UserError(f"{where}: a row has either tests or suite", "tests: list of assert statements; suite: text")
    if tests is not None and not (isinstance(tests, list) and all(isinstance(test, str) for test in tests)):
        raise UserError(f"{where}: tests is no list of texts")
    if suite is not None and not isinstance(suite, str):
        raise UserError(f"{where}: suite is no text")
    texts = {name: raw[name] for name in _TEXTS}
    return JudgeRow(**texts, tests=None if tests is None else tuple(tests), suite=suite, **numbers_of(raw, where))


def numbers_of(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The tolerance and the limits among the fields of a row. Raises UserError naming the one that is wrong."""
    numbers = {name: raw[name] for name in _NUMBERS if raw.get(name) is not None}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
            raise UserError(f"{where}: {name} is no number of at least 0")
        if name != "tolerance" and not value:
            raise UserError(f"{where}: {name} is 0")
    if "memory_mb" in numbers:
        numbers["memory_mb"] = int(numbers["memory_mb"])
    return numbers


class RowJudge:
    """Judges rows in one sandbox, each by its own limits; answers of a reference are shared. Thread-safe."""

    def __init__(self, sandbox: Sandbox, limits: Limits, tolerance: float = 1e-6) -> None:
        self.sandbox = sandbox
        self.limits = limits
        self.tolerance = tolerance
        self._judges: dict[tuple[Limits, float], Judge] = {}
        self._lock = threading.Lock()

    def _judge(self, row: JudgeRow) -> Judge:
        limits = self.limits
        if row.time_limit_s is not None:
            limits = replace(limits, time_s=row.time_limit_s)
        if row.memory_mb is not None:
            limits = replace(limits, memory_mb=row.memory_mb)
        tolerance = self.tolerance if row.tolerance is None else row.tolerance
        with self._lock:
            if (limits, tolerance) not in self._judges:
                self._judges[limits, tolerance] = Judge(self.sandbox, limits=limits, tolerance=tolerance)
            return self._judges[limits, tolerance]

    def judge(self, row: JudgeRow) -> dict[str, Any]:
        """`id, status, tests` of a row: the status is `ok` when the candidate passes every valid test, else the worst
        verdict, and `no_valid_test` when nothing could be tested."""
        judge = self._judge(row)
        if row.tests is not None:
            texts, statements = list(row.tests), [_single(test, row.entry_point) for test in row.tests]
        else:
            statements = parse_suite(row.suite or "", row.entry_point, cap=Game().cap)
            texts = [statement.source for statement in statements]
        calls = [s.call for s in statements if s.call is not None and s.invalid is None]
        expected = judge.expected(row.reference, row.entry_point, calls)
        result = judge.check(row.candidate, row.entry_point, calls, expected)
        rules = Game(mode="paper")  # no cap: a suite was capped when it was parsed
        suite = judged_suite(rules, "", statements, expected, result.verdicts, judge.equal)
        tests = [
            {
                "test": text,
                "valid": test.valid,
                "stated_correctly": test.stated_correctly,
                "verdict": test.verdict.value if test.verdict is not None else None,
                "expected": test.expected if test.valid else None,
                "got": test.got if test.valid else None,
                "reason": test.reason or (NOT_FOLDABLE if test.valid and statement.stated is None else None),
            }
            for text, statement, test in zip(texts, statements, suite.tests, strict=True)
        ]
        verdicts = {test.verdict for test in suite.tests if test.verdict is not None}
        if suite.unscored:
            verdicts.add(Verdict.UNSCORED)
        if result.load_verdict is not None:
            verdicts.add(result.load_verdict)
        worst = next((verdict.value for verdict in _WORST_FIRST if verdict in verdicts), "")
        status = worst or ("ok" if verdicts else NO_VALID_TEST)
        detail = result.load_detail or _unloaded(expected.values())
        return {"id": row.id, "status": status, "load_detail": detail or None, "tests": tests}

    def stream(self, rows: Iterable[JudgeRow], workers: int) -> Iterator[dict[str, Any]]:
        """The reports in the rows' order, `workers` rows at a time."""
        with closing(in_order(self.judge, rows, workers)) as judged:
            for _, report in judged:
                yield report


def _unloaded(answers: Collection[Expected]) -> str:
    """Why a reference answers nothing where it does not load; else empty."""
    reasons = [one.reason for one in answers]
    loads = any(not why.startswith("load_error") and ": while loading" not in why for why in reasons)
    return "" if loads or not reasons else f"the reference does not load: {reasons[0].removeprefix('load_error: ')}"


def _single(test: str, entry_point: str) -> AssertStatement:
    """The one assert of a test; a test that holds none or several is not a test."""
    found = parse_suite(test, entry_point)
    if len(found) == 1:
        return found[0]
    return AssertStatement(test, invalid="no_assert" if not found else "several_asserts")
