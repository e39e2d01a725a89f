"""What a call gave and what a test came to: enumerations, never booleans."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What one test on one program came to; `UNSCORED` (the sandbox itself failed) never becomes a number."""

    PASSED = "passed"
    FAILED = "failed"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    OUTPUT_LIMIT = "output_limit"
    LOAD_ERROR = "load_error"
    UNSCORED = "unscored"


class AnswerKind(StrEnum):
    """What one call gave, before anything is compared."""

    VALUE = "value"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    OUTPUT_LIMIT = "output_limit"
    UNENCODABLE = "unencodable"
    LOAD_ERROR = "load_error"
    UNSCORED = "unscored"


@dataclass(frozen=True, slots=True)
class Value:
    """A returned value, rebuilt from its tagged encoding; wrapped, so that a returned None is not "no value".

    `data` is a builtin or one of the types of `sandbox.values`; `wire` the encoding it was rebuilt from.
    """

    data: object
    wire: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call gave: `value` only for `AnswerKind.VALUE`, `text` to show, `detail` why there is no value."""

    kind: AnswerKind
    value: Value | None = None
    text: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference answers to one call; without `valid` the call is no test, for the given `reason`.

    `reason` is "unscored" when the sandbox failed and nothing is known about the call.
    """

    call: str
    valid: bool
    value: object = None
    text: str = ""
    reason: str = ""


_VERDICTS = {
    AnswerKind.RAISED: Verdict.RAISED,
    AnswerKind.TIMEOUT: Verdict.TIMEOUT,
    AnswerKind.MEMORY: Verdict.MEMORY,
    AnswerKind.CRASHED: Verdict.CRASHED,
    AnswerKind.OUTPUT_LIMIT: Verdict.OUTPUT_LIMIT,
    AnswerKind.LOAD_ERROR: Verdict.LOAD_ERROR,
    AnswerKind.UNSCORED: Verdict.UNSCORED,
    AnswerKind.UNENCODABLE: Verdict.FAILED,  # it answered, with something that is no comparable value
}


def verdict_of_load(kind: AnswerKind | None) -> Verdict:
    """The verdict of a program that did not load, by the kind of its failure."""
    return Verdict.LOAD_ERROR if kind is None else _VERDICTS[kind]


def verdict_of(answer: Answer, equal: bool) -> Verdict:
    """The verdict of a test whose call gave `answer`; `equal` counts only where there is a value."""
    if answer.kind is AnswerKind.VALUE:
        return Verdict.PASSED if equal else Verdict.FAILED
    return _VERDICTS[answer.kind]
