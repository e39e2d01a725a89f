"""Room for a program's processes where the kernel counts them with everything else that the user runs.

Without a user namespace of its own a program shares the limit on processes (RLIMIT_NPROC counts tasks by user) with
other work. So the limit is set above what runs already, with some to spare, and what is short afterwards is no fault of
the program. Standard library only.
"""

from __future__ import annotations

import os
import resource

SPARE = 128
"""Tasks that other work may start while a program runs."""


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
