"""The warm interpreter that forks one jailed child for each job. Run as a script by the sandbox; standard library only.

It sees no program, no call and no value: a request holds numbers, and two descriptors that go to the child. So what a
later child inherits by fork tells it nothing about earlier jobs. It ends with its parent, and takes its child along.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time

import jail
import kernel

_WARM = """__future__ abc array ast asyncio base64 binascii bisect calendar cmath collections collections.abc contextlib
copy dataclasses datetime decimal difflib enum fractions functools hashlib heapq inspect io itertools json
keyword math numbers operator os pathlib queue random re statistics string struct tempfile textwrap threading
time traceback types typing unicodedata uuid warnings weakref zlib"""
_NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.ENFILE)
_OURS = ("jail", "kernel", "namespaces", "seccomp_landlock")
_MODULES = ("encode", "statelessness", "bytecode", "child")
_UNIT_MODULES = ("surroundings", "runner", "relay")  # in the folder unit_tests


def load_all(folder: str, names: tuple, loaded: dict) -> dict:
    """`loaded` and these modules of a folder, each of which may import those before it. They have builtins of their
    own, which no candidate's patch reaches, and are in no table of modules afterwards."""
    modules = dict(loaded)
    for name in names:
        with open(os.path.join(folder, name + ".py"), encoding="utf-8") as file:
            source = file.read()
        module = type(sys)("codea1_" + name)
        module.__dict__["__builtins__"] = dict(vars(builtins))
        sys.modules.update(modules)
        exec(compile(source, f"<{name}>", "exec", 0, True), module.__dict__)
        modules[name] = module
    for name in modules:
        sys.modules.pop(name, None)
    return modules


def load_harness(source: str):
    """The function `load` of a harness. It has a candidate's builtins, which it may change."""
    space = {"__name__": "harness", "__builtins__": builtins}
    exec(compile(source, "<harness>", "exec", 0, True), space)
    return space["load"]


class StartsThread(Exception):
    """A module that starts a thread when it is imported, as pyarrow's does, and with it pandas: the kernel makes no
    user namespace for a process of several threads."""


def warm(names: list[str]) -> list[str]:
    """Imports what candidates usually import; returns what could not be.

    Raises:
        StartsThread: names one that must be left to the children.
    """
    failed = []
    for name in [*_WARM.split(), *names]:
        try:
            importlib.import_module(name)
        except Exception:
            failed.append(name)
        if len(os.listdir("/proc/self/task")) > 1:
            raise StartsThread(name)
    return failed


def start_without(name: str, setup: dict) -> None:
    """Replaces this process with one that does not import `name` beforehand: a thread cannot be taken back."""
    setup["warm"] = [other for other in setup["warm"] if other != name]
    memory = os.memfd_create("setup", 0)
    os.write(memory, json.dumps(setup).encode())
    script = sys.orig_argv.index(sys.argv[0])
    os.execv(sys.executable, [*sys.orig_argv[: script + 2], str(memory)])


