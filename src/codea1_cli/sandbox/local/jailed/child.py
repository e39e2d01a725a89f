"""What runs inside the jail: load one candidate, evaluate its calls, send each answer before the next call begins.

Standard library only, Python 3.10 or newer. The zygote runs this module with a private copy of the builtins, and what
it needs of other modules is bound here at load time, so that a candidate which patches `builtins`, `json` or `os`
harms its own program alone. A frame is `length, kind, index` and its payload; the parent trusts none of it.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
import types
from _thread import _count as _threads
from json import loads as _loads

import bytecode
import encode
import kernel
import statelessness

LOADED, VALUE, RAISED, MEMORY, OUTPUT, REFUSED, CRASHED, LOAD_ERROR, DONE, AGAIN = b"LVRMOXCEDA"
_SHARING = ("mmap", "ctypes", "multiprocessing", "shm")  # memory that a fork shares with its parent
ANSWERED = 77  # the exit status of a fork that has sent its answer

_write, _exit, _fork, _waitpid, _kill, _fstat = os.write, os._exit, os.fork, os.waitpid, os.kill, os.fstat
_ftruncate, _listdir, _unlink, _rmdir, _stat, _lstat = os.ftruncate, os.listdir, os.unlink, os.rmdir, os.stat, os.lstat
_encode, _Refused = encode.encode, encode.Refused
_dup, _close, _fork_into = os.dup, os.close, kernel.fork_into
_parse, _compile = ast.parse, compile


def frame(kind: int, index: int, payload: bytes) -> bytes:
    """One message: its length, its kind, the call or test that it is about, its text."""
    return b"%b%b%b%b" % (
        (len(payload) + 5).to_bytes(4, "little"), kind.to_bytes(1, "little"), index.to_bytes(4, "little"), payload
    )  # fmt: skip


def send(out: int, data: bytes) -> None:
    """Writes all of `data` to the descriptor `out`."""
    sent = 0
    while sent < len(data):
        sent += _write(out, data[sent : sent + 65536])


class Job:
    """One candidate and its calls, from `start` on. `sink` takes its output, `scratch` is its folder or empty."""

    def __init__(
        self, text: bytes, start: int, out: int, sink: int, output_limit: int, scratch: str, alone: bool, again: bool
    ) -> None:
        job = _loads(text)
        self.program, self.entry, self.calls = job["program"], job["entry"], job["calls"]
        self.apart = job["apart"]
        self.start, self.out, self.sink, self.output_limit = start, out, sink, output_limit
        self.scratch, self.alone = scratch, alone
        self.again = again
        self.free = _dup(sink)
        _close(self.free)

    def send(self, kind: int, index: int, payload: bytes = b"") -> None:
        """Sends one frame about the call `index`."""
        send(self.out, frame(kind, index, payload))

    def flooded(self) -> bool:
        """Whether the candidate's output met its limit; what it printed is forgotten."""
        size = _fstat(self.sink).st_size
        if size:
            _ftruncate(self.sink, 0)
        return size >= self.output_limit

    def run(self) -> None:
        """Loads and answers; returns only after DONE or a load error."""
        space = self.load()
        if space is None:
            return None
        self.send(LOADED, self.start)
        codes, plain = self.compile_calls()
        apart = self.apart or not (self.stateless and plain)
        fresh = apart and (self.leaks() or any(word in self.program for word in _SHARING))
        for index in range(self.start, len(codes)):
            if apart:
                self.answer_apart(index, codes[index], space)
                if fresh and self.again and index + 1 < len(codes):
                    return self.send(AGAIN, index + 1)
            else:
                self.answer(index, codes[index], space)
        return self.send(DONE, len(codes))

    def leaks(self) -> bool:
        """Whether the loaded program holds descriptors, whose state its forks share."""
        free = _dup(self.sink)  # the lowest number that is not taken
        _close(free)
        return free != self.free

    def load(self):
        """The loaded program's globals; None when a load failure was sent instead."""
        space = None
        try:
            code = _compile(self.program, "<candidate>", "exec", 0, True)
            self.stateless = bytecode.is_plainly_stateless(code) or statelessness.is_stateless(_parse(self.program))
        except BaseException as fault:
            return self.send(LOAD_ERROR, self.start, describe(fault))
        try:
            module = types.ModuleType("candidate")
            sys.modules["candidate"] = module
            space = module.__dict__
            exec(code, space)
        except MemoryError:
            return self.send(MEMORY, self.start, b"while loading")
        except BaseException as fault:
            kind = OUTPUT if self.flooded() else LOAD_ERROR
            return self.send(kind, self.start, describe(fault))
        if self.flooded():
            return self.send(OUTPUT, self.start, b"while loading")
        if self.entry not in space:
            return self.send(LOAD_ERROR, self.start, b"does not define " + self.entry.encode("utf-8", "replace"))
        return space

    def compile_calls(self):
        """Each call's code, or the error that it raised, and whether all of them are plain."""
        codes: list[object] = []
        plain = True
        for index, call in enumerate(self.calls):
            if index < self.start:
                codes.append(None)
                continue
            try:
                codes.append(_compile(call, "<call>", "eval", 0, True))
                plain = plain and statelessness.is_plain_call(call)
            except BaseException as fault:
                codes.append(describe(fault))
        return codes, plain

    def answer(self, index: int, code, space) -> None:
        """Evaluates one call in this process and sends what came of it; `code` is bytes where it did not compile."""
        try:
            if type(code) is bytes:
                raise SyntaxError(code.decode())
            value = eval(code, space)
            payload = _encode(value).encode("ascii")
            kind = VALUE
        except MemoryError:
            kind, payload = MEMORY, b""
        except _Refused as fault:
            kind, payload = REFUSED, str(fault).encode("utf-8", "replace")
        except BaseException as fault:
            kind, payload = RAISED, describe(fault)
        if self.flooded():
            kind, payload = OUTPUT, b""
        self.send(kind, index, payload)

    def answer_apart(self, index: int, code, space) -> None:
        """Answers in a fork of the loaded candidate, so that no call sees what another one left behind."""
        # The raw fork is several times cheaper, and sound while there is one thread.
        pid = _fork() if _threads() else _fork_into(0)
        if not pid:
            try:
                self.answer(index, code, space)
            finally:
                _exit(ANSWERED)
        status = _waitpid(pid, 0)[1]
        if self.alone:  # first process of its own pid namespace: all others are the candidate's
            try:
                _kill(-1, signal.SIGKILL)
                while True:
                    _waitpid(-1, 0)
            except OSError:
                pass
        if self.scratch:
            empty(self.scratch)
            empty("/tmp")  # the same folder, but for an interpreter that lies below /tmp
        if status != ANSWERED << 8:
            how = b"signal %d" % (status & 127) if status & 127 else b"exit status %d" % (status >> 8)
            self.send(CRASHED, index, how)


def describe(fault: BaseException) -> bytes:
    """The exception's type and message, in at most 300 characters, whatever its own methods do."""
    kind = type(fault)
    name = type.__getattribute__(kind, "__name__")
    try:
        if isinstance(fault, SyntaxError) and kind in (SyntaxError, IndentationError, TabError):
            text = f": {fault.msg}" + (f", line {fault.lineno}" if fault.lineno else "")
        else:
            said = BaseException.__str__(fault)
            text = f": {said}" if said else ""
    except BaseException:
        text = ""
    return f"{name}{text}"[:300].encode("utf-8", "replace")


def empty(folder: str) -> None:
    """Removes all that lies in a folder, but for what is mounted there."""
    try:
        names, device = _listdir(folder), _stat(folder).st_dev
    except OSError:
        return
    for name in names:
        path = folder + "/" + name
        try:
            status = _lstat(path)
            if status.st_mode & 0o170000 != 0o040000:
                _unlink(path)
            elif status.st_dev == device:
                empty(path)
                _rmdir(path)
        except OSError:
            pass
