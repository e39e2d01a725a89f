"""Ending all that a child started, on a host without pid namespaces. Standard library only.

The zygote is the subreaper of its children, so every descendant stays below it. Killing one process of a fork bomb
only makes room for the next; so all are stopped first, which frees no place, until none is left running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

PATIENCE_S = 20.0


def _parents(proc: int) -> dict[int, int]:
    """Parent by process, of all that /proc shows."""
    found = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                with open(os.open(name + "/stat", os.O_RDONLY, dir_fd=proc), "rb") as file:
                    found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                pass
    return found


def _descendants(proc: int) -> set[int]:
    parents = _parents(proc)
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        if not more:
            return found - {os.getpid()}
        found |= more


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _reap() -> bool:
    """Buries what is dead; whether no child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def end_all(proc: int) -> None:
    """Ends every descendant of this process; `proc` is a descriptor of /proc. Raises TimeoutError when that fails."""
    deadline = time.monotonic() + PATIENCE_S
    while not _reap():
        stopped: set[int] = set()
        while time.monotonic() < deadline:
            running = _descendants(proc) - stopped
            if not running:
                break
            _signal(running, signal.SIGSTOP)
            stopped |= running
        _signal(_descendants(proc), signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError("processes of a program could not be ended")
        time.sleep(0.002)
