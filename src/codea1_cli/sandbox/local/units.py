"""One unittest module's run, put together from what its keeper answered (`local.unit`)."""

from __future__ import annotations

import math
from collections.abc import Callable

from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local.frames import Frame, Kind
from codea1_cli.sandbox.local.programs import end_of_call
from codea1_cli.sandbox.local.watched import Watched
from codea1_cli.sandbox.units import Outcome, TestOutcome, UnitModule, UnitRun

_KINDS = {
    Kind.RAISED: Outcome.RAISED,
    Kind.MEMORY: Outcome.MEMORY,
    Kind.OUTPUT: Outcome.OUTPUT_LIMIT,
    Kind.REFUSED: Outcome.TAMPERED,
    Kind.CRASHED: Outcome.CRASHED,
    Kind.LOAD_ERROR: Outcome.LOAD_ERROR,
}


def run_module(watch: Callable[..., Watched], module: UnitModule, head: int, limits: Limits) -> UnitRun:
    """One child for the whole module: a test that ends it ends the tests after it."""
    expected = len(module.names) + 1
    request = {
        "memory_mb": limits.memory_mb,
        "output_kb": limits.output_kb,
        "processes": limits.processes,
        "cpu_s": 4 * math.ceil(limits.time_s) + 2,  # of each process; threads count together
        "again": False,
        "head": head,
    }
    seen = watch(0, expected, request, limits.time_s, limits.time_s, limits.time_s)
    outcomes = [_outcome(frame) for frame in seen.answers]
    loaded = seen.reader.loaded
    if seen.reader.load_failure is not None:
        outcomes = [_outcome(seen.reader.load_failure)] * expected
    elif len(outcomes) < expected or seen.ended != "done":
        end = end_of_call(seen)
        late = TestOutcome(Outcome(end.kind.value), end.detail)
        crashed = bool(outcomes) and outcomes[-1].kind is Outcome.CRASHED
        outcomes += [outcomes[-1] if crashed else late] * (expected - len(outcomes))
    return UnitRun(loaded, outcomes[:-1], outcomes[-1])


def _outcome(frame: Frame) -> TestOutcome:
    detail = frame.payload[:1000].decode("utf-8", "replace")
    if frame.kind is not Kind.VALUE:
        return TestOutcome(_KINDS[frame.kind], detail)
    return TestOutcome(Outcome.SKIPPED) if detail == "skip" else TestOutcome(Outcome.OK)
