"""Following one child: its frames, its deadlines, its end.

Nothing in a frame is trusted: whatever breaks their order ends the program's run.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from codea1_cli.sandbox.local.cgroup import Cgroup

MAX_PAYLOAD = 8 << 20
MAX_TOTAL = 64 << 20
_STANDSTILL_S = 0.5
_NEW_S = 0.02  # most calls are over by then, and nobody need look at their processor time


class Kind(IntEnum):
    """The first byte of a frame (`jailed/child.py` has the same letters); names as in AnswerKind where it has them."""

    BEGUN = ord("B")
    LOADED = ord("L")
    VALUE = ord("V")
    RAISED = ord("R")
    MEMORY = ord("M")
    OUTPUT_LIMIT = ord("O")
    UNENCODABLE = ord("X")  # from a unittest module: the program tampered with what tests rest on
    CRASHED = ord("C")
    LOAD_ERROR = ord("E")
    DONE = ord("D")
    AGAIN = ord("A")


class Frame(NamedTuple):
    """One message of a child: `call` counts the calls (or tests) from 0."""

    kind: Kind
    call: int
    payload: bytes


class Garbage(Exception):
    """Bytes that are not a frame, or a frame out of its turn."""


class FrameReader:
    """Splits a byte stream into frames and holds them to their order: BEGUN, a load result, an answer per call, DONE.

    BEGUN comes from us, before the program runs: a child that ends without it is our failure. AGAIN stands for DONE
    after at least one answer: the program wants to be loaded afresh for the rest.
    """

    def __init__(self, start: int, calls: int) -> None:
        self._buffer = bytearray()
        self._total = 0
        self._next = self._start = start
        self._calls = calls
        self.begun = self.loaded = False
        self.load_failure: Frame | None = None
        self.done = False
        self.again = False

    def feed(self, data: bytes) -> list[Frame]:
        """The answers that `data` completes. Raises Garbage."""
        self._buffer += data
        self._total += len(data)
        if self._total > MAX_TOTAL:
            raise Garbage("too much of it")
        answers = []
        while len(self._buffer) >= 4:
            length = int.from_bytes(self._buffer[:4], "little")
            if not 5 <= length <= MAX_PAYLOAD:
                raise Garbage(f"a frame of {length} bytes")
            if len(self._buffer) < 4 + length:
                break
            body = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            try:
                frame = Frame(Kind(body[0]), int.from_bytes(body[1:5], "little"), body[5:])
            except ValueError:
                raise Garbage("a frame of unknown kind") from None
            if self._place(frame):
                answers.append(frame)
        return answers

    def _place(self, frame: Frame) -> bool:
        """Whether the frame answers a call; Garbage when it is not its turn."""
        if self.done or self.load_failure is not None or frame.call != self._next:
            raise Garbage("a frame out of its turn")
        if not self.begun:
            if frame.kind is not Kind.BEGUN:
                raise Garbage("a frame before the program began")
            self.begun = True
            return False
        if not self.loaded:
            if frame.kind is Kind.LOADED:
                self.loaded = True
            elif frame.kind in (Kind.LOAD_ERROR, Kind.MEMORY, Kind.OUTPUT_LIMIT):
                self.load_failure = frame
            else:
                raise Garbage("an answer before the program was loaded")
            return False
        if frame.kind is Kind.DONE and frame.call == self._calls:
            self.done = True
            return False
        if frame.kind is Kind.AGAIN and self._next > self._start and frame.call < self._calls:
            self.done = self.again = True
            return False
        if frame.kind in (Kind.BEGUN, Kind.LOADED, Kind.LOAD_ERROR, Kind.DONE, Kind.AGAIN) or frame.call >= self._calls:
            raise Garbage("a frame out of its turn")
        self._next += 1
        return True


@dataclass(slots=True)
class ChildReport:
    """What was seen of one child: its answers, its status, how it ended ("done", "exited", "timeout", "garbage", or
    "enough": another goes on with its calls). `cpu_seconds` is what a call had used when it ran out of processor time.
    `refused`: the kernel refused it, or the program, a process, a thread or memory, though there was room when it had
    ended."""

    reader: FrameReader
    answers: list[Frame] = field(default_factory=list)
    ended: str = ""
    gone: bool = False
    detail: str = ""
    status: int = 0
    load_seconds: float = 0.0
    cpu_seconds: float = 0.0
    out_of_memory: bool = False
    refused: bool = False

    def says(self, kind: Kind, *words: bytes) -> bool:
        """Whether an answer of this kind, or the program's failure to load, has one of the words in its text."""
        frames = [frame for frame in self.answers if frame.kind is kind]
        frames += [self.reader.load_failure] if self.reader.load_failure is not None else []
        return any(word in frame.payload for frame in frames for word in words)


