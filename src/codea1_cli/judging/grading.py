"""A problem's own tests: what they expect, and how programs do on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from codea1_cli.extract import AssertStatement, parse_suite
from codea1_cli.extract.pytests import convert_tests
from codea1_cli.game.judged_tests import UNSCORED, stated_answers
from codea1_cli.judging.judge import Judge, TestVerdict
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.verdicts import Expected, Verdict


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
    """Runs each program on the problem's own tests, identical programs once; one grade per program, in order.

    An empty program passes no test. All grades are unscored when no test has an answer, or the sandbox failed on the
    reference; one is when the sandbox failed on its program.
    """
    entry = problem.entry_point
    expected = own_answers(judge, problem)
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


def own_tests(problem: Problem) -> list[AssertStatement]:
    """The problem's own tests: its `tests`, or where it has none those of its `test_code`."""
    tests = problem.tests or _converted(problem.test_code or "", problem.entry_point)
    return well_formed(tests, problem.entry_point)


@lru_cache(maxsize=1024)
def _converted(test_code: str, entry_point: str) -> tuple[str, ...]:
    return tuple(convert_tests(test_code, entry_point).tests)


def own_calls(problem: Problem) -> list[str]:
    """The distinct calls that the problem's own tests make, in order."""
    return list(dict.fromkeys(str(test.call) for test in own_tests(problem)))


def own_answers(judge: Judge, problem: Problem, most: int | None = None) -> dict[str, Expected]:
    """What the problem's first `most` own calls should give, all of them when None.

    What counts is the reference's answer, not the one that the test states: the two are the same where the problem is
    verified. Without a reference it is the stated one, and a test that states none that can be read is left out.
    """
    if problem.reference:
        return judge.expected(problem.reference, problem.entry_point, own_calls(problem)[:most])
    stated = stated_answers(own_tests(problem))
    return {call: Expected(call, True, one.value, one.text) for call, one in list(stated.items())[:most]}


def well_formed(tests: Sequence[str], entry_point: str) -> list[AssertStatement]:
    """The asserts among `tests` that call the entry point as a suite must, in order."""
    found = [statement for test in tests for statement in parse_suite(test, entry_point)]
    return [statement for statement in found if statement.invalid is None and statement.call is not None]
