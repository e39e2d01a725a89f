"""Runs tests that are statements, on a function and on its mutants, in the sandbox.

Each test has a program run of its own, so nothing that it does reaches another test; within it each mutant has a fork
of its own. Only tests that plainly can do nothing but call share one. A test passes when the line behind its assert is
reached: exits, kills, time-outs, floods of output and forged answers are not passes, and a test that replaces the
function under test has failed.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path

from codea1_cli.errors import EnvironmentFault
from codea1_cli.evals.test_generation import Mutant
from codea1_cli.evals.test_generation.split_tests import binds, is_plain, wrap_test
from codea1_cli.extract.source import PARSER
from codea1_cli.sandbox.base import Limits, Sandbox
from codea1_cli.sandbox.verdicts import OUT_OF_TURN, Answer, AnswerKind

Arcs = frozenset[tuple[int, int]]
_MANY = 1_000_000_000  # mutants are programs of their own: one that loops says nothing about the next
_MAX_ARCS = 100_000
# coverage.py parses the source: what Python thinks of its style is not for the user.
warnings.filterwarnings("ignore", module=".*function_under_test$")


class Outcome(StrEnum):
    """What one test on one program came to."""

    PASSED = "passed"
    FAILED = "failed"
    REDEFINED = "redefined"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    OUTPUT_LIMIT = "output_limit"
    LOAD_ERROR = "load_error"
    NO_TEST = "no_test"
    UNSCORED = "unscored"


@dataclass(frozen=True)
class TestRun:
    """One test on the unchanged function: `seconds` of a pass, `arcs` that were taken (None when not asked or lost)."""

    __test__ = False
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0
    arcs: Arcs | None = field(default=None, compare=False)

    @property
    def passed(self) -> bool:
        """Whether the test passed."""
        return self.outcome is Outcome.PASSED


@dataclass(frozen=True)
class MutantLimits:
    """Seconds per mutant: `factor` times what the test took on the function itself, from `least_s` to `most_s`."""

    factor: float = 20.0
    least_s: float = 1.0
    most_s: float = 10.0

    def seconds(self, baseline_s: float) -> float:
        """The limit for tests that took `baseline_s` on the function itself."""
        return min(self.most_s, max(self.least_s, self.factor * baseline_s))


class TestRunner:
    """Thread-safe; every method blocks. `limits.time_s` is for one test on the function itself."""

    __test__ = False

    def __init__(self, sandbox: Sandbox, limits: Limits, mutant_limits: MutantLimits | None = None) -> None:
        self.sandbox = sandbox
        self.limits = replace(limits, patience=1)
        self.mutant_limits = mutant_limits or MutantLimits()

    def load(self, source: str, entry_point: str) -> str | None:
        """Why a function does not load; None when it does, or when the sandbox failed and nothing is known."""
        run = self.run(source, entry_point, "assert True")
        known = run.passed or run.outcome is Outcome.UNSCORED
        return None if known else f"{run.outcome.value}: {run.detail}".rstrip(": ")

    def run(self, source: str, entry_point: str, test: str | None, *, trace: bool = False) -> TestRun:
        """One test on the function.

        Raises:
            EnvironmentFault: `trace`, and the sandbox's interpreter has no coverage.py.
        """
        token = secrets.token_hex(16)
        wrapped = wrap_test(test, token) if test is not None else None
        if test is None or wrapped is None:
            return TestRun(Outcome.NO_TEST)
        if binds(test, entry_point):
            return TestRun(Outcome.REDEFINED, "the test brings a function of its own")
        calls = [jail_call("check", source, entry_point, wrapped, token)]
        run = _read(self.sandbox.run(jail_program(), "check", calls, self.limits).answers[0], token)
        if trace and run.outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.REDEFINED):
            arcs, lost = self._trace(source, entry_point, wrapped)
            return TestRun(Outcome.UNSCORED, "the sandbox failed") if lost else replace(run, arcs=arcs)
        return run

    def _trace(self, source: str, entry_point: str, wrapped: str) -> tuple[Arcs | None, bool]:
        """The arcs of a test that came to its end before, and whether the sandbox lost them."""
        calls = [jail_call("trace", source, entry_point, wrapped)]
        for extra_s in (4.0, 16.0):  # measuring takes longer than the test alone
            limits = replace(self.limits, time_s=self.limits.time_s + extra_s)
            answer = self.sandbox.run(jail_program(), "trace", calls, limits).answers[0]
            if (arcs := _arcs(answer)) is not None:
                return arcs, False
        return None, answer.kind is AnswerKind.UNSCORED

    def trace_calls(self, source: str, entry_point: str, calls: Sequence[str]) -> Arcs | None:
        """The arcs of loading the function and of all calls together; a call that ends its process adds none. None: the
        sandbox failed."""
        found = self.trace_each(source, entry_point, calls)
        return None if found is None else frozenset().union(*found)

    def trace_each(self, source: str, entry_point: str, calls: Sequence[str]) -> list[Arcs] | None:
        """The arcs of loading the function, then those of loading it and each call; None: the sandbox failed. Calls
        share a process where they let it live."""
        tests = [wrap_test(call, "") or "pass" for call in ("pass", *calls)]
        limits = replace(self.limits, time_s=self.limits.time_s + 4.0)
        together = replace(limits, time_s=limits.time_s + len(tests))
        answer = self.sandbox.run(
            jail_program(), "trace_all", [jail_call("trace_all", source, entry_point, tests)], together
        ).answers[0]
        parts = answer.value.data if answer.value is not None else None
        if isinstance(parts, list) and len(parts) == len(tests):
            return [_pairs(part) or frozenset() for part in parts]
        jobs = [jail_call("trace", source, entry_point, test) for test in tests]
        answers = self.sandbox.run(jail_program(), "trace", jobs, limits).answers
        if any(answer.kind is AnswerKind.UNSCORED for answer in answers):
            return None
        return [_arcs(answer) or frozenset() for answer in answers]

    def on_mutants(
        self, entry_point: str, tests: Sequence[tuple[str, float]], mutants: Sequence[Mutant]
    ) -> list[Outcome]:
        """What tests together come to on each mutant, in order: the first that does not pass decides, and kills. A
        mutant without source cannot load. tests: as of `kill`."""
        token = secrets.token_hex(16)
        wrapped = [text for test, _ in tests if (text := wrap_test(test, token)) is not None]
        runnable = [mutant for mutant in mutants if mutant.source is not None]
        if len(wrapped) < len(tests) or not runnable:
            return [Outcome.LOAD_ERROR if len(wrapped) == len(tests) else Outcome.NO_TEST for _ in mutants]
        calls = [jail_call("check_all", mutant.source, entry_point, wrapped, token) for mutant in runnable]
        seconds = self.mutant_limits.seconds(sum(seconds for _, seconds in tests))
        limits = replace(self.limits, time_s=seconds, patience=_MANY)
        answers = self.sandbox.run(jail_program(), "check", calls, limits).answers
        for at, answer in enumerate(answers):
            if answer.detail.startswith(OUT_OF_TURN):  # one mutant's fork spoilt the others' answers: each by itself
                answers[at] = self.sandbox.run(jail_program(), "check", [calls[at]], limits).answers[0]
        rest = iter(answers)
        return [Outcome.LOAD_ERROR if m.source is None else _read(next(rest), token).outcome for m in mutants]

    def kill(
        self, entry_point: str, tests: Sequence[tuple[str, float]], mutants: Sequence[Mutant]
    ) -> list[bool] | None:
        """For each mutant whether any test kills it; None: the sandbox failed.

        tests: (source, seconds on the function itself), all passing there. Plain tests share a fork and a limit per
        mutant, as in one run of pytest; every other test has forks of its own, and meets the mutants still alive.
        """
        killed = [False] * len(mutants)
        plain = [(test, seconds) for test, seconds in tests if is_plain(test, entry_point)]
        groups = [plain, *([one] for one in tests if one not in plain)]
        for group in [group for group in groups if group]:
            alive = [at for at, dead in enumerate(killed) if not dead]
            outcomes = self.on_mutants(entry_point, group, [mutants[at] for at in alive])
            if Outcome.UNSCORED in outcomes:
                return None
            for at, outcome in zip(alive, outcomes, strict=True):
                killed[at] = outcome is not Outcome.PASSED
        return killed


@cache
def jail_program() -> str:
    """The source of what runs in the sandbox."""
    return Path(__file__).with_name("in_jail.py").read_text(encoding="utf-8")


def jail_call(name: str, *arguments: object) -> str:
    """A call of one of its functions, as an expression."""
    return f"{name}({', '.join(map(repr, arguments))})"


def _read(answer: Answer, token: str) -> TestRun:
    data = answer.value.data if answer.value is not None else None
    if isinstance(data, list) and data and isinstance(data[0], str):
        rest = data[1:]
        if data[0] == "passed" and len(rest) == 2 and rest[0] == token and isinstance(rest[1], float):
            return TestRun(Outcome.PASSED, seconds=rest[1])
        detail = rest[0][:300] if rest and isinstance(rest[0], str) else ""
        if data[0] in ("redefined", "load_error"):
            return TestRun(Outcome(data[0]), detail)
        return TestRun(Outcome.FAILED, detail if data[0] == "failed" else "forged an answer")
    if answer.value is not None or answer.kind in (AnswerKind.RAISED, AnswerKind.UNENCODABLE):
        return TestRun(Outcome.FAILED, answer.detail[:300])
    known = answer.kind in (AnswerKind.TIMEOUT, AnswerKind.MEMORY, AnswerKind.OUTPUT_LIMIT, AnswerKind.UNSCORED)
    return TestRun(Outcome(answer.kind.value) if known else Outcome.CRASHED, answer.detail[:300])


def _arcs(answer: Answer) -> Arcs | None:
    if answer.kind is AnswerKind.RAISED and answer.detail.endswith("No module named 'coverage'"):
        raise EnvironmentFault(
            "the interpreter that runs the tests has no coverage.py",
            hint="install the package `coverage` there (`PYTHON -m pip install coverage`), or leave out --python",
        )
    return _pairs(answer.value.data if answer.value is not None else None)


def _pairs(data: object) -> Arcs | None:
    """Arcs as the sandbox gives them; None for what are none."""
    if not isinstance(data, list) or len(data) > _MAX_ARCS:
        return None
    pairs = [pair for pair in data if isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair)]
    return frozenset((a, b) for a, b in pairs) if len(pairs) == len(data) else None


@dataclass(frozen=True)
class Coverage:
    """Counts of one function's source: executed lines of all statements, taken branches of all."""

    lines: int
    all_lines: int
    branches: int
    all_branches: int


