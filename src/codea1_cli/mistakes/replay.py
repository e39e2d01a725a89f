"""Running the Mistake Book's tests again, on a candidate or on the reference, through the run's own judge."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codea1_cli.errors import EnvironmentFault
from codea1_cli.judging.step_judge import reference_answers
from codea1_cli.mistakes import BookRow
from codea1_cli.mistakes.export import ExportedTest, value_source
from codea1_cli.mistakes.inspect import LiveTest
from codea1_cli.problems.problem import Problem
from codea1_cli.runs.rollout_files import call_of

if TYPE_CHECKING:
    from codea1_cli.judging.judge import Judge


@dataclass(frozen=True)
class Replayed:
    """A live test on the newest candidate that failed it, else the newest that ran it.

    The verdict then (`before`) and now, against the reference's present answer, and the line where the candidate fails.
    """

    test: str
    step: int
    candidate_index: int
    before: str
    verdict: str
    expected: str
    got: str
    line: int | None


def replay(judge: "Judge", problem: Problem, live: Sequence[LiveTest]) -> list[Replayed]:
    """Runs each live test again on the candidate of its newest run; tests without one are left out."""
    entry, expected = problem.entry_point, reference_answers(judge, problem, [call_of(item.test) for item in live])
    replayed = []
    for item in live:
        if item.latest is None:
            continue
        call, code = call_of(item.test), item.latest.code
        answer = expected[call]
        if answer.valid:
            now = judge.check(code, entry, [call], {call: answer}).verdicts[call]
            verdict, want, got = str(now.verdict), answer.text, now.got
        else:
            verdict, want, got = "unscored", "", f"the reference has no answer: {answer.reason}"
        line = traced_line(judge, code, entry, item.test) if verdict in ("failed", "raised") else None
        latest = item.latest
        replayed.append(
            Replayed(item.test, latest.step, latest.candidate_index, latest.verdict, verdict, want, got, line)
        )
    return replayed


def answered_cases(
    judge: "Judge", rows: Mapping[str, Sequence[BookRow]], problems: Mapping[str, Problem]
) -> tuple[dict[str, list[ExportedTest]], list[tuple[BookRow, str]]]:
    """The tests with the reference's present answers, by problem, and those that cannot be exported, with the reason.

    Raises:
        EnvironmentFault: the sandbox answers nothing at all.
    """
    cases: dict[str, list[ExportedTest]] = {}
    skipped: list[tuple[BookRow, str]] = []
    for problem_id, own in rows.items():
        problem = problems.get(problem_id)
        if problem is None:
            skipped.extend((row, "its problem is no longer in the run's data") for row in own)
            continue
        expected = reference_answers(judge, problem, [call_of(row.test) for row in own])
        for row in own:
            answer = expected[call_of(row.test)]
            if not answer.valid:
                skipped.append((row, answer.reason or "no answer"))
                continue
            try:
                source = value_source(answer.value)
            except TypeError as error:
                skipped.append((row, str(error)))
                continue
            cases.setdefault(problem_id, []).append(ExportedTest(row.test, call_of(row.test), source, row.count))
    if skipped and not cases and all(reason == "unscored" for _, reason in skipped):
        raise EnvironmentFault("the sandbox answered none of the tests", hint="`codea1 doctor` shows what is wrong")
    return cases, skipped


_TRACER = "codea1_line_of"

# Appended to the candidate, whose own lines keep their numbers. `return` events come innermost first, so that the last
# one of the entry point belongs to the call itself and not to a recursive one.
_APPENDIX = """


def {tracer}(*args, **keywords):
    import sys
    line = None
    own = sys._getframe().f_code.co_filename

    def follow(frame, event, arg):
        nonlocal line
        if event == "return":
            line = frame.f_lineno
        return follow

    def enter(frame, event, arg):
        return follow if frame.f_code.co_name == {entry!r} and frame.f_code.co_filename == own else None

    sys.settrace(enter)
    try:
        {entry}(*args, **keywords)
    except BaseException as fault:
        step = fault.__traceback__.tb_next
        while step is not None:
            if step.tb_frame.f_code.co_filename == own:
                line = step.tb_lineno
            step = step.tb_next
    finally:
        sys.settrace(None)
    return line
"""


def traced_line(judge: "Judge", code: str, entry_point: str, test: str) -> int | None:
    """The line (from 1) of `code` that returns the value of the test's call, or that raises; None when unknown.

    The call runs under a tracer in the sandbox.

    The candidate can lie about its own line, and about nothing else.
    """
    try:
        call = ast.parse(call_of(test), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(call, ast.Call):
        return None
    call.func = ast.Name(_TRACER, ast.Load())
    program = code + _APPENDIX.format(tracer=_TRACER, entry=entry_point)
    run = judge.sandbox.run(program, _TRACER, [ast.unparse(call)], judge.limits)
    value = run.answers[0].value if run.answers else None
    line = value.data if value is not None else None
    return line if type(line) is int and 1 <= line <= code.count("\n") + 1 else None
