"""Following one child: its frames, its deadlines, its end."""

from __future__ import annotations

import math
import os
import select
import time
from dataclasses import dataclass, field

from codea1_cli.sandbox.local.cgroup import Group
from codea1_cli.sandbox.local.frames import Frame, FrameReader, Garbage


@dataclass(slots=True)
class Watched:
    """What was seen of one child: its answers, how it ended ("done", "exited", "timeout", "garbage"), its status."""

    reader: FrameReader
    answers: list[Frame] = field(default_factory=list)
    ended: str = ""
    gone: bool = False
    detail: str = ""
    status: int = 0
    load_seconds: float = 0.0
    out_of_memory: bool = False


def follow(
    seen: Watched,
    pipe: int,
    pid: int,
    load_s: float,
    call_s: float,
    group: Group | None,
    total_s: float = math.inf,
) -> None:
    """Reads frames until the child is done, gone, late or out of order; `total_s` bounds all of it.

    The child's exit wakes this thread; while it lives its frames are fetched now and then, since waking for every one
    costs more than most calls do. A deadline is only looked at when nothing is left to read, so a slow parent never
    makes a call late; and the time that the child waited for a processor is given back, up to half a limit more.
    """
    began = time.monotonic()
    limit, deadline, given = load_s, began + load_s, 0.0
    longest = min(0.02, call_s / 20)
    pause = min(0.006, longest)
    offered = False
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    try:
        while not seen.ended:
            left = deadline - time.monotonic()
            seen.gone = bool(poller.poll(1000 * max(0.0, min(pause, left))))
            was_loaded = seen.reader.loaded
            fresh = _drain(pipe, seen)
            if seen.reader.loaded and not was_loaded:
                seen.load_seconds = time.monotonic() - began
            if fresh or seen.reader.loaded != was_loaded:
                limit, deadline, pause = call_s, min(time.monotonic() + call_s, began + total_s), 0.001
            if seen.ended:
                return
            if seen.reader.done or seen.reader.load_failure is not None:
                seen.ended = "done"
            elif seen.gone:
                seen.ended = "exited"
            elif time.monotonic() >= deadline:
                extra = min(_waited(pid) - given, limit / 2)
                if extra > 0.01:
                    given += extra
                    deadline = time.monotonic() + extra
                else:
                    seen.ended = "timeout"
            else:
                pause = min(2 * pause, longest)
                if group is not None and not offered:
                    group.offer(pid)
                    offered = True
    finally:
        os.close(ended)


def _drain(pipe: int, seen: Watched) -> int:
    """Reads all that is there; how many answers came."""
    fresh = 0
    while True:
        try:
            data = os.read(pipe, 1 << 18)
        except BlockingIOError:
            return fresh
        if not data:
            return fresh
        try:
            answers = seen.reader.feed(data)
        except Garbage as fault:
            seen.ended, seen.detail = "garbage", str(fault)
            return fresh
        seen.answers += answers
        fresh += len(answers)


def _waited(pid: int) -> float:
    """Seconds that a process was ready to run and had no processor."""
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
