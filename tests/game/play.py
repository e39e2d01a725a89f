"""A small stand-in for the sandbox, for trusted programs: runs calls in this process and compares with `==`."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codea1_cli.extract import parse_suite
from codea1_cli.game.judged_tests import (
    JudgedCandidate,
    calls_for_reference,
    judged_book,
    judged_suite,
    read_book_test,
    stated_answers,
)
from codea1_cli.game.rules import Game
from codea1_cli.sandbox.verdicts import Verdict

Equal = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Expected:
    valid: bool
    reason: str | None = None
    value: Any = None
    text: str = ""


@dataclass(frozen=True)
class Given:
    verdict: Verdict
    got: str = ""


def load(program: str, entry_point: str) -> dict[str, Any] | None:
    namespace: dict[str, Any] = {"__name__": "candidate"}
    try:
        exec(program, namespace)
    except Exception:
        return None
    return namespace if entry_point in namespace else None


def expected_answers(reference: str, entry_point: str, calls: Sequence[str]) -> dict[str, Expected]:
    answers = {}
    for call in calls:
        namespace = load(reference, entry_point)
        assert namespace is not None
        try:
            value = eval(call, namespace)
        except Exception as error:
            answers[call] = Expected(False, f"raised: {error}")
        else:
            answers[call] = Expected(True, None, value, repr(value))
    return answers


def verdicts(
    candidate: str, entry_point: str, expected: Mapping[str, Any], equal: Equal = operator.eq
) -> dict[str, Given]:
    given = {}
    for call, answer in expected.items():
        namespace = load(candidate, entry_point)
        if namespace is None or not answer.valid:
            continue
        try:
            value = eval(call, namespace)
        except Exception as error:
            given[call] = Given(Verdict.RAISED, repr(error))
        else:
            given[call] = Given(Verdict.PASSED if equal(answer.value, value) else Verdict.FAILED, repr(value))
    return given


def judge(
    rules: Game,
    reference: str,
    entry_point: str,
    candidate: str,
    replies: Sequence[str],
    book: Sequence[str] = (),
    equal: Equal = operator.eq,
) -> JudgedCandidate:
    """One candidate with its suites and the replayed book, as the engine would put them together."""
    suites = [parse_suite(reply, entry_point, cap=rules.cap, mode=rules.mode) for reply in replies]
    replayed = [test for source in book if (test := read_book_test(source))]
    expected = expected_answers(reference, entry_point, calls_for_reference(rules, suites, replayed))
    judged = []
    for reply, suite in zip(replies, suites, strict=True):
        answers: Mapping[str, Any] = expected if rules.validation else stated_answers(suite)
        given = verdicts(candidate, entry_point, answers, equal)
        judged.append(judged_suite(rules, reply, suite, answers, given, equal))
    answers = expected if rules.validation else stated_answers(replayed)
    on_book = judged_book(replayed, answers, verdicts(candidate, entry_point, answers, equal))
    loaded = load(candidate, entry_point) is not None
    return JudgedCandidate(candidate, loaded, on_book, tuple(judged))
