"""Whether a problem holds what it says: its reference, in the judge's sandbox, against its own tests."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codea1_cli.errors import EnvironmentFault, counted
from codea1_cli.extract import AssertStatement
from codea1_cli.judging.judge import Expected, Judge, ReferenceCache, own_answers, own_tests, well_formed
from codea1_cli.judging.references import HASH_SEEDS
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.base import Limits, ProgramRun, Sandbox, in_order

_REASONS = {
    "load_error": "reference_does_not_load",
    "raised": "reference_raises",
    "timeout": "reference_timeout",
    "memory": "reference_memory",
    "crashed": "reference_crashes",
    "output_limit": "reference_output",
    "unencodable": "answer_not_comparable",
    "differs between runs": "not_deterministic",
}
_TRIES = 3
_UNSCORED_IN_A_ROW = 5


@dataclass(frozen=True)
class Checked:
    """A problem's verification: `reason` is None when it holds. `seconds` is the slower of the reference's two runs.
    `extra_tests` are those of its extra tests that the reference passes, `dropped` how many it does not."""

    reason: str | None
    detail: str = ""
    seconds: float = 0.0
    extra_tests: list[str] = field(default_factory=list)
    dropped: int = 0


class Verifier:
    """Verifies problems one by one, from as many threads as there are. tolerance: of floats, as in judging."""

    def __init__(self, sandbox: Sandbox, limits: Limits, tolerance: float = 1e-6) -> None:
        self.sandbox = sandbox
        self.limits, self.tolerance = limits, tolerance
        self._lock = threading.Lock()
        self._failures = 0

    def warm(self, workers: int) -> None:
        """Starts the sandbox's interpreters, whose start would count as the first references' time."""
        runs = [seed for seed in HASH_SEEDS for _ in range(workers)]
        for _ in in_order(lambda seed: self.sandbox.run("def f(): pass", "f", [], self.limits, seed), runs, workers):
            pass

    def check(self, problem: Problem) -> Checked:
        """Verifies one problem; tries again when the sandbox fails.

        Reasons: reference_does_not_load, reference_raises, reference_timeout, reference_memory, reference_crashes,
        reference_output, answer_not_comparable, not_deterministic, fails_own_test, stub_passes, unscored.

        Raises:
            EnvironmentFault: the sandbox failed on several problems in a row.
        """
        for attempt in range(_TRIES):
            checked = self._check(problem)
            if checked.reason != "unscored":
                with self._lock:
                    self._failures = 0
                return checked
            if attempt < _TRIES - 1:
                time.sleep(0.5 * 4**attempt)
        with self._lock:
            self._failures += 1
            if self._failures >= _UNSCORED_IN_A_ROW:
                raise EnvironmentFault(
                    f"the sandbox failed on {counted(self._failures, 'problem')} in a row, the last one {problem.id}",
                    hint="see `codea1 doctor`; the same command goes on from here",
                )
        return checked

    def _check(self, problem: Problem) -> Checked:
        entry = problem.entry_point
        tests = well_formed(problem.tests, entry)
        extra = well_formed(problem.extra_tests, entry)
        calls = [str(test.call) for test in tests]
        open_calls = [call for call in problem.meta.get("calls", []) if isinstance(call, str)]
        # The cache lives for one problem: hundreds of thousands of answers would fill the memory.
        timed = _Timed(self.sandbox)
        judge = Judge(timed, limits=self.limits, tolerance=self.tolerance, cache=ReferenceCache())
        if not calls:
            run = self.sandbox.run(problem.reference, entry, [], self.limits)
            if not run.loaded:
                reason = "unscored" if run.loaded is None else "reference_does_not_load"
                return Checked(reason, _steady(run.load_detail))
        asked = [*calls, *(str(test.call) for test in extra), *open_calls]
        answers = judge.expected(problem.reference, entry, asked, asked)
        seconds = round(timed.slowest, 3)
        if (test := _unmet(judge, tests, answers)) is not None:
            answer = answers[str(test.call)]
            if not answer.valid:
                return Checked(_reason(answer), _steady(f"{test.call}: {answer.reason}"), seconds)
            return Checked("fails_own_test", _steady(f"{test.source[:200]}, got {answer.text[:100]}"), seconds)
        if calls and all(judge.equal(answers[call].value, None) for call in calls):
            return Checked("stub_passes", "a function that returns None passes every test", seconds)
        kept = [
            test.source
            for test in extra
            if (known := answers[str(test.call)]).valid and test.stated and judge.equal(known.value, test.stated.value)
        ]
        answered = [_answered(answers[call], entry, judge) for call in open_calls]
        return Checked(None, "", seconds, kept + [t for t in answered if t], len(problem.extra_tests) - len(kept))


def contradiction(judge: Judge, problem: Problem) -> str | None:
    """Why a problem's own tests speak against its reference; None where they do not, or it has neither. Tests that
    cannot be read as calls with answers run as they stand."""
    tests = own_tests(problem) if problem.reference else ()
    if tests and _unmet(judge, tests, own_answers(judge, problem)) is not None:
        return "its reference does not pass its tests"
    if problem.reference and not tests:
        whole = "\n".join([problem.reference, *problem.tests])
        if not judge.loads(whole, problem.entry_point):
            return "its reference does not pass its tests" if problem.tests else "its reference does not load"
    return None


def _unmet(judge: Judge, tests: Sequence[AssertStatement], answers: Mapping[str, Expected]) -> AssertStatement | None:
    """The first test whose call has no usable answer, or another than it states."""
    for test in tests:
        answer = answers[str(test.call)]
        if not answer.valid or (test.stated is not None and not judge.equal(answer.value, test.stated.value)):
            return test
    return None


def _answered(answer: Expected, entry_point: str, judge: Judge) -> str | None:
    """A test from a call and the reference's answer, when its text says that very value."""
    if not answer.valid:
        return None
    text = f"assert {answer.call} == {answer.value!r}"
    found = well_formed([text], entry_point)
    stated = found[0].stated if len(found) == 1 else None
    return text if stated is not None and judge.equal(answer.value, stated.value) else None


def _steady(text: str) -> str:
    """The text without addresses, which differ from run to run."""
    return re.sub(r"0x[0-9a-fA-F]+", "0x...", text)[:300]


def _reason(answer: Expected) -> str:
    return _REASONS.get(answer.reason.partition(":")[0], answer.reason.partition(":")[0])


class _Timed:
    """A sandbox that remembers how long its slowest program took."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.workers, self.layers = getattr(sandbox, "workers", 1), getattr(sandbox, "layers", {})
        self.most = 1  # what takes long is to be seen: one process answers all calls
        self.slowest = 0.0

    def run(
        self, program: str, entry_point: str, calls: Sequence[str], limits: Limits, hash_seed: int = 0, **more: str
    ) -> ProgramRun:
        run = self._sandbox.run(program, entry_point, calls, limits, hash_seed, **more)
        self.slowest = max(self.slowest, run.seconds)
        return run

    def close(self) -> None:
        self._sandbox.close()
