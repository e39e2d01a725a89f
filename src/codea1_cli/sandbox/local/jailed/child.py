"""What runs inside the jail: load one candidate, evaluate its calls, send each answer before the next call begins.

Standard library only, Python 3.10 or newer. The zygote runs this module with a private copy of the builtins, and what
it needs of other modules is bound here at load time, so that a candidate which patches `builtins`, `json` or `os`
harms its own program alone. A frame is `length, kind, index` and its payload; the parent trusts none of it.
"""

from __future__ import annotations

import ast
import mmap
import os
import signal
import sys
import types
from _signal import SIG_DFL as _DEFAULT
from _signal import SIG_IGN as _IGNORED
from _signal import getsignal as _getsignal
from _signal import pthread_sigmask as _sigmask
from _signal import signal as _handle
from _thread import _count as _threads
from json import loads as _loads
from time import process_time as _cpu

import bytecode
import encode
import kernel
import statelessness

BEGUN, LOADED, VALUE, RAISED, MEMORY, OUTPUT, REFUSED, CRASHED, LOAD_ERROR, DONE, AGAIN = b"BLVRMOXCEDA"
NO_ROOM = 75
"""The exit status of a child that the kernel refused a process or memory for what is ours to do."""
_SHARING = ("mmap", "ctypes", "multiprocessing", "shm")  # memory that a fork shares with its parent
_SILENT, _SENDING, _SENT = range(3)  # how far a fork has come with its answer

