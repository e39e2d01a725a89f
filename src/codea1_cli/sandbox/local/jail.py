"""The layers around a child: which of them this host grants, and how a child enters and leaves them.

Standard library only. The zygote tries every layer once at its start; what fails is named, and the next best thing
takes its place where there is one (`seccomp.build` knows which calls a missing layer leaves open).
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys

import kernel
import landlock
import room
import seccomp
import strays
import users

NOBODY = 65534
_PER_CHILD = (("pid_namespace", kernel.CLONE_NEWPID), ("ipc_namespace", kernel.CLONE_NEWIPC))
_TRIAL = {"output_kb": 4096, "memory_mb": 1024, "cpu_s": 60, "processes": 64}


class Jail:
    """Prepared once in the zygote. `setup`: `stage` (an empty folder), `hidden` (paths), `without` (layer names)."""

    def __init__(self, setup: dict, virtual: int) -> None:
        self.virtual = virtual
        self.without = frozenset(setup["without"])
        self.layers: dict[str, str] = {}  # name: empty when it works, else why not
        installed = [os.path.join(path, "codea1_cli") for path in sys.path]
        self.hidden = [os.path.realpath(path) for path in [*setup["hidden"], *installed] if os.path.isdir(path)]
        self.paths = room.readable_paths()
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)  # the room has none
        self.demote = False  # a child has to give up uid 0 by itself
        self.enter_namespaces(setup["stage"])
        self.ruleset = -1
        self.attempt("landlock", self.make_ruleset)
        self.flags = 0
        for name, flag in _PER_CHILD:
            if name not in self.layers and self.attempt(name, lambda flag=flag: in_fork(_nothing, flag)):
                self.flags |= flag
        if not self.layers["mount_namespace"]:
            self.flags |= kernel.CLONE_NEWNS
        self.missing = frozenset(name for name, fault in self.layers.items() if fault)
        self.attempt("rlimits", lambda: in_fork(lambda: self.limit(_TRIAL)))
        self.attempt("no_new_privs", lambda: in_fork(_no_new_privs))
        self.filter_ready = seccomp.Filter(seccomp.build(self.missing, os.getpid()))
        self.attempt("seccomp", lambda: in_fork(self.filter))
        self.missing = frozenset(name for name, fault in self.layers.items() if fault)
        self.alone = "pid_namespace" not in self.missing
        self.scratch = "" if "mount_namespace" in self.missing else room.SCRATCH
        self.home = "/tmp" if self.scratch and os.path.islink("/tmp") else self.scratch or "/"
        if not self.alone:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)

    def attempt(self, name: str, action) -> bool:
        """Runs `action`; whether it worked, and why not, is what `layers` says of `name`."""
        self.layers[name] = "switched off"
        if name in self.without:
            return False
        try:
            action()
        except OSError as fault:
            self.layers[name] = fault.strerror or str(fault)
            return False
        self.layers[name] = ""
        return True

    def enter_namespaces(self, stage: str) -> None:
        root = os.geteuid() == 0
        identity = os.getuid(), os.getgid()
        has_users = self.attempt("user_namespace", lambda: in_fork(lambda: users.enter(*identity, *identity)))
        if has_users and not root:
            users.enter(*identity, *identity)
        in_place = self.attempt("mount_namespace", lambda: in_fork(lambda: self.build_room(stage)))
        scribe = users.Scribe() if root and has_users else None  # forked before the old file tree goes
        if in_place:
            self.build_room(stage)
        if root:
            readable = not in_fork_fails(self.try_as_nobody)
            if scribe is not None:
                target = (NOBODY, NOBODY) if readable else identity
                kernel.unshare(kernel.CLONE_NEWUSER | (kernel.CLONE_NEWNS if in_place else 0))
                scribe.map(*target)
                if readable:
                    users.become(NOBODY)
            else:
                self.demote = readable
        if self.attempt("net_namespace", lambda: in_fork(_nothing, kernel.CLONE_NEWNET)):
            kernel.unshare(kernel.CLONE_NEWNET)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user clears it

    def build_room(self, stage: str) -> None:
        kernel.unshare(kernel.CLONE_NEWNS)
        room.build(stage, self.paths, self.hidden)

    def try_as_nobody(self) -> None:
        users.become(NOBODY)
        os.listdir(os.path.dirname(os.__file__))
        os.close(os.open(os.__file__, os.O_RDONLY))

    def make_ruleset(self) -> None:
        writable = ["/box"] if not self.layers["mount_namespace"] else []
        self.ruleset = landlock.build(self.paths, writable, self.hidden, room.DEVICES)
        in_fork(self.restrict)

    def restrict(self) -> None:
        _no_new_privs()
        landlock.restrict(self.ruleset)

    def filter(self) -> None:
        _no_new_privs()
        if "pid_namespace" in self.missing:  # then the filter names the one process that may be signalled
            self.filter_ready = seccomp.Filter(seccomp.build(self.missing, os.getpid()))
        self.filter_ready.install()

    def limit(self, request: dict) -> None:
        """Resource limits, soft and hard alike."""
        size = request["output_kb"] * 1024
        for what, value in (
            (resource.RLIMIT_AS, self.virtual + (request["memory_mb"] << 20)),
            (resource.RLIMIT_CPU, request["cpu_s"]),
            (resource.RLIMIT_FSIZE, size),
            (resource.RLIMIT_NPROC, request["processes"]),
            (resource.RLIMIT_NOFILE, 256),
            (resource.RLIMIT_STACK, 64 << 20),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_MEMLOCK, 65536),
            (resource.RLIMIT_MSGQUEUE, 65536),
            (resource.RLIMIT_NICE, 0),
            (resource.RLIMIT_RTPRIO, 0),
        ):
            hard = resource.getrlimit(what)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(what, (value, value))

    def enter(self, request: dict, sink: int) -> None:
        """Closes the jail around this process, the child."""
        os.setsid()
        fcntl.fcntl(sink, fcntl.F_SETFL, os.O_APPEND)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (sink, 1), (sink, 2)):
            os.dup2(source, target)
        os.close(null)
        if self.scratch:
            room.mount_scratch(64)
        os.chdir(self.scratch or "/")
        if not self.layers["rlimits"]:
            self.limit(request)
        if self.demote:
            users.become(NOBODY)
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        for name, close in (("no_new_privs", _no_new_privs), ("landlock", self.restrict), ("seccomp", self.filter)):
            if not self.layers[name]:
                close()
        if self.ruleset >= 0:
            os.close(self.ruleset)
        os.close(self.proc)

    def end(self, pid: int):
        """Kills the child with all that it started; its wait status and resource usage."""
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        if not self.alone:
            strays.end_all(self.proc)
        return status, usage


def _nothing() -> None:
    pass


def _no_new_privs() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)


def in_fork(action, flags: int = 0) -> None:
    """Tries an action in a child that ends at once. Raises OSError with what the action raised."""
    pid = kernel.fork_into(flags)
    if pid == 0:
        code = 250
        try:
            action()
            code = 0
        except OSError as fault:
            code = fault.errno or 250
        finally:
            os._exit(min(code, 250))
    status = os.waitpid(pid, 0)[1]
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise OSError(code, os.strerror(code) if 0 < code < 134 else f"trial ended with status {code}")


def in_fork_fails(action) -> bool:
    try:
        in_fork(action)
    except OSError:
        return True
    return False
