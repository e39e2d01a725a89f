"""What the jail asks of the kernel: raw system calls through ctypes (numbers by architecture, one error path), and a
program's processes where a namespace is missing: ending all of them, and room for them. Standard library only, Linux.

Without a pid namespace the zygote is the subreaper of its children, so every descendant stays below it. Killing one
process of a fork bomb only makes room for the next; so all are stopped first, which frees no place, until none is left
running. Without a user namespace a program shares the limit on processes (RLIMIT_NPROC counts tasks by user) with other
work of the same user. So the limit is set above what runs already, with some to spare, and what is short afterwards is
no fault of the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import time

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
SIGCHLD = 17

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

MACHINE = platform.machine()
# What the newest architectures share has one number; the others are (x86_64, aarch64).
_SHARED = {
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
_SPLIT = {"clone": (56, 220), "pivot_root": (155, 41), "capset": (126, 91), "seccomp": (317, 277)}

# PyDLL keeps the interpreter lock: a raw clone must not let another thread in between.
_locked = ctypes.PyDLL(None, use_errno=True)
_libc = ctypes.CDLL(None, use_errno=True)
_locked.syscall.restype = ctypes.c_long
_locked.syscall.argtypes = [ctypes.c_long] * 6
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]


def number(name: str) -> int:
    """The system call's number here. Raises OSError on an architecture that has no table."""
    if name in _SHARED:
        return _SHARED[name]
    if MACHINE not in ("x86_64", "aarch64"):
        raise OSError(38, "no system call table for " + MACHINE)
    return _SPLIT[name][0 if MACHINE == "x86_64" else 1]


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def call(name: str, *args: int) -> int:
    """One system call on integers (pass buffers by `ctypes.addressof`)."""
    padded = list(args) + [0] * (5 - len(args))
    return _check(_locked.syscall(number(name), *padded), name)


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument. Raises OSError."""
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def unshare(flags: int) -> None:
    """unshare(2): new namespaces for this process. Raises OSError."""
    _check(_libc.unshare(flags), f"unshare {flags:x}")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2). Raises OSError."""
    raw = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _check(_libc.mount(raw[0], raw[1], raw[2], flags, raw[3]), "mount " + target)


def umount(target: str, flags: int) -> None:
    """umount2(2). Raises OSError."""
    _check(_libc.umount2(os.fsencode(target), flags), "umount " + target)


def fork_into(flags: int) -> int:
    """A fork by one raw clone, into new namespaces; returns 0 in the child. Only for a process of one thread.

    Python's fork hooks stay out: with one thread there is nothing for them to mend, and running them in the child
    (random, threading and logging each have one) costs more than the fork.
    """
    return _check(_locked.syscall(number("clone"), flags | SIGCHLD, 0, 0, 0, 0), f"clone {flags:x}")


_CAP_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)
_CAP_NONE = (ctypes.c_uint32 * 6)()


def drop_capabilities() -> None:
    """No capability in any set; with no_new_privs none comes back by running a program, not even as uid 0."""
    call("capset", ctypes.addressof(_CAP_HEADER), ctypes.addressof(_CAP_NONE))


def address(buffer) -> int:
    """Where a ctypes buffer lies."""
    return ctypes.addressof(buffer)


def text(value: str):
    """A C string, to be kept for as long as its address is used."""
    return ctypes.create_string_buffer(os.fsencode(value))


def words(*values: int):
    """An array of 64-bit words."""
    return (ctypes.c_uint64 * len(values))(*values)


def virtual_bytes() -> int:
    """The address space of this process; 256 MiB where /proc does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 256 << 20


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


def try_processes(count: int) -> None:
    """Has so many processes at once, for a moment. Raises OSError where the kernel refuses one."""
    pids = []
    try:
        for _ in range(count):
            pid = fork_into(0)
            if pid == 0:
                while True:
                    signal.pause()
            pids.append(pid)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


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
