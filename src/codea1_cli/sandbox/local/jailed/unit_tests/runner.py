"""The process that loads a program and runs its tests (`relay`). Standard library only, Python 3.10 or newer."""

from __future__ import annotations
import __future__

import os
import sys
import types
import unittest
from json import loads as _loads

import child
import surroundings
from child import BEGUN, LOAD_ERROR, LOADED, MEMORY, RAISED, REFUSED, VALUE, frame, send

NAME = "__test__"
UNSIGNED = bytes(16)  # the key of what is said before the tests are there
_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag
_compile, _describe, _read, _getpid, _exit = compile, child.describe, os.read, os.getpid, os._exit
_Loader, _Suite = unittest.TestLoader, unittest.TestSuite
_FILE_FAULTS = (FileNotFoundError, PermissionError, OSError)
_ORIGINALS = surroundings.Snapshot()


def take(source: int, size: int) -> bytes:
    """Reads exactly `size` bytes; empty when the other side is gone."""
    data = b""
    while len(data) < size:
        more = _read(source, min(size - len(data), 65536))
        if not more:
            return b""
        data += more
    return data


class Runner:
    """`program`: `code` and `class`. `up` leads to the relay, from `down` come the tests."""

    def __init__(self, program: dict, up: int, down: int, scratch: str) -> None:
        self.program, self.up, self.down, self.scratch = program, up, down, scratch
        self.key = UNSIGNED
        self.pid = _getpid()

    def say(self, kind: int, index: int, payload: bytes = b"") -> None:
        """Sends one signed result to the relay; ends a fork of the program's that came back here."""
        if _getpid() != self.pid:
            _exit(0)
        data = frame(kind, index, payload[:1000])
        send(self.up, data[:4] + self.key + data[4:])

    def run(self) -> None:
        """Loads the program, runs the tests, ends the process."""
        surroundings.settle(self.scratch)
        self.say(BEGUN, 0)
        module = types.ModuleType(NAME)
        space = module.__dict__
        space.update(__builtins__=__import__("builtins"), __file__=NAME + ".py", __package__=None, __doc__=None)
        space.update(sys=sys, os=os, environ=os.environ)
        code = self.program["code"]
        try:
            compiled = _compile(code, NAME + ".py", "exec", 0, True)
            exec(compiled, space)
        except MemoryError:
            return self.say(MEMORY, 0, b"while loading")
        except BaseException as fault:
            return self.say(LOAD_ERROR, 0, _describe(fault))
        broken = _ORIGINALS.broken(loading=True)
        if broken:
            return self.say(REFUSED, 0, b"while loading: " + broken.encode())
        self.say(LOADED, 0)
        head = take(self.down, 20)
        job = _loads(take(self.down, int.from_bytes(head[16:20], "little")))
        self.key = head[:16]
        self.test(module, job, compiled.co_flags & _FUTURES, code.count("\n") + 1)
        return None

    def test(self, module, job: dict, flags: int, line: int) -> None:
        """Compiles the tests behind the program (from `line` on, under its future `flags`), runs them and reports each.

        What befalls the class or the module as a whole is the last result.
        """
        names, whole = job["names"], (VALUE, b"")
        space = module.__dict__
        record = Recorder(self, names)
        try:
            hidden = _ORIGINALS.shadowed(space)
            exec(_compile("\n" * line + job["tests"], NAME + ".py", "exec", flags, True), space)
            sys.modules[NAME] = module
            kind = space[self.program["class"]]
            hidden = hidden or _ORIGINALS.broken()
            record.forms = _ORIGINALS.take_class(kind)
            record.kind = kind
            hidden = hidden or _ORIGINALS.broken_class(kind, record.forms, None)
            if hidden:
                whole = (REFUSED, hidden.encode())
            else:
                suite = _Loader().loadTestsFromTestCase(kind)
                found = [getattr(case, "_testMethodName", "") for case in suite]
                if found != names:
                    whole = (REFUSED, f"the class holds other tests: {found}".encode())
                else:
                    suite.run(record)
                    record.finish()
                    whole = record.whole
        except MemoryError:
            whole = (MEMORY, b"")
        except BaseException as fault:
            whole = (RAISED, _describe(fault))
        if whole[0] == VALUE and not _can_fail():
            whole = (REFUSED, b"assertions no longer fail")
        for _ in range(record.turn, len(names)):
            self.say(whole[0] if whole[0] != VALUE else RAISED, record.turn, whole[1] or b"was not run")
            record.turn += 1
        self.say(whole[0], len(names), whole[1])


