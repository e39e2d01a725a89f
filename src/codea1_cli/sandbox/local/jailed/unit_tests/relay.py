"""What runs inside the jail for a program with a unittest module: two processes, the runner and the relay.

The runner (`runner.Runner`) loads the program, then gets the tests, runs them in the one module they share, and
reports each test to the relay. The relay holds the parent's pipe and, until the program is loaded, the tests; a runner
that ends early, or reports out of turn, loses the rest. Standard library only, Python 3.10 or newer.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from json import loads as _loads

from child import CRASHED, DONE, LOAD_ERROR, LOADED, MEMORY, RAISED, REFUSED, VALUE, frame, send
from runner import UNSIGNED, Runner

_read, _exit, _kill, _waitpid = os.read, os._exit, os.kill, os.waitpid


class ResultRelay:
    """`job`: a descriptor of the program (its first `head` bytes) and of the tests (the rest), both JSON."""

    def __init__(self, job: int, head: int, out: int, scratch: str, alone: bool) -> None:
        self.job, self.head, self.out, self.scratch, self.alone = job, head, out, scratch, alone

    def run(self) -> None:
        """Follows the runner to its end; returns when all that there is to say was sent."""
        program = _loads(os.pread(self.job, self.head, 0))
        up, theirs = os.pipe()
        ours, down = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                for descriptor in (self.job, self.out, up, down):
                    os.close(descriptor)
                os.setpgid(0, 0)
                Runner(program, theirs, ours, self.scratch).run()
            finally:
                _exit(0)
        os.close(theirs)
        os.close(ours)
        tests = os.pread(self.job, os.fstat(self.job).st_size - self.head, self.head)
        os.close(self.job)
        key = os.urandom(16)
        self.follow(pid, up, down, key, tests, len(_loads(tests)["names"]) + 1)
        if self.alone:
            with contextlib.suppress(OSError):
                _kill(-1, signal.SIGKILL)

    def follow(self, pid: int, up: int, down: int, key: bytes, tests: bytes, count: int) -> None:
        """Passes on `count` results of the runner at `up`; once loaded it gets the key and the tests through `down`.

        Every result has to carry the key and come in its turn; anything else ends the run as a crash.
        """
        poller = select.poll()
        poller.register(up, select.POLLIN)
        try:
            poller.register(os.pidfd_open(pid), select.POLLIN)
            pause = None
        except OSError:  # a poorer jail refuses it
            pause = 20
        buffer, turn, begun, loaded, is_open = b"", 0, False, False, True
        os.set_blocking(up, False)
        while True:
            poller.poll(pause)
            gone, status = _waitpid(pid, os.WNOHANG)
            if os.WIFSTOPPED(status):  # as a traced one does
                gone = 0
            while is_open:
                try:
                    data = _read(up, 1 << 16)
                except BlockingIOError:
                    break
                buffer += data
                if not data:
                    poller.unregister(up)
                    is_open = False
                elif len(buffer) > 1 << 20:
                    return self.crash(turn, loaded, b"wrote to the result channel")
            while len(buffer) >= 20:
                size = int.from_bytes(buffer[:4], "little")
                if not 5 <= size <= 4096:
                    return self.crash(turn, loaded, b"wrote to the result channel")
                if len(buffer) < 20 + size:
                    break
                sign, body = buffer[4:20], buffer[20 : 20 + size]
                buffer = buffer[20 + size :]
                kind, index, payload = body[0], int.from_bytes(body[1:5], "little"), body[5:]
                if not begun:
                    begun = True
                    send(self.out, frame(kind, index, payload))
                elif not loaded:
                    if sign != UNSIGNED or kind not in (LOADED, LOAD_ERROR, MEMORY, REFUSED):
                        return self.crash(turn, loaded, b"wrote to the result channel")
                    if kind != LOADED:
                        kind = LOAD_ERROR if kind == REFUSED else kind
                        return send(self.out, frame(kind, 0, payload))
                    loaded = True
                    send(self.out, frame(LOADED, 0, b""))
                    with contextlib.suppress(BrokenPipeError):  # it is gone already
                        send(down, key + len(tests).to_bytes(4, "little") + tests)
                    os.close(down)
                elif sign != key or index != turn or kind not in (VALUE, RAISED, MEMORY, REFUSED):
                    return self.crash(turn, loaded, b"wrote to the result channel")
                else:
                    send(self.out, frame(kind, index, payload))
                    turn += 1
                    if turn == count:
                        return send(self.out, frame(DONE, count, b""))
            if gone and not begun:
                return None
            if gone:
                how = b"signal %d" % (status & 127) if status & 127 else b"exit status %d" % (status >> 8)
                return self.crash(turn, loaded, how)

    def crash(self, turn: int, loaded: bool, how: bytes) -> None:
        """Ends the program's run: the awaited test, or loading, crashed."""
        if not loaded:
            return send(self.out, frame(LOAD_ERROR, 0, b"while loading: " + how))
        return send(self.out, frame(CRASHED, turn, how))
