"""A program's processes where a namespace is missing: ending all of them, and room for them. Standard library only.

Without a pid namespace the zygote is the subreaper of its children, so every descendant stays below it. Killing one
process of a fork bomb only makes room for the next; so all are stopped first, which frees no place, until none is left
running. Without a user namespace a program shares the limit on processes (RLIMIT_NPROC counts tasks by user) with other
work of the same user. So the limit is set above what runs already, with some to spare, and what is short afterwards is
no fault of the program.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time

PATIENCE_S = 20.0
SPARE = 128
"""Tasks that other work may start while a program runs."""


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


def _reap(ends: dict[int, int]) -> bool:
    """Buries what is dead and notes its wait status; whether no child is left."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if not os.WIFSTOPPED(found[1]):  # as a traced one does before its end
                ends[found[0]] = found[1]
    except ChildProcessError:
        return True
    return False


def end_all(proc: int) -> dict[int, int]:
    """Ends every descendant of this process; the wait statuses of those that became its children, by process.

    `proc` is a descriptor of /proc. Raises TimeoutError when that fails.
    """
    deadline = time.monotonic() + PATIENCE_S
    ends: dict[int, int] = {}
    while not _reap(ends):
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
    return ends


def tasks(proc: int, user: int) -> int:
    """Processes and threads of a user, as far as /proc (a descriptor) shows them."""
    count = 0
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                if os.stat(name, dir_fd=proc).st_uid == user:
                    count += os.stat(name + "/task", dir_fd=proc).st_nlink - 2
            except OSError:
                pass
    return count


class Room:
    """The room beside a user's other tasks; `proc` is a descriptor of /proc."""

    def __init__(self, proc: int, user: int) -> None:
        self.proc, self.user = proc, user
        self.others = 0

    def make(self, processes: int) -> int:
        """The limit that leaves room for so many processes. Raises OSError where the user may not have so many."""
        self.others = tasks(self.proc, self.user)
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        if hard != resource.RLIM_INFINITY and self.others + processes > hard:
            raise OSError(f"user {self.user} runs {self.others} tasks and may have {hard}")
        return self.others + SPARE + processes

    def was_short(self) -> bool:
        """Whether other work has taken more than there was to spare."""
        return tasks(self.proc, self.user) > self.others + SPARE