class Recorder(unittest.TestResult):
    """Reports each test when it is over; `whole` is what befell the class or the module."""

    def __init__(self, runner: Runner, names: list) -> None:
        super().__init__()
        self.runner, self.names, self.turn = runner, names, 0
        self.forms: list = []
        self.kind: type = object
        self.whole = (VALUE, b"")
        self.state = (VALUE, b"ok")
        self.inside = False

    def startTest(self, test) -> None:
        """A test begins."""
        self.testsRun += 1
        self.state, self.inside = (VALUE, b"ok"), True

    def stopTest(self, test) -> None:
        """Reports the test, as tampered with when something that tests rest on has changed."""
        self.inside = False
        kind, payload = self.state
        broken = _ORIGINALS.broken() or _ORIGINALS.broken_class(self.kind, self.forms, test)
        if broken:
            kind, payload = REFUSED, broken.encode()
        if self.turn >= len(self.names) or test._testMethodName != self.names[self.turn]:
            self.whole = (REFUSED, b"tests ran out of order")
            return
        self.runner.say(kind, self.turn, payload)
        self.turn += 1

    def note(self, kind: int, payload: bytes) -> None:
        """Keeps the first fault of the test that runs, or of the whole between tests."""
        if self.inside:
            if self.state[0] == VALUE:
                self.state = (kind, payload)
        elif self.whole[0] == VALUE:
            self.whole = (kind, payload)

    def addError(self, test, err) -> None:
        """A test, or a fixture, raised."""
        self.note(MEMORY if isinstance(err[1], MemoryError) else RAISED, _told(err))

    addFailure = addError

    def addSubTest(self, test, subtest, err) -> None:
        """A subtest is over; its failure is the test's."""
        if err is not None:
            self.addError(test, err)

    def addSkip(self, test, reason) -> None:
        """A test or the class was skipped."""
        self.note(VALUE, b"skip")

    def addExpectedFailure(self, test, err) -> None:
        """Counts as passed."""

    def addUnexpectedSuccess(self, test) -> None:
        """Counts as passed."""

    def finish(self) -> None:
        """Tests of a class that was skipped as a whole are skipped."""
        if self.whole == (VALUE, b"skip"):
            while self.turn < len(self.names):
                self.runner.say(VALUE, self.turn, b"skip")
                self.turn += 1


def _told(err) -> bytes:
    line = 0
    trace = err[2]
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == NAME + ".py":
            line = trace.tb_lineno
        trace = trace.tb_next
    file = getattr(err[1], "filename", None) if type(err[1]) in _FILE_FAULTS else None
    where = f", {file}" if type(file) is str else ""
    return _describe(err[1]) + where[:200].encode("utf-8", "replace") + (b", line %d" % line if line else b"")


class _MustFail(unittest.TestCase):
    """Three tests that must fail wherever assertions mean anything."""

    def test_equal(self):
        self.assertEqual(1, 2)  # noqa: PT009

    def test_raises(self):
        with self.assertRaises(ValueError):  # noqa: PT027
            pass

    def test_true(self):
        self.assertTrue([])  # noqa: PT009


def _can_fail() -> bool:
    result = unittest.TestResult()
    _Suite([_MustFail(name) for name in ("test_equal", "test_raises", "test_true")]).run(result)
    return len(result.failures) == 3 and not result.errors
