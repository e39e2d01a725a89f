"""One program's run, put together from what its children answered."""

from __future__ import annotations

import math
import os
import signal
from typing import Any, Protocol

from codea1_cli.sandbox.base import Limits, ProgramRun
from codea1_cli.sandbox.local.frames import Frame, Kind
from codea1_cli.sandbox.local.watched import Watched
from codea1_cli.sandbox.verdicts import Answer, AnswerKind, Value

_KINDS = {
    Kind.RAISED: AnswerKind.RAISED,
    Kind.MEMORY: AnswerKind.MEMORY,
    Kind.OUTPUT: AnswerKind.OUTPUT_LIMIT,
    Kind.REFUSED: AnswerKind.UNENCODABLE,
    Kind.CRASHED: AnswerKind.CRASHED,
    Kind.LOAD_ERROR: AnswerKind.LOAD_ERROR,
}
_RELOAD_LIMITS = 3  # a program may spend this many load limits on being loaded again


class Watch(Protocol):
    """Starts a child on the calls from `start` on and follows it to its end."""

    def __call__(self, start: int, calls: int, request: dict[str, Any], load_s: float, call_s: float) -> Watched: ...


def run_program(watch: Watch, calls: int, limits: Limits) -> ProgramRun:
    """A child for all calls, and a further one after each call that ended a child."""
    answers: list[Answer] = []
    late, loading = 0, 0.0
    while True:
        call_s = limits.time_s if late < limits.patience else min(limits.time_s, max(limits.time_s / 8, 0.25))
        request = {
            "memory_mb": limits.memory_mb,
            "output_kb": limits.output_kb,
            "processes": limits.processes,
            "again": loading <= _RELOAD_LIMITS * limits.load_limit_s,
            "cpu_s": math.ceil(limits.load_limit_s + (calls - len(answers)) * limits.time_s) + 2,
        }
        seen = watch(len(answers), calls, request, limits.load_limit_s, call_s)
        answers += [_answer(frame) for frame in seen.answers]
        loading += seen.load_seconds
        if not seen.reader.loaded:
            fault = _load_failure(seen)
            first = not answers
            answers += [fault] * (calls - len(answers))
            if first:
                return ProgramRun(False, fault.detail, answers, load_kind=fault.kind)
            return ProgramRun(True, "", answers)
        if seen.ended == "done":
            if seen.reader.again:
                continue
            return ProgramRun(True, "", answers)
        end = end_of_call(seen)
        late += end.kind is AnswerKind.TIMEOUT
        over = seen.ended == "garbage" or loading > _RELOAD_LIMITS * limits.load_limit_s
        answers += [end] * (calls - len(answers) if over else min(1, calls - len(answers)))
        if len(answers) == calls:
            return ProgramRun(True, "", answers)


def _answer(frame: Frame) -> Answer:
    if frame.kind is not Kind.VALUE:
        return Answer(_KINDS[frame.kind], detail=frame.payload[:400].decode("utf-8", "replace"))
    return Answer(AnswerKind.VALUE, Value(wire=frame.payload.decode("ascii", "replace")))


def _load_failure(seen: Watched) -> Answer:
    failure = seen.reader.load_failure
    if failure is not None:
        return _answer(failure)
    end = end_of_call(seen)
    return Answer(end.kind, detail=f"while loading: {end.detail}")


def end_of_call(seen: Watched) -> Answer:
    """Why a child ended before it had answered."""
    if seen.ended == "timeout":
        return Answer(AnswerKind.TIMEOUT, detail="time limit")
    if seen.ended == "garbage":
        return Answer(AnswerKind.CRASHED, detail=f"wrote to the result channel: {seen.detail}")
    if seen.out_of_memory:
        return Answer(AnswerKind.MEMORY, detail="memory limit")
    if os.WIFSIGNALED(seen.status):
        number = os.WTERMSIG(seen.status)
        kinds = {signal.SIGXCPU: AnswerKind.TIMEOUT, signal.SIGXFSZ: AnswerKind.OUTPUT_LIMIT}
        return Answer(kinds.get(number, AnswerKind.CRASHED), detail=signal.Signals(number).name)  # type: ignore[call-overload]
    return Answer(AnswerKind.CRASHED, detail=f"ended with exit status {os.WEXITSTATUS(seen.status)}")