def coverage_of(source: str, arcs: Iterable[tuple[int, int]]) -> Coverage:
    """What `arcs` (from line, to line, as coverage.py records them) cover of `source`: coverage.py's own analysis, made
    here. Only pairs of line numbers come out of the sandbox, so a test can only claim lines, not counts.

    Raises:
        EnvironmentFault: coverage is not installed.
    """
    try:
        import coverage
    except ImportError as error:
        raise EnvironmentFault(
            f"coverage figures need coverage.py: {error}", hint="install the package `coverage` beside codea1"
        ) from None
    last = source.count("\n") + 1
    sound = {(a, b) for a, b in arcs if abs(a) <= last and abs(b) <= last}
    with PARSER, tempfile.TemporaryDirectory(prefix="codea1-coverage-") as folder:  # coverage.py parses the source
        file, report = Path(folder) / "function_under_test.py", Path(folder) / "report.json"
        file.write_text(source, encoding="utf-8")
        cover = coverage.Coverage(data_file=None, branch=True, include=[str(file)], config_file=False, messages=False)
        cover.get_data().add_arcs({str(file): sound})
        cover.get_data().touch_file(str(file))
        cover.json_report(morfs=[str(file)], outfile=str(report))
        totals = json.loads(report.read_text(encoding="utf-8"))["totals"]
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    return Coverage(*(int(totals[name]) for name in names))
