"""Running the Mistake Book's tests again, on a candidate or on the reference, through the run's own judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codea1_cli.errors import EnvironmentFault
from codea1_cli.mistakes.export import Case, value_source
from codea1_cli.mistakes.inspect import LiveTest
from codea1_cli.mistakes.store import BookRow
from codea1_cli.mistakes.trace import traced_line
from codea1_cli.problems.problem import Problem
from codea1_cli.runs.rollouts import call_of

if TYPE_CHECKING:
    from codea1_cli.judging.judge import Judge


@dataclass(frozen=True)
class Replayed:
    """A live test on the newest candidate that failed it (else the newest that ran it): the verdict then and now, against
    the reference's present answer, and the line of the candidate where it fails."""

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
    entry = problem.entry_point
    expected = judge.expected(problem.reference, entry, [call_of(item.test) for item in live])
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
) -> tuple[dict[str, list[Case]], list[tuple[BookRow, str]]]:
    """The tests with the reference's present answers, by problem, and those that cannot be exported, with the reason.

    Raises EnvironmentFault when the sandbox answers nothing at all.
    """
    cases: dict[str, list[Case]] = {}
    skipped: list[tuple[BookRow, str]] = []
    for problem_id, own in rows.items():
        problem = problems.get(problem_id)
        if problem is None:
            skipped.extend((row, "its problem is no longer in the run's data") for row in own)
            continue
        expected = judge.expected(problem.reference, problem.entry_point, [call_of(row.test) for row in own])
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
            cases.setdefault(problem_id, []).append(Case(row.test, call_of(row.test), source, row.count))
    if skipped and not cases and all(reason == "unscored" for _, reason in skipped):
        raise EnvironmentFault("the sandbox answered none of the tests", hint="codea1 doctor shows what is wrong")
    return cases, skipped
