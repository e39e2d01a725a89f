"""What `mistakes list` and `mistakes inspect` show, as plain data: no terminal, no sandbox."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from codea1_cli.extract.source import parse, within
from codea1_cli.game.pool import Pool
from codea1_cli.mistakes import BookRow, MistakeStore, StoredEvent
from codea1_cli.runs.rollout_files import CandidateRecord, RecordedTest, history


@dataclass(frozen=True)
class ProblemSummary:
    """One line of the list: a problem with live tests. `mistakes` is the sum of their counts."""

    problem_id: str
    tests: int
    mistakes: int
    last_step: int
    worst: str


@dataclass(frozen=True)
class Latest:
    """The newest run of a test: one candidate's verdict, and how many of that step's candidates failed it."""

    step: int
    candidate_index: int
    verdict: str
    expected: str
    got: str
    failing: int
    candidates: int
    code: str


@dataclass(frozen=True)
class LiveTest:
    """A test that is in the book; `latest` is None when no rollout file of the run holds it any more."""

    test: str
    count: int
    first_step: int
    last_step: int
    latest: Latest | None


@dataclass(frozen=True)
class RetiredTest:
    """A test that every candidate learned to pass: its highest count and the steps it first and last changed at."""

    test: str
    peak: int
    first_step: int
    last_step: int


@dataclass(frozen=True)
class FailingCandidate:
    """The newest candidate that fails a live test. `lines` (from 1) are where it may fail: one when that is known."""

    step: int
    candidate_index: int | None
    code: str
    test: str
    verdict: str
    got: str
    lines: list[int]


@dataclass(frozen=True)
class TrendPoint:
    """The book of the problem after a step: live tests and the sum of their counts."""

    step: int
    tests: int
    mistakes: int


@dataclass(frozen=True)
class PoolProgram:
    """A wrong program of the pool. `breaking` of the `suites` of step `at`, the problem's newest, break it: those of
    `broken_by`, as CANDIDATE.SUITE, both counted from 0 as in the rollouts. All are None without rollouts."""

    id: str
    code: str
    step: int
    evidence: str
    own_test: bool
    at: int | None
    breaking: int | None
    suites: int | None
    broken_by: list[str] | None


@dataclass(frozen=True)
class ProblemView:
    """Everything `inspect` shows of one problem."""

    problem_id: str
    question: str
    entry_point: str
    live: list[LiveTest]
    failing: FailingCandidate | None
    trend: list[TrendPoint]
    retired: list[RetiredTest]
    pool: list[PoolProgram]


def summaries(store: MistakeStore) -> list[ProblemSummary]:
    """The problems with live tests, most mistakes first."""
    rows = sorted(store.live(), key=lambda row: row.problem_id)
    found = []
    for problem_id, group in groupby(rows, key=lambda row: row.problem_id):
        tests = list(group)
        mistakes, last_step = sum(row.count for row in tests), max(row.last_step for row in tests)
        worst = max(tests, key=lambda row: row.count).test
        found.append(ProblemSummary(problem_id, len(tests), mistakes, last_step, worst))
    return sorted(found, key=lambda summary: (-summary.mistakes, summary.problem_id))


def trend(events: Sequence[StoredEvent]) -> list[TrendPoint]:
    """The book's size after each step that changed it."""
    points: list[TrendPoint] = []
    counts: dict[str, int] = {}
    for step, group in groupby(events, key=lambda event: event.step):
        for event in group:
            counts[event.test] = max(0, counts.get(event.test, 0) + event.change)
        live = [count for count in counts.values() if count]
        points.append(TrendPoint(step, len(live), sum(live)))
    return points


def retired(events: Sequence[StoredEvent], live: Iterable[str]) -> list[RetiredTest]:
    """Tests that were in the book and left it, the newest to leave first."""
    still = set(live)
    by_test: dict[str, list[StoredEvent]] = {}
    for event in events:
        if event.test not in still:
            by_test.setdefault(event.test, []).append(event)
    gone = []
    for test, own in by_test.items():
        count = peak = 0
        for event in own:
            count = max(0, count + event.change)
            peak = max(peak, count)
        gone.append(RetiredTest(test, peak, own[0].step, own[-1].step))
    return sorted(gone, key=lambda item: (-item.last_step, item.test))