_write, _exit, _fork, _waitpid, _kill, _fstat = os.write, os._exit, os.fork, os.waitpid, os.kill, os.fstat
_ftruncate, _listdir, _unlink, _rmdir, _stat, _lstat = os.ftruncate, os.listdir, os.unlink, os.rmdir, os.stat, os.lstat
_getpid, _chmod, _stopped = os.getpid, os.chmod, os.WIFSTOPPED
_SIGCHLD, _SIGKILL = signal.SIGCHLD, signal.SIGKILL
_BLOCK, _SET, _SIGNALS = signal.SIG_BLOCK, signal.SIG_SETMASK, frozenset(signal.valid_signals())
_mmap, _encode, _Refused = mmap.mmap, encode.encode, encode.Refused
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
    """One candidate and its calls, from `start` on. `sink` takes its output, `scratch` is its folder or empty;
    `harness`, if there is one, loads it (`sandbox.base.SandboxEnvironment`)."""

    def __init__(
        self,
        text: bytes,
        start: int,
        out: int,
        sink: int,
        output_limit: int,
        scratch: str,
        alone: bool,
        again: bool,
        harness,
    ) -> None:
        job = _loads(text)
        self.program, self.entry, self.calls = job["program"], job["entry"], job["calls"]
        self.apart, self.harness, self.given = job["apart"], harness, job.get("given")
        self.start, self.out, self.sink, self.output_limit = start, out, sink, output_limit
        self.scratch, self.alone = scratch, alone
        self.again = again
        self.pid = _getpid()
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
        self.send(BEGUN, self.start)
        space = self.load()
        if space is None:
            return None
        self.send(LOADED, self.start)
        codes, plain = self.compile_calls()
        if self.apart or not (self.stateless and plain):
            return self.answer_apart(codes, space)
        _sigmask(_SET, self.mask)
        for index in range(self.start, len(codes)):
            self.send(*self.answer(index, codes[index], space))
        return self.send(DONE, len(codes))

    def answer_apart(self, codes: list, space) -> None:
        """Answers every call in a fork of its own."""
        fresh = self.leaks() or any(word in self.program for word in _SHARING)
        self.progress = _mmap(-1, 1)  # shared with the forks
        self.ignores = _getsignal(_SIGCHLD) is _IGNORED
        if self.ignores:
            _handle(_SIGCHLD, _DEFAULT)  # else the kernel buries the forks
        for index in range(self.start, len(codes)):
            clean = self.answer_in_fork(index, codes[index], space)
            if (fresh or not clean) and self.again and index + 1 < len(codes):
                return self.send(AGAIN, index + 1)
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
            try:
                if self.harness is None:
                    exec(code, space)
                else:
                    space = self.harness(code, self.given, self.stateless and not self.apart)
            finally:
                if _getpid() != self.pid:  # a fork of the program's that returned
                    _exit(0)
            # No handler of the program's runs in our code from here on, and no timer of its ends it: only its calls
            # have the mask that it left.
            self.mask = _sigmask(_BLOCK, _SIGNALS)
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

    def answer(self, index: int, code, space) -> tuple:
        """Evaluates one call in this process; what there is to send. `code` is bytes where it did not compile."""
        try:
            if type(code) is bytes:
                raise SyntaxError(code.decode())
            began = _cpu()
            value = eval(code, space)
            payload = b"%08x" % min(int(1e6 * (_cpu() - began)), 0xFFFFFFFF) + _encode(value).encode("ascii")
            kind = VALUE
        except MemoryError:
            kind, payload = MEMORY, b""
        except _Refused as fault:
            kind, payload = REFUSED, str(fault).encode("utf-8", "replace")
        except BaseException as fault:
            kind, payload = RAISED, describe(fault)
        if self.flooded():
            kind, payload = OUTPUT, b""
        return kind, index, payload

    def answer_in_fork(self, index: int, code, space) -> bool:
        """Answers in a fork of the loaded candidate, so that no call sees what another one left behind.

        Whether nothing is left behind outside of the fork.
        """
        self.progress[0] = _SILENT
        # The raw fork is several times cheaper, and sound while there is one thread.
        pid = _fork() if _threads() else _fork_into(0)
        if not pid:
            own = _getpid()
            try:
                if self.ignores:
                    _handle(_SIGCHLD, _IGNORED)
                _sigmask(_SET, self.mask)
                message = self.answer(index, code, space)
                if _getpid() == own:  # else a fork of the program's that returned
                    self.progress[0] = _SENDING
                    self.send(*message)
                    self.progress[0] = _SENT
            finally:
                _exit(0)
        how = end_of(pid)
        if self.alone:  # first process of its own pid namespace: all others are the candidate's
            try:
                _kill(-1, _SIGKILL)
                while True:
                    _waitpid(-1, 0)
            except OSError:
                pass
        if self.progress[0] == _SENDING:  # nobody knows how much of the answer was sent: this process ends with it
            _exit(1)
        if self.progress[0] == _SILENT:
            self.send(CRASHED, index, how)
        if not self.scratch:
            return True
        # The same folder, but for an interpreter that lies below /tmp.
        return empty(self.scratch) and empty("/tmp")


def end_of(pid: int) -> bytes:
    """Waits for a process to end, and says how it did."""
    try:
        status = _waitpid(pid, 0)[1]
        while _stopped(status):  # as a traced one does before its end
            status = _waitpid(pid, 0)[1]
    except OSError:
        return b"no exit status"  # the program took it
    return b"signal %d" % (status & 127) if status & 127 else b"exit status %d" % (status >> 8)


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


def empty(folder: str, depth: int = 30) -> bool:
    """Removes all that lies in a folder, but for what is mounted there; whether that could be done.

    A tree of more than `depth` levels is left to a new folder: taking it down would cost the next call its time.
    """
    if not depth:
        return False
    clean = True
    try:
        own = _stat(folder)
        if own.st_mode & 0o7777 != 0o700:
            _chmod(folder, 0o700)
        names = _listdir(folder)
    except OSError:
        return False
    for name in names:
        path = folder + "/" + name
        try:
            status = _lstat(path)
            if status.st_mode & 0o170000 != 0o040000:
                _unlink(path)
            elif status.st_dev == own.st_dev:
                clean = empty(path, depth - 1) and clean
                remove_folder(path)
        except (OSError, RecursionError):  # the program may have lowered the limit
            clean = False
    return clean


def remove_folder(path: str) -> bool:
    """Removes an empty folder; False where it leads to what is mounted."""
    try:
        _rmdir(path)
    except OSError:
        return False
    return True
