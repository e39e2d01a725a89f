"""How programs do on a problem's own tests: the one grader of held-out evaluation and of preparing data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codea1_cli.extract import AssertStatement, parse_suite
from codea1_cli.game.judged_tests import UNSCORED
from codea1_cli.judging.judge import Judge, TestVerdict
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Grade:
    """One program on a problem's own tests.

    loaded: None when nothing is known of it. share: of the tests, how many it passes, from 0 to 1; None is unscored.
    verdicts: by test; an assert is named by its call.
    """

    loaded: bool | None
    share: float | None
    verdicts: Mapping[str, TestVerdict] = field(default_factory=dict)

    @property
    def passed(self) -> bool | None:
        """Whether it passes every test; None is unscored."""
        return None if self.share is None else self.share == 1.0


def grade_on_tests(judge: Judge, problem: Problem, programs: Sequence[str]) -> list[Grade]:
    """Runs each program on the problem's `tests`, identical programs once; one grade per program, in order.

    What counts is the reference's answer to each call, not the answer that the assert states: the two are the same
    where the problem is verified. An empty program passes no test. All grades are unscored when the reference answers
    no test, or the sandbox failed on it; one is when the sandbox failed on its program.
    """
    entry = problem.entry_point
    expected = judge.expected(problem.reference, entry, own_calls(problem))
    calls = [call for call, answer in expected.items() if answer.valid]
    if not calls or any(answer.reason == UNSCORED for answer in expected.values()):
        return [Grade(None, None)] * len(programs)
    grades = {"": Grade(False, 0.0)}
    for program in programs:
        if program not in grades:
            result = judge.check(program, entry, calls, expected)
            found = [test.verdict for test in result.verdicts.values()]
            unscored = result.loaded is None or Verdict.UNSCORED in found
            share = None if unscored else found.count(Verdict.PASSED) / len(calls)
            grades[program] = Grade(result.loaded, share, result.verdicts)
    return [grades[program] for program in programs]


def own_calls(problem: Problem) -> list[str]:
    """The distinct calls that the problem's own tests make, in order."""
    return list(dict.fromkeys(str(test.call) for test in well_formed(problem.tests, problem.entry_point)))


def well_formed(tests: Sequence[str], entry_point: str) -> list[AssertStatement]:
    """The asserts among `tests` that call the entry point as a suite must, in order."""
    found = [statement for test in tests for statement in parse_suite(test, entry_point)]
    return [statement for statement in found if statement.invalid is None and statement.call is not None]