def follow(
    seen: ChildReport,
    pipe: int,
    pid: int,
    load_s: float,
    call_s: float,
    group: Cgroup | None,
    cpu_s: float = math.inf,
    enough_s: float = math.inf,
    load_cpu_s: float = math.inf,
    total_s: float = math.inf,
) -> None:
    """Reads frames until the child is done, gone, late or out of order, or has answered calls for longer than
    `enough_s` and than its loading took. `total_s` bounds all of it, `cpu_s` the processor time of a call, `load_cpu_s`
    that of loading.

    The child's exit wakes this thread; while it lives its frames are fetched now and then, since waking for every one
    costs more than most calls do. A deadline is only looked at when nothing is left to read, so a slow parent never
    makes a call late; and the time that the child waited for a processor is given back, up to half a limit more.
    """
    began = time.monotonic()
    limit, deadline = load_s, began + load_s
    extended = 0.0  # what was given back of this limit
    most = load_cpu_s  # processor time
    look = math.inf if most == math.inf else began + _NEW_S  # when to look at it
    used = 0.0  # what it was when the call was new
    longest = min(0.02, call_s / 20)
    pause = min(0.006, longest)
    offered = False
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    try:
        while not seen.ended:
            looked = time.monotonic()
            seen.gone = bool(poller.poll(1000 * max(0.0, min(pause, deadline - looked))))
            stood_still = time.monotonic() - looked - pause
            if stood_still > _STANDSTILL_S:  # this process was stopped, and its child with it: a frozen service, say
                deadline += stood_still
            was_loaded = seen.reader.loaded
            fresh, size = _drain(pipe, seen)
            if seen.reader.loaded and not was_loaded:
                seen.load_seconds = time.monotonic() - began
            if fresh or seen.reader.loaded != was_loaded:
                limit, deadline, pause = call_s, min(time.monotonic() + call_s, began + total_s), 0.001
                extended = 0.0
                most = cpu_s
                look, used = (math.inf if most == math.inf else time.monotonic() + _NEW_S), -1.0
            if seen.ended:
                return
            if seen.reader.done or seen.reader.load_failure is not None:
                seen.ended = "done"
            elif seen.gone:
                seen.ended = "exited"
            elif fresh and time.monotonic() - began - seen.load_seconds > max(enough_s, seen.load_seconds):
                seen.ended = "enough"
            elif time.monotonic() >= deadline:
                extra = min(waited(pid), limit / 2) - extended
                if extra > 0.01:
                    extended += extra
                    deadline = time.monotonic() + extra
                else:
                    seen.ended = "timeout"
            elif time.monotonic() >= look:
                now = cpu_seconds(pid)
                used = now if used < 0 else used
                if now - used >= most:
                    seen.ended, seen.cpu_seconds = "timeout", now - used
                look = time.monotonic() + max(most - (now - used), 0.01)
            else:
                pause = 0.001 if size else min(2 * pause, longest)  # a long answer waits for room in the pipe
                if group is not None and not offered:
                    group.offer(pid)
                    offered = True
    finally:
        os.close(ended)


def _drain(pipe: int, seen: ChildReport) -> tuple[int, int]:
    """Reads all that is there; how many answers and bytes came."""
    fresh = size = 0
    while True:
        try:
            data = os.read(pipe, 1 << 18)
        except BlockingIOError:
            return fresh, size
        if not data:
            return fresh, size
        size += len(data)
        try:
            answers = seen.reader.feed(data)
        except Garbage as fault:
            seen.ended, seen.detail = "garbage", str(fault)
            return fresh, size
        seen.answers += answers
        fresh += len(answers)


def waited(pid: int) -> float:
    """Seconds that a process, or the child of it that answers in its place, was ready to run and had no processor."""
    longest = 0.0
    with contextlib.suppress(OSError, IndexError, ValueError):
        for one in _with_children(pid):
            waited = Path(f"/proc/{one}/schedstat").read_text("ascii").split()[1]
            longest = max(longest, int(waited) / 1e9)
    return longest


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children, those that it has buried among them; 0 where nothing is known."""
    ticks = 0
    with contextlib.suppress(OSError, IndexError, ValueError):
        for one in _with_children(pid):
            stat = Path(f"/proc/{one}/stat").read_text("ascii", "replace")
            ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _with_children(pid: int) -> list[str]:
    return [str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