def view(store: MistakeStore, rollouts: Path, problem_id: str, question: str, entry_point: str) -> ProblemView:
    """The full view of one problem, from its book and the rollout files in `rollouts`."""
    rows = store.live(problem_id)
    events = store.events(problem_id)
    # Every live test ran at its last step, so nothing older needs reading.
    steps = history(rollouts, problem_id, since=min(row.last_step for row in rows)) if rows else ()
    latest, failing = _newest(rows, steps)
    return ProblemView(
        problem_id=problem_id,
        question=question,
        entry_point=entry_point,
        live=[LiveTest(r.test, r.count, r.first_step, r.last_step, latest.get(r.test)) for r in rows],
        failing=_failing_candidate(failing, entry_point) or _from_events(events, rows, entry_point),
        trend=trend(events),
        retired=retired(events, (row.test for row in rows)),
        pool=_pool(store.pools(problem_id=problem_id).get(problem_id, ()), rollouts, problem_id),
    )


def _pool(pool: Pool, rollouts: Path, problem_id: str) -> list[PoolProgram]:
    newest = next(history(rollouts, problem_id), []) if pool else []
    at = newest[0].step if newest else None
    suites = {f"{one.index}.{number}": broken for one in newest for number, broken in enumerate(one.breaks)}
    found = []
    for one in pool:
        by = [name for name, broken in suites.items() if one.id in broken]
        seen = (at, len(by), len(suites), by) if newest else (None, None, None, None)
        found.append(PoolProgram(one.id, one.code, one.step, one.evidence, one.own, *seen))
    return found


def _newest(
    rows: Sequence[BookRow], steps: Iterable[list[CandidateRecord]]
) -> tuple[dict[str, Latest], tuple[CandidateRecord, RecordedTest] | None]:
    """Each live test's newest record, and the newest candidate that fails one, the most frequent test first."""
    latest: dict[str, Latest] = {}
    failing: tuple[CandidateRecord, RecordedTest] | None = None
    for candidates in steps:
        for row in rows:
            records = [(own, test) for own in candidates if (test := own.recorded(row.test)) is not None]
            if not records:
                continue
            failures = [(own, test) for own, test in records if test.failing]
            candidate, test = (failures or records)[-1]
            if failures and failing is None:
                failing = (candidate, test)
            ran = (candidate.step, candidate.index, test.verdict, test.expected, test.got)
            latest.setdefault(row.test, Latest(*ran, len(failures), len(records), candidate.code))
        if failing is not None and len(latest) == len(rows):
            break
    return latest, failing


def _failing_candidate(found: tuple[CandidateRecord, RecordedTest] | None, entry_point: str) -> FailingCandidate | None:
    if found is None:
        return None
    candidate, test = found
    detail = candidate.load_detail if test.verdict == "load_error" else test.got
    lines = possible_lines(candidate.code, entry_point, test.verdict, detail)
    return FailingCandidate(candidate.step, candidate.index, candidate.code, test.test, test.verdict, test.got, lines)


def _from_events(events: Sequence[StoredEvent], rows: Sequence[BookRow], entry_point: str) -> FailingCandidate | None:
    """The book keeps the source of whatever failed: it serves when the rollout files are gone."""
    live = {row.test for row in rows}
    for event in reversed(events):
        if event.test in live and event.change > 0 and event.candidate:
            lines = possible_lines(event.candidate, entry_point, "failed", "")
            return FailingCandidate(event.step, None, event.candidate, event.test, "failed", "", lines)
    return None


def possible_lines(code: str, entry_point: str, verdict: str, detail: str) -> list[int]:
    """The lines (from 1) of a candidate's `code` that may be where it fails, as far as can be told without running it.

    A line that the verdict's detail names is the only one; a wrong value comes from one of the entry point's returns;
    for any other failure nothing is known.
    """
    if named := re.findall(r"\bline (\d+)", detail):
        line = int(named[-1])
        return [line] if 1 <= line <= code.count("\n") + 1 else []
    if verdict != "failed":
        return []
    tree = parse(code)
    nodes = tree.body if tree is not None else ()
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == entry_point]
    return sorted(node.lineno for node in within(functions[-1]) if isinstance(node, ast.Return)) if functions else []


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Block characters for the last `width` of `values`, scaled to their maximum; zero and less is the lowest bar."""
    shown = list(values)[-width:]
    top = max(shown, default=0)
    return "".join(_BARS[round(max(value, 0) / top * (len(_BARS) - 1)) if top > 0 else 0] for value in shown)
