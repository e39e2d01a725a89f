"""Verdicts on solutions of BigCodeBench: the program and its tests in one jailed module, by the checker's rules.

The references come first: they show which tasks this machine can run, how long they take and which tests they skip. A
task whose reference does not pass here says nothing about a model: it cannot be run here, which is never a failure.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from codea1_cli.evals.benchmark import Status
from codea1_cli.evals.bigcodebench.tasks import CLASS, BigCodeTask
from codea1_cli.extract.source import parse
from codea1_cli.files import kept_rows
from codea1_cli.sandbox.base import Limits, UnitModule, UnitRun, as_ended
from codea1_cli.sandbox.verdicts import TestOutcome, Verdict

_COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
CHECKER_S = 240.0
"""The checker's limit for a task; a reference that takes longer gets its own time."""


@dataclass(frozen=True)
class BigCodeScored:
    """What one solution came to; `detail` says why it does not pass, `passed` counts tests, `skipped` names tests. What
    the checker would let pass and rests on no comparison (skipped tests, values that equal anything) is a FAIL."""

    task_id: str
    status: Status
    detail: str = ""
    passed: int = 0
    tests: int = 0
    seconds: float = 0.0
    skipped: tuple[str, ...] = ()


class UnitSandbox(Protocol):
    """What scoring needs of a sandbox."""

    workers: int

    def run_unit(self, module: UnitModule, limits: Limits, hash_seed: int = 0) -> UnitRun:
        """Runs a program with its tests in one module."""


@dataclass(frozen=True)
class ScoreSettings:
    """calibrated: put the task's imports and head before each solution, the checker's default.

    time_limit_s: seconds a solution may take; None: the checker's 240, or the reference's own time where that is more.
    """

    calibrated: bool = True
    time_limit_s: float | None = None
    memory_mb: int = 8192

    def limits(self, reference_s: float) -> Limits:
        """The limits of a task whose reference takes so long."""
        time_s = max(CHECKER_S, reference_s) + 1.0 if self.time_limit_s is None else self.time_limit_s
        return Limits(time_s=time_s, load_s=time_s, memory_mb=self.memory_mb, output_kb=1 << 18, processes=512)


def score(
    sandbox: UnitSandbox,
    task: BigCodeTask,
    solution: str,
    settings: ScoreSettings,
    reference_s: float = 0.0,
    may_skip: frozenset[str] = frozenset(),
) -> BigCodeScored:
    """What one solution comes to. `may_skip`: tests that the reference skips here; others have to run."""
    code = task.calibrated(solution) if settings.calibrated else solution
    module = UnitModule(code, task.test, task.names, CLASS)
    run = sandbox.run_unit(module, settings.limits(reference_s))
    return judge(task, solution, run, may_skip)


def judge(task: BigCodeTask, solution: str, run: UnitRun, may_skip: frozenset[str]) -> BigCodeScored:
    """From a run to what the solution came to."""
    skipped = tuple(n for n, o in zip(task.names, run.tests, strict=True) if o.verdict is Verdict.SKIPPED)
    passed = sum(o.verdict is Verdict.PASSED for o in run.tests)
    fault = run.first_fault
    if fault is not None:
        status, detail = _STATUS.get(fault.verdict, Status.FAIL), _say(task, run, fault)
    elif not task.names:
        status, detail = Status.FAIL, "there is no test"
    elif set(skipped) - may_skip:
        status, detail = Status.FAIL, f"skipped {', '.join(sorted(set(skipped) - may_skip))}"
    else:
        detail = always_equal(solution)
        status = Status.FAIL if detail else Status.PASS
    return BigCodeScored(task.task_id, status, detail, passed, len(task.names), round(run.seconds, 3), skipped)


_STATUS = {Verdict.TIMEOUT: Status.TIMEOUT, Verdict.UNSCORED: Status.UNSCORED}  # of the first fault; else FAIL


def _say(task: BigCodeTask, run: UnitRun, fault: TestOutcome) -> str:
    at = next((n for n, o in zip(task.names, run.tests, strict=True) if o is fault), None)
    return f"{f'{at}: ' if at and run.loaded else ''}{fault.verdict.value}: {fault.detail}"


Job = tuple[BigCodeTask, str, float, frozenset[str]]
"""A task, a solution, the reference's seconds, the tests that may be skipped."""


def score_all(
    sandbox: UnitSandbox, jobs: Iterable[tuple[Any, Job]], settings: ScoreSettings
) -> Iterator[tuple[Any, BigCodeScored]]:
    """Scores jobs on all workers; each (key, result) comes as soon as it is there. Equal programs run once a task."""
    same: dict[tuple[str, str], list[Any]] = {}
    for key, job in jobs:
        same.setdefault((job[0].task_id, job[1]), []).append((key, job))

    def scored(program: tuple[str, str]) -> BigCodeScored:
        task, solution, seconds, may_skip = same[program][0][1]
        return score(sandbox, task, solution, settings, seconds, may_skip)

    for program, found in as_ended(scored, same, sandbox.workers):
        yield from ((key, found) for key, _job in same[program])


