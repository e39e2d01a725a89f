"""What a call gave and what a test came to: enumerations, never booleans."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from codea1_cli.sandbox.values import Undecodable, Unreadable, decode, show

_UNREAD = object()

OUT_OF_TURN = "wrote to the result channel"
"""How the detail of the answer begins that a program forged: nothing that it says after that counts."""


class Verdict(StrEnum):
    """What one test on one program came to.

    `UNSCORED` (the sandbox itself failed) never becomes a number. `SKIPPED` and `TAMPERED` (the program changed what
    tests rest on) are verdicts of unittest modules alone, where `RAISED` covers failed assertions.
    """

    PASSED = "passed"
    FAILED = "failed"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    OUTPUT_LIMIT = "output_limit"
    LOAD_ERROR = "load_error"
    UNSCORED = "unscored"
    SKIPPED = "skipped"
    TAMPERED = "tampered"


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

    @property
    def verdict(self) -> Verdict:
        """The verdict of a test whose call gave this instead of a value."""
        # UNENCODABLE: the call answered, with something that cannot be compared.
        return Verdict.FAILED if self is AnswerKind.UNENCODABLE else Verdict(self.value)


class Value:
    """A returned value; wrapped, so that a returned None is not "no value".

    `wire` is its encoding, `data` the value rebuilt from it when first asked for: a builtin or one of the types of
    `sandbox.values`, among them `Unreadable` for text that is not an encoding.
    """

    __slots__ = ("_data", "wire")

    def __init__(self, data: object = _UNREAD, wire: str = "") -> None:
        self._data = data
        self.wire = wire

    @property
    def data(self) -> object:
        """The value, decoded on first use; `Unreadable` where the wire is not an encoding."""
        if self._data is _UNREAD:
            try:
                self._data = decode(self.wire)
            except Undecodable as fault:
                self._data = Unreadable(str(fault))
        return self._data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.wire)

    def __repr__(self) -> str:
        return f"Value({self.data!r})"

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (_of_wire, (self.wire,)) if self._data is _UNREAD else (Value, (self._data, self.wire))


def _of_wire(wire: str) -> Value:
    return Value(wire=wire)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call gave: `value` only for `AnswerKind.VALUE`, `detail` why there is no value.

    seconds: the processor time that a value took, as the program's own process says: believe it of a reference alone.
    Of a time-out, what was used when it ran out; 0 when the clock ended the call, and a busy machine may be to blame.
    """

    kind: AnswerKind
    value: Value | None = None
    detail: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def text(self) -> str:
        """What to show: the value, else the detail."""
        return self.detail if self.value is None else show(self.value.data)


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference answers to one call; without `valid` the call is not a test, for the given `reason`.

    `reason` is "unscored" when the sandbox failed and nothing is known about the call. seconds: the processor time that
    a valid answer took; of a call that ran out of it, the limit. load_seconds: what loading the reference took.
    """

    call: str
    valid: bool
    value: object = None
    text: str = ""
    reason: str = ""
    wire: str = ""
    seconds: float = field(default=0.0, compare=False)
    load_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """What one test of a unittest module came to; `detail` says why it did not pass."""

    __test__ = False  # not a test class of pytest's

    verdict: Verdict
    detail: str = ""


def verdict_of(answer: Answer, equal: bool) -> Verdict:
    """The verdict of a test whose call gave `answer`; `equal` counts only where there is a value."""
    if answer.kind is AnswerKind.VALUE:
        return Verdict.PASSED if equal else Verdict.FAILED
    return answer.kind.verdict