class Zygote:
    """Warms up, builds the jail, then forks a child per request; `control` leads to the parent."""

    def __init__(self, control: socket.socket, setup: dict) -> None:
        self.control = control
        here = os.path.dirname(os.path.abspath(__file__))
        os.environ.update(setup["env"])
        time.tzset()
        failed = warm(setup["warm"])
        modules = load_all(here, _MODULES, {})
        if setup["unit"]:
            self.relay = load_all(os.path.join(here, "unit_tests"), _UNIT_MODULES, modules)["relay"]
        self.harness = load_harness(setup["harness"]) if setup["harness"] else None
        self.child = modules["child"]
        os.environ.clear()
        os.environ.update(HOME="/tmp", TMPDIR="/tmp", PATH="/usr/bin:/bin", LANG="C.UTF-8", OMP_NUM_THREADS="1")
        os.environ.update(setup["env"])
        self.jail = jail.Jail(setup)
        os.environ.update(HOME=self.jail.home, TMPDIR=self.jail.home)
        self.pid = self.processes = 0
        self.alive = os.pipe()  # a child that reads its end here was left behind
        if not self.jail.alone:  # what the child started would outlive a zygote that is killed outright
            signal.signal(signal.SIGTERM, lambda *_: self.leave())
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
        known = {"python": sys.version.split()[0], "path": sys.path, "tag": sys.implementation.cache_tag}
        self.reply(layers=self.jail.layers, failed=failed, user=os.getuid(), **known)

    def reply(self, **fields) -> None:
        """Sends one message to the parent."""
        self.control.send(json.dumps(fields).encode())

    def rehearse(self) -> None:
        """Runs a job in this process, so that what Python sets up on first use is there before any fork."""
        program = (
            "import math\n\nclass A:\n    pass\n\ndef f(x: list) -> list:\n    return [y + 1 for y in sorted(x)]\n"
        )
        text = json.dumps({"program": program, "entry": "f", "calls": ["f([1, -2])", "f('a')"] * 8, "apart": False})
        reader, out = os.pipe()
        sink = os.memfd_create("output", 0)
        for _ in range(10):
            self.child.Job(text.encode(), 0, out, sink, 1 << 20, "", False, False, None).run()
            os.read(reader, 1 << 16)
        sys.modules.pop("candidate", None)
        for descriptor in (reader, out, sink):
            os.close(descriptor)

    def serve(self) -> None:
        """Answers requests until the parent goes away."""
        self.rehearse()
        os.dup2(0, 1)
        os.dup2(0, 2)
        for name in ("__main__", *_OURS):
            sys.modules.pop(name, None)
        sys.modules["__main__"] = type(sys)("__main__")
        sys.argv = [""]
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self.control, 65536, 2)
            except InterruptedError:
                continue
            if not message:
                break
            request = json.loads(message)
            if request["op"] == "spawn":
                self.spawn(request, *descriptors)
            else:
                status = self.end()
                refused = request["refused"] or os.waitstatus_to_exitcode(status) == self.child.NO_ROOM
                self.reply(status=status, short=self.jail.was_short(self.processes if refused else 0))
        self.leave()

    def leave(self) -> None:
        """Ends this process, the child first; it may be called in the midst of anything, `end` included."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            if not self.jail.alone:
                kernel.end_all(self.jail.proc)
            elif self.pid > 0:
                self.jail.end(self.pid)
        finally:
            os._exit(0)

    def spawn(self, request: dict, job: int, out: int) -> None:
        """Ends the child before and forks one on the job; replies with its pid or the error."""
        self.end()
        self.processes = request["processes"]
        try:
            if self.jail.room is not None:
                request["processes"] = self.jail.room.make(request["processes"])
            pid = kernel.fork_into(self.jail.flags)
        except OSError as fault:
            self.reply(error=str(fault))
            pid = -1
        if pid == 0:
            try:
                self.become_child(request, job, out)
            finally:
                os._exit(1)
        os.close(job)
        os.close(out)
        if pid > 0:
            self.pid = pid
            self.reply(pid=pid)

    def become_child(self, request: dict, job: int, out: int) -> None:
        """Enters the jail and runs the job; does not return."""
        self.control.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(self.alive[1])
        self.jail.enter(request)
        if select.select([self.alive[0]], [], [], 0)[0]:
            os._exit(1)  # the zygote ended before its end was tied to this process's
        os.close(self.alive[0])
        sink = os.memfd_create("output", 0)  # takes what the program prints; no other sees its flags and attributes
        fcntl.fcntl(sink, fcntl.F_SETFL, os.O_APPEND)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        if "head" in request:
            self.relay.ResultRelay(job, request["head"], out, self.jail.scratch, self.jail.alone).run()
            os._exit(0)
        text = os.pread(job, os.fstat(job).st_size, 0)
        os.close(job)
        limit = request["output_kb"] * 1024
        job_run = self.child.Job(
            text, request["start"], out, sink, limit, self.jail.scratch, self.jail.alone, request["again"], self.harness
        )
        try:
            job_run.run()
        except OSError as fault:  # ours: the program's are answers
            os._exit(self.child.NO_ROOM if fault.errno in _NO_ROOM else 1)
        os._exit(0)

    def end(self) -> int:
        """Ends the child, if there is one; its wait status."""
        pid, self.pid = self.pid, 0
        if pid <= 0:
            return 0
        return self.jail.end(pid)


def _taken(memory: int) -> bytes:
    with open(memory, "rb") as file:
        file.seek(0)
        return file.read()


def main() -> None:
    """Serves the parent whose socket is descriptor argv[1], unless that parent is gone already. argv[2]: one that
    holds the setup, where it was read before."""
    control = socket.socket(fileno=int(sys.argv[1]))
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.path.pop(0)
    setup = json.loads(_taken(int(sys.argv[2])) if sys.argv[2:] else control.recv(65536))
    if os.getppid() != setup["parent"]:
        return
    try:
        zygote = Zygote(control, setup)
    except StartsThread as found:
        start_without(str(found), setup)
    else:
        zygote.serve()


if __name__ == "__main__":
    main()
