"""The layers around a child: which of them this host grants, and how a child enters and leaves them.

Standard library only. The zygote tries every layer once at its start; what fails is named, and the next best thing
takes its place where there is one (`seccomp_landlock.build_filter` knows which calls a missing layer leaves open).
"""

from __future__ import annotations

import os
import resource
import signal
import sys

import kernel
import namespaces
import seccomp_landlock

NOBODY = 65534
_FIXED = (
    (resource.RLIMIT_NOFILE, 256),
    (resource.RLIMIT_STACK, 64 << 20),
    (resource.RLIMIT_CORE, 1),  # 0 lets the kernel hand a core to a program, where core_pattern names one
    (resource.RLIMIT_MEMLOCK, 65536),
    (resource.RLIMIT_MSGQUEUE, 65536),
    (resource.RLIMIT_NICE, 0),
    (resource.RLIMIT_RTPRIO, 0),
)
_TRIAL = {"output_kb": 4096, "memory_mb": 1024, "cpu_s": 60, "processes": 64}


class Jail:
    """Prepared once in the zygote.

    `setup`: `stage` (an empty folder), `hidden` (paths), `without` (layer names), `loopback` (whether a
    program may talk to itself through 127.0.0.1), `scratch_mb` (the size of its folder), `proc` (whether it finds a
    stand-in for /proc).
    """

    def __init__(self, setup: dict) -> None:
        self.virtual = kernel.virtual_bytes()
        self.loopback, self.scratch_mb, self.with_proc = setup["loopback"], setup["scratch_mb"], setup["proc"]
        self.without = frozenset(setup["without"])
        self.layers: dict[str, str] = {}  # name: empty when it works, else why not
        installed = [os.path.join(path, "codea1_cli") for path in sys.path]
        self.hidden = [os.path.realpath(path) for path in [*setup["hidden"], *installed] if os.path.isdir(path)]
        self.paths = namespaces.readable_paths()
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)  # the new file tree has none
        self.demote = False  # a child has to give up uid 0 by itself
        self.enter_namespaces(setup["stage"])
        self.ruleset = -1
        self.attempt("landlock", self.make_ruleset)
        self.flags = 0
        if self.attempt("pid_namespace", lambda: namespaces.in_fork(_nothing, kernel.CLONE_NEWPID)):
            self.flags = kernel.CLONE_NEWPID
        self.missing = frozenset(name for name, fault in self.layers.items() if fault)
        if self.attempt("rlimits", lambda: namespaces.in_fork(lambda: self.limit(_TRIAL))):
            for what, value in _FIXED:
                _limit(what, value)
        self.attempt("no_new_privs", lambda: namespaces.in_fork(_no_new_privs))
        self.filter_ready = seccomp_landlock.Filter(seccomp_landlock.build_filter(self.missing, os.getpid()))
        self.attempt("seccomp", lambda: namespaces.in_fork(self.filter))
        self.missing = frozenset(name for name, fault in self.layers.items() if fault)
        self.alone = "pid_namespace" not in self.missing
        user = NOBODY if self.demote else os.getuid()
        self.room = kernel.Room(self.proc, user) if "user_namespace" in self.missing else None
        self.scratch = "" if "mount_namespace" in self.missing else namespaces.SCRATCH
        if self.scratch:
            self.folders = namespaces.Scratch(self.scratch_mb, self.paths, NOBODY if self.demote else None)
        self.home = "/tmp" if self.scratch else "/"
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
        """Moves this process into every namespace that the host grants: with the new file tree, as nobody if it can."""
        root = os.geteuid() == 0
        identity = os.getuid(), os.getgid()
        has_users = self.attempt(
            "user_namespace", lambda: namespaces.in_fork(lambda: namespaces.enter_user(*identity, *identity))
        )
        if has_users and not root:
            namespaces.enter_user(*identity, *identity)
        in_place = self.attempt("mount_namespace", lambda: namespaces.in_fork(lambda: self.build_rootfs(stage)))
        id_maps = namespaces.IdMapWriter() if root and has_users else None  # forked before the old file tree goes
        if in_place:
            self.build_rootfs(stage)
        if root:
            readable = self.works_as_nobody()
            if id_maps is not None:
                target = (NOBODY, NOBODY) if readable else identity
                kernel.unshare(kernel.CLONE_NEWUSER | (kernel.CLONE_NEWNS if in_place else 0))
                id_maps.map(*target)
                if readable:
                    namespaces.become(NOBODY)
            else:
                self.demote = readable
        for name, flag in (("net_namespace", kernel.CLONE_NEWNET), ("ipc_namespace", kernel.CLONE_NEWIPC)):
            if self.attempt(name, lambda flag=flag: namespaces.in_fork(_nothing, flag)):
                kernel.unshare(flag)
        if self.loopback and not self.layers["net_namespace"]:
            self.layers["net_namespace"] = namespaces.bring_up_loopback()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user clears it

    def build_rootfs(self, stage: str) -> None:
        """Takes a mount namespace and makes the read-only tree its root."""
        kernel.unshare(kernel.CLONE_NEWNS)
        namespaces.build_tree(stage, self.paths, self.hidden, proc=self.with_proc, hosts=self.loopback)

    def works_as_nobody(self) -> bool:
        """Whether an unprivileged user can read the interpreter's own files."""

        def read_as_nobody() -> None:
            namespaces.become(NOBODY)
            os.listdir(os.path.dirname(os.__file__))
            os.close(os.open(os.__file__, os.O_RDONLY))

        try:
            namespaces.in_fork(read_as_nobody)
        except OSError:
            return False
        return True

    def make_ruleset(self) -> None:
        """Opens the Landlock ruleset that every child will enter, and tries it."""
        writable = ["/box"] if not self.layers["mount_namespace"] else []
        made = [*(["/proc"] if self.with_proc else []), *(namespaces.HOSTS if self.loopback else [])]
        readable = [*self.paths, *(made if writable else [])]
        self.ruleset = seccomp_landlock.build_ruleset(
            readable, writable, self.hidden, namespaces.DEVICES, network=self.loopback
        )
        namespaces.in_fork(self.restrict)

    def restrict(self) -> None:
        """Puts this process under the Landlock ruleset."""
        _no_new_privs()
        seccomp_landlock.enter_ruleset(self.ruleset)

    def filter(self) -> None:
        """Puts this process under the seccomp filter."""
        _no_new_privs()
        if "pid_namespace" in self.missing:  # then the filter names the one process that may be signalled
            self.filter_ready = seccomp_landlock.Filter(seccomp_landlock.build_filter(self.missing, os.getpid()))
        self.filter_ready.install()

    def limit(self, request: dict) -> None:
        """The limits that differ from job to job, soft and hard alike."""
        size = request["output_kb"] * 1024
        for what, value in (
            (resource.RLIMIT_AS, self.virtual + (request["memory_mb"] << 20)),
            (resource.RLIMIT_CPU, request["cpu_s"]),
            (resource.RLIMIT_FSIZE, size),
            (resource.RLIMIT_NPROC, request["processes"]),
        ):
            _limit(what, value)

    def enter(self, request: dict) -> None:
        """Closes the jail around this process, the child."""
        os.setsid()  # else a signal to its own group meets the zygote
        os.chdir(self.scratch or "/")
        if not self.layers["rlimits"]:
            self.limit(request)
        if self.demote:
            namespaces.become(NOBODY)
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        for name, close in (("no_new_privs", _no_new_privs), ("landlock", self.restrict), ("seccomp", self.filter)):
            if not self.layers[name]:
                close()
        if self.ruleset >= 0:
            os.close(self.ruleset)
        os.close(self.proc)

    def was_short(self, refused: int) -> bool:
        """Whether there was no room for the processes of a program that has ended.

        refused: how many it might have had, where the kernel refused it one, else 0. The program is gone: where there
        cannot be so many now, it was not the program that used them up.
        """
        if refused:
            try:  # the zygote and the fork count too
                namespaces.in_fork(lambda: kernel.try_processes(refused - 2), self.flags)
            except OSError:
                return True
        return self.room is not None and self.room.was_short()

    def end(self, pid: int) -> int:
        """Kills the child with all that it started, and clears its folder; its wait status."""
        if self.alone:
            os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            while os.WIFSTOPPED(status):  # as a traced one does before its end
                status = os.waitpid(pid, 0)[1]
        else:
            # All at once: where another process traces the child, it cannot be waited for before that one is gone.
            status = kernel.end_all(self.proc)[pid]
        if self.scratch:
            self.folders.renew()
        return status


def _limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _nothing() -> None:
    pass


def _no_new_privs() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
