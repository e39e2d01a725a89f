"""The parent's side of one zygote: start it, have it fork children, watch them, end them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from codea1_cli.environment import cores, program_environment
from codea1_cli.errors import EnvironmentFault
from codea1_cli.sandbox.local.cgroup import Cgroup, idle_seconds, oom_kills
from codea1_cli.sandbox.local.child_monitor import ChildReport, FrameReader, Kind, cpu_seconds, follow

ZYGOTE = Path(__file__).parent / "jailed" / "zygote.py"
START_S = 60.0
REPLY_S = 30.0
PIPE_BYTES = 1 << 18  # answers that a child sends without waiting
NO_ROOM = 75  # as in `jailed/child.py`
_REFUSED = (b"can't start new thread", b"Resource temporarily unavailable", b"Cannot allocate memory")
STAGE = "codea1-stage-"  # what the folders of a worker's jail are called, below the temporary ones
_LONG_S = 0.03  # most programs take milliseconds: all that run now are longer ones
_LENT_S = 1.0  # then a place is given back, though somebody waits: the machine may be busy by now


class WorkerLost(Exception):
    """The zygote is gone or does not answer: our failure, not the candidate's."""


class Worker:
    """One zygote. Not thread-safe: the sandbox hands it to one job at a time.

    Raises EnvironmentFault when the interpreter cannot be started, WorkerLost when it goes away later.
    """

    def __init__(self, python: str, hash_seed: int, setup: dict[str, object], group: Cgroup | None = None) -> None:
        self.group = group
        self._alone = True
        self.stage = tempfile.mkdtemp(prefix=f"{STAGE}{os.getpid()}-")
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [python, "-s", str(ZYGOTE), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/",
                    env=program_environment(hash_seed), pass_fds=[theirs.fileno()], start_new_session=True,
                )  # fmt: skip
            except OSError as fault:
                self.control.close()
                os.rmdir(self.stage)
                raise EnvironmentFault(
                    f"cannot run {python}: {fault.strerror}", "give the path of a Python interpreter, 3.10 or newer"
                ) from fault
        self.control.settimeout(START_S)
        try:
            if group is not None:
                try:
                    group.add(self.process.pid)
                except OSError as fault:
                    raise WorkerLost(f"no control group: {fault}") from fault
            self._send({**setup, "stage": self.stage, "parent": os.getpid()})
            self.hello: dict[str, Any] = self._receive()
        except WorkerLost as fault:
            said = self._last_words()
            self.close()
            raise EnvironmentFault(
                f"the sandbox's interpreter {python} did not start: {said}", "it must be Python 3.10 or newer"
            ) from fault
        self.control.settimeout(REPLY_S)
        self._memory = self._memory_now()
        self._alone = not self.hello["layers"]["pid_namespace"]
        self._own_room = not self.hello["layers"]["user_namespace"]  # for processes

    def _last_words(self) -> str:
        self.process.kill()
        raw = self.process.stderr.read() if self.process.stderr else b""
        lines = raw.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"

    def _send(self, fields: dict[str, object], descriptors: tuple[int, ...] = ()) -> None:
        try:
            socket.send_fds(self.control, [json.dumps(fields).encode()], list(descriptors))
        except OSError as fault:
            raise WorkerLost(str(fault)) from fault

    def _receive(self) -> dict[str, Any]:
        try:
            message = self.control.recv(65536)
        except OSError as fault:
            raise WorkerLost(str(fault)) from fault
        if not message:
            raise WorkerLost("the zygote is gone")
        try:
            reply: dict[str, Any] = json.loads(message)
        except ValueError as fault:
            raise WorkerLost("the zygote answers nonsense") from fault
        return reply

    def is_alive(self) -> bool:
        """Whether the zygote is there."""
        return self.process.poll() is None

    def watch(
        self,
        job: int,
        start: int,
        calls: int,
        request: dict[str, Any],
        load_s: float,
        call_s: float,
        cpu_s: float = math.inf,
        enough_s: float = math.inf,
        load_cpu_s: float = math.inf,
        total_s: float = math.inf,
    ) -> ChildReport:
        """Forks a child on the job in descriptor `job`, from call `start` on, and follows it to its end."""
        if self.group is not None:
            self.group.limit(request["memory_mb"], request["processes"])
        pipe, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with contextlib.suppress(OSError):  # the kernel bounds what a user's pipes hold together
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            os.set_blocking(theirs, True)
            try:
                self._send({"op": "spawn", "start": start, **request}, (job, theirs))
            finally:
                os.close(theirs)
            reply = self._receive()
            if "error" in reply:
                raise WorkerLost(str(reply["error"]))
            seen = ChildReport(FrameReader(start, calls))
            follow(seen, pipe, int(reply["pid"]), load_s, call_s, self.group, cpu_s, enough_s, load_cpu_s, total_s)
        finally:
            os.close(pipe)
        refused, killed = seen.says(Kind.RAISED, *_REFUSED), seen.says(Kind.CRASHED, b"signal 9")
        if seen.ended == "done" and seen.gone and self._alone and self._own_room and not refused and not killed:
            return seen  # the next spawn buries it
        self._send({"op": "end", "refused": refused})
        reply = self._receive()
        if reply["short"]:
            raise WorkerLost("other work left no room for the program's processes")
        seen.status = int(reply["status"])
        if not seen.reader.begun:
            raise WorkerLost(f"a program's process came to its end ({seen.ended}) before the program began")
        ended = os.waitstatus_to_exitcode(seen.status)
        seen.refused = refused or (seen.ended == "exited" and seen.reader.loaded and ended == NO_ROOM)
        if killed or (seen.ended == "exited" and ended == -signal.SIGKILL):
            before, self._memory = self._memory, self._memory_now()
            hits, kills = (now > then for now, then in zip(self._memory, before, strict=True))
            if kills and not hits:
                raise WorkerLost("the machine ran out of memory")
            seen.out_of_memory = kills
        return seen

    def _memory_now(self) -> tuple[int, int]:
        """How often the group met its own memory limit, and how many processes the kernel has ended for want of memory,
        of anybody's."""
        return (self.group.memory_hits() if self.group is not None else 0), oom_kills()

    def cpu_seconds(self) -> float:
        """CPU of the zygote and its children."""
        return cpu_seconds(self.process.pid)

    def abandon(self) -> None:
        """Ends a worker that misbehaved, at once."""
        # Where it has no pid namespace to end its child for it, it does so itself; a stopped one needs to be woken.
        for number in (signal.SIGTERM, signal.SIGCONT):
            self.process.send_signal(number)
        self.close()

    def close(self) -> None:
        """Ends the zygote and its child, and waits until they are gone."""
        self.control.close()
        try:
            self.process.wait(5 if self._alone else 25)  # longer than `kernel.end_all` takes
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        with contextlib.suppress(OSError):
            os.rmdir(self.stage)
        if self.group is not None:
            self.group.remove()