def always_equal(code: str) -> str:
    """What makes a value of this program equal to anything, else empty; also for source that does not parse.

    The tests run beside the program and would believe such a value. Read from the source, so only what is plain to see
    is found: `unittest.mock.ANY`, and a comparison that never looks at what it is compared with.
    """
    tree = parse(code)
    if tree is None:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in _COMPARISONS:
            if not _looks(node.args, node.body):
                return f"line {node.lineno}: {node.name} never looks at what it is compared with"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & _COMPARISONS and not _looks(node.value.args, [node.value.body]):
                return f"line {node.lineno}: a comparison that never looks at what it is compared with"
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                named = isinstance(key, ast.Constant) and key.value in _COMPARISONS
                if named and isinstance(value, ast.Lambda) and not _looks(value.args, [value.body]):
                    return f"line {node.lineno}: a comparison that never looks at what it is compared with"
        elif (isinstance(node, ast.Attribute) and node.attr == "ANY" and _ends_in_mock(node.value)) or (
            isinstance(node, ast.ImportFrom)
            and node.module == "unittest.mock"
            and any(name.name in ("ANY", "_ANY") for name in node.names)
        ):
            return f"line {node.lineno}: mock.ANY equals everything"
    return ""


def _looks(arguments: ast.arguments, body: list) -> bool:
    """Whether a two-argument comparison reads its second argument (other shapes get the benefit of the doubt)."""
    named = [*arguments.posonlyargs, *arguments.args]
    if len(named) != 2 and arguments.vararg is None:
        return True
    other = named[1].arg if len(named) >= 2 else (arguments.vararg.arg if arguments.vararg else "")
    if all(isinstance(part, ast.Raise) for part in body if not _is_text(part)):
        return True
    return any(isinstance(node, ast.Name) and node.id == other for part in body for node in ast.walk(part))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _ends_in_mock(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == "mock") or (
        isinstance(node, ast.Attribute) and node.attr == "mock"
    )


# -- the references ----------------------------------------------------------------------------------------------------
RUNS, MISSING, CORPUS, NETWORK, FAILS, UNSCORED = (
    "runs", "missing library", "missing corpus", "needs the network", "reference fails", "unscored"
)  # fmt: skip
_REASONS = {
    MISSING: re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'|TesseractNotFoundError"),
    CORPUS: re.compile(r"nltk\.download|NLTK Downloader|MissingCorpusError|nltk_data"),
    NETWORK: re.compile(
        r"name resolution|NameResolutionError|Max retries exceeded|Network is unreachable|gaierror|urlopen error"
        r"|Failed to (?:connect|resolve)|Name or service not known|nodename nor servname"
    ),
}


@dataclass(frozen=True)
class ReferenceResult:
    """One reference: `state` is `RUNS` or why not, `detail` its words."""

    task_id: str
    state: str
    detail: str
    seconds: float
    skipped: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether the task can be run here."""
        return self.state == RUNS

    @property
    def lacks(self) -> str:
        """What is missing where a task cannot be run: a library's name, or a word for another thing."""
        if self.state != MISSING:
            return self.state
        found = _REASONS[MISSING].search(self.detail)
        return found[1].partition(".")[0] if found and found[1] else "tesseract"


def classify(scored: BigCodeScored) -> ReferenceResult:
    """From the reference's own verdict to what it says about the machine."""
    state = RUNS
    if scored.status is Status.UNSCORED:
        state = UNSCORED
    elif scored.status is not Status.PASS:
        state = next((state for state, pattern in _REASONS.items() if pattern.search(scored.detail)), FAILS)
    return ReferenceResult(scored.task_id, state, scored.detail[:300], scored.seconds, scored.skipped)


def check_references(
    sandbox: UnitSandbox,
    tasks: Iterable[BigCodeTask],
    settings: ScoreSettings,
    cache: Path | None = None,
    tick: Callable[[ReferenceResult], None] = lambda _result: None,
) -> dict[str, ReferenceResult]:
    """What each task's reference comes to, by task id.

    A reference may skip any test; one that fails is run once more, since some references depend on chance. `cache` is a
    jsonl file that keeps results: an interrupted check goes on, a later one is free. Its name should carry what the
    results depend on (`cache_name`).
    """
    tasks = list(tasks)
    wanted = {task.task_id for task in tasks}
    results = {t.task_id: t for t in _read(cache) if t.task_id in wanted} if cache else {}
    for known in results.values():
        tick(known)
    for _attempt in range(2):
        jobs = [
            (task, (task, task.reference, 0.0, frozenset(task.names)))
            for task in tasks
            if task.task_id not in results or (results[task.task_id].state in (FAILS, UNSCORED) and _attempt)
        ]
        for task, scored in score_all(sandbox, jobs, settings):
            result = classify(scored)
            if _attempt and not result.runs:
                continue
            results[task.task_id] = result
            if cache and result.state != UNSCORED:
                with cache.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
            tick(result)
    return results


def cache_name(digest: str, python: str, settings: ScoreSettings) -> str:
    """A file name for a check of these tasks by this interpreter."""
    key = f"{digest} {python} {settings.calibrated} {settings.time_limit_s} {settings.memory_mb}"
    return f"bigcode-truth-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"


def _read(cache: Path) -> list[ReferenceResult]:
    return [ReferenceResult(**{**row, "skipped": tuple(row["skipped"])}) for row in kept_rows(cache)]
