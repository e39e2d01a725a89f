"""One program's run, or one unittest module's, put together from what the children answered."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from codea1_cli.sandbox.base import Limits, ProgramRun, UnitModule, UnitRun
from codea1_cli.sandbox.local.child_monitor import ChildReport, Frame, Kind
from codea1_cli.sandbox.verdicts import Answer, AnswerKind, TestOutcome, Value, Verdict

_CLOCK = 8  # digits before a value: the microseconds that it took (`jailed/child.py`)
_RELOAD_LIMITS = 3  # a program may spend this many load limits on being loaded again


class Watch(Protocol):
    """Starts a child on the calls from `start` on and follows it to its end."""

    def __call__(
        self,
        start: int,
        calls: int,
        request: dict[str, Any],
        load_s: float,
        call_s: float,
        cpu_s: float,
        enough_s: float,
        load_cpu_s: float,
    ) -> ChildReport: ...


def run_program(watch: Watch, calls: int, limits: Limits) -> ProgramRun:
    """A child for all calls, and a further one after each call that ended a child."""
    answers: list[Answer] = []
    late, loading, first_loading = 0, 0.0, 0.0
    refused = False
    while True:
        call_s, cpu_s = limits.time_s, limits.cpu_s
        if late >= limits.patience:
            call_s, cpu_s = min(call_s, max(call_s / 8, 0.25)), min(cpu_s, max(cpu_s / 8, 0.05))
        request = {
            "memory_mb": limits.memory_mb,
            "output_kb": limits.output_kb,
            "processes": limits.processes,
            "again": loading <= _RELOAD_LIMITS * limits.load_limit_s,
            "cpu_s": math.ceil(limits.load_limit_s + (calls - len(answers)) * limits.time_s) + 2,
        }
        bounds = (limits.load_limit_s, call_s, cpu_s, limits.enough_s, limits.load_cpu_s)
        seen = watch(len(answers), calls, request, *bounds)
        if seen.refused and not refused:
            refused = True  # whoever took the room may have left just now: if it is the program, it is refused again
            continue
        answers += [_answer(frame) for frame in seen.answers]
        loading += seen.load_seconds
        first_loading = first_loading or seen.load_seconds
        if not seen.reader.loaded:
            fault = _load_failure(seen)
            first = not answers
            answers += [fault] * (calls - len(answers))
            if first:
                return ProgramRun(False, fault.detail, answers, load_kind=fault.kind)
            return ProgramRun(True, "", answers, load_seconds=first_loading)
        if seen.ended == "done" and seen.reader.again:
            continue
        if seen.ended in ("done", "enough"):
            return ProgramRun(True, "", answers, load_seconds=first_loading)
        end = end_of_call(seen)
        late += end.kind is AnswerKind.TIMEOUT
        over = seen.ended == "garbage" or loading > _RELOAD_LIMITS * limits.load_limit_s
        answers += [end] * (calls - len(answers) if over else min(1, calls - len(answers)))
        if len(answers) == calls or (end.kind is AnswerKind.TIMEOUT and late == limits.stop_after):
            return ProgramRun(True, "", answers, load_seconds=first_loading)


def _answer(frame: Frame) -> Answer:
    if frame.kind is not Kind.VALUE:
        return Answer(AnswerKind[frame.kind.name], detail=frame.payload[:400].decode("utf-8", "replace"))
    text = frame.payload.decode("ascii", "replace")
    try:
        seconds = int(text[:_CLOCK], 16) / 1e6
    except ValueError:  # a program's own frame
        seconds = 0.0
    return Answer(AnswerKind.VALUE, Value(wire=text[_CLOCK:]), seconds=seconds)


def _load_failure(seen: ChildReport) -> Answer:
    failure = seen.reader.load_failure
    if failure is not None:
        return _answer(failure)
    end = end_of_call(seen)
    return Answer(end.kind, detail=f"while loading: {end.detail}")


def end_of_call(seen: ChildReport) -> Answer:
    """Why a child ended before it had answered."""
    if seen.ended == "timeout":
        return Answer(AnswerKind.TIMEOUT, detail="time limit", seconds=seen.cpu_seconds)
    if seen.ended == "garbage":
        return Answer(AnswerKind.CRASHED, detail=f"wrote to the result channel: {seen.detail}")
    if seen.out_of_memory:
        return Answer(AnswerKind.MEMORY, detail="memory limit")
    if os.WIFSIGNALED(seen.status):
        number = os.WTERMSIG(seen.status)
        limits = {int(signal.SIGXCPU): AnswerKind.TIMEOUT, int(signal.SIGXFSZ): AnswerKind.OUTPUT_LIMIT}
        return Answer(limits.get(number, AnswerKind.CRASHED), detail=signal_name(number))
    if seen.refused:
        return Answer(AnswerKind.CRASHED, detail="the program's processes leave none for a call")
    return Answer(AnswerKind.CRASHED, detail=f"ended with exit status {os.WEXITSTATUS(seen.status)}")


def signal_name(number: int) -> str:
    """SIGKILL and the like; "signal 40" for a real-time signal, most of which have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_module(watch: Callable[..., ChildReport], module: UnitModule, head: int, limits: Limits) -> UnitRun:
    """One child for the whole module: a test that ends it ends the tests after it.

    head: how many bytes of the job the program's process may see before it is loaded.
    """
    expected = len(module.names) + 1
    request = {
        "memory_mb": limits.memory_mb,
        "output_kb": limits.output_kb,
        "processes": limits.processes,
        "cpu_s": 4 * math.ceil(limits.time_s) + 2,  # of each process; threads count together
        "again": False,
        "head": head,
    }
    bounds = (limits.time_s, limits.time_s, math.inf, math.inf, math.inf, limits.time_s)
    watched = partial(watch, 0, expected, request, *bounds)
    seen = watched()
    if seen.refused:  # as in `run_program`
        seen = watched()
    outcomes = [_outcome(frame) for frame in seen.answers]
    loaded = seen.reader.loaded
    if seen.reader.load_failure is not None:
        outcomes = [_outcome(seen.reader.load_failure)] * expected
    elif len(outcomes) < expected or seen.ended != "done":
        end = end_of_call(seen)
        late = TestOutcome(end.kind.verdict, end.detail)
        crashed = bool(outcomes) and outcomes[-1].verdict is Verdict.CRASHED
        outcomes += [outcomes[-1] if crashed else late] * (expected - len(outcomes))
    return UnitRun(loaded, outcomes[:-1], outcomes[-1])


def _outcome(frame: Frame) -> TestOutcome:
    detail = frame.payload[:1000].decode("utf-8", "replace")
    if frame.kind is Kind.VALUE:
        return TestOutcome(Verdict.SKIPPED) if detail == "skip" else TestOutcome(Verdict.PASSED)
    verdict = Verdict.TAMPERED if frame.kind is Kind.UNENCODABLE else Verdict[frame.kind.name]
    return TestOutcome(verdict, detail)