class Places:
    """Where programs of one hash seed run, each with a zygote that waits for work. Thread-safe.

    There are `count`, and up to `most` while all are held for long and processors have nothing to do, so that programs
    that never end do not keep the others waiting. What is lent, to all processes of this user together, are places for
    half of the processors, each while it is wanted and only if two have been idle: no program is made late by it.
    """

    def __init__(self, count: int, most: int) -> None:
        self._count, self._most = count, most
        self._free: list[Worker | None] = [None] * count  # None: the zygote is started when it is first needed
        self._spare: list[Worker] = []  # zygotes of places that were lent
        self._lent: dict[int, float] = {}  # when, by the descriptor that holds the machine's leave
        self._waiting = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self) -> Worker | None:
        """A place, and the zygote in it; waits for it.

        Raises:
            WorkerLost: the sandbox is closed.
        """
        with self._changed:
            since, idle = time.monotonic(), math.inf
            while not self._free and not self._closed:
                self._waiting += 1
                self._changed.wait(_LONG_S)
                self._waiting -= 1
                if self._free or (now := time.monotonic()) - since < _LONG_S:
                    continue
                idles = idle_seconds()
                lately = sum(when >= since for when in self._lent.values())
                if len(self._lent) < self._most - self._count and (idles - idle) / (now - since) >= 2 * (1 + lately):
                    leave = take_leave(max(1, cores() // 2))
                    if leave is not None:
                        self._lent[leave] = now
                        return self._spare.pop() if self._spare else None
                since, idle = now, idles
            if self._closed:
                raise WorkerLost("the sandbox is closed")
            return self._free.pop()

    def give(self, worker: Worker | None) -> None:
        """Gives a place back, with its zygote where that lives."""
        with self._changed:
            leave, when = next(iter(self._lent.items()), (None, 0.0))
            # One that was lent goes back, the first of them, unless somebody waits for it and it is not lent for long.
            wanted = self._waiting > len(self._free)
            back = leave is not None and (not wanted or time.monotonic() - when > _LENT_S)
            if leave is not None and back:
                del self._lent[leave]
                os.close(leave)
            closed = self._closed
            if not back:
                self._free.append(None if closed else worker)
                self._changed.notify()
            elif worker is not None and not closed:
                self._spare.append(worker)
        if worker is not None and closed:
            worker.close()

    def close(self) -> None:
        """Ends the zygotes that have no work, and the others when they are given back; nobody gets one any more."""
        with self._changed:
            self._closed = True
            idle = [worker for worker in (*self._free, *self._spare) if worker is not None]
            self._free, self._spare = [None] * len(self._free), []
            self._changed.notify_all()
        for worker in idle:
            with contextlib.suppress(Exception):
                worker.close()


def take_leave(most: int) -> int | None:
    """One of `most` locks that all processes of a user on this machine share, as an open descriptor: it is free again
    when that is closed, or its process has ended. None: all are taken, or none can be made."""
    folder = Path(tempfile.gettempdir()) / f"codea1-places-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        for number in range(most):
            file = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except OSError:
                os.close(file)
    return None
