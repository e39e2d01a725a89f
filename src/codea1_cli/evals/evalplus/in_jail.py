"""What runs beside one candidate inside the sandbox: calls it on a task's inputs and writes each answer as a line.

The sandbox's harness, shipped as source: standard library only, Python 3.10 or newer. It knows inputs and time limits,
never an expected value, so a candidate that takes it over can only change what it answers itself. As in EvalPlus, a set
of inputs runs in one process, one after another, under an alarm a call, with the same functions switched off.

Lines are those of `answers`, or `!NAME` for an exception (and then nothing more), or `+`: the time for a first look is up.
A first look ends a call that takes longer than all of it, without a verdict.
"""

import builtins
import gc
import io
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from _signal import signal as _handle  # not the one of `signal`, which costs more than most calls

from codea1_cli.evals.evalplus.answers import express, wire  # `answers` stands in front of this file in the sandbox

STALE_S = (
    0.01  # a call's stopwatch may have begun so long before it: a new one for each would cost more than most calls
)
SMALL = 4000  # characters of an answer that is sent as it stands
ROOM = 600_000  # characters of all answers together, before long ones are sent as digests too
_kind, _clock, _count, _cpu, _end = type, time.perf_counter, len, time.process_time, os._exit
_usage, _SELF = resource.getrusage, resource.RUSAGE_SELF
_alarm, _REAL, _ALRM = signal.setitimer, signal.ITIMER_REAL, signal.SIGALRM

_OS = """kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames truncate replace unlink
fchmod fchown chmod chown chroot lchflags lchmod lchown getcwd chdir"""


class _Silent(io.StringIO):
    """Swallows what is written, and cannot be read."""

    def write(self, text):
        return len(text)

    def read(self, *args):
        raise OSError

    readline = readlines = read

    def readable(self):
        return False


def guard():
    """Switches off what EvalPlus switches off: a program that leans on it fails there too."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in _OS.split():
        setattr(os, name, None)
    for name in ("exit", "quit", "open", "help"):
        setattr(builtins, name, None)
    for module, name in ((shutil, "rmtree"), (shutil, "move"), (shutil, "chown"), (subprocess, "Popen")):
        setattr(module, name, None)
    for name in ("ipdb", "joblib", "resource", "psutil", "tkinter"):
        sys.modules[name] = None  # type: ignore[assignment]
    sys.stdout = sys.stderr = sys.stdin = _Silent()


class TimeoutException(Exception):
    pass


class Stopwatch:
    """Wall seconds since it was made, but CPU seconds of a program that never waited: other work on the machine makes
    no call late, while a program that sleeps is as late as in EvalPlus."""

    def __init__(self):
        self.wall, self.cpu, self.waits = _clock(), _cpu(), _usage(_SELF).ru_nvcsw

    def seconds(self):
        wall = _clock() - self.wall
        return min(wall, _cpu() - self.cpu) if _usage(_SELF).ru_nvcsw == self.waits else wall


DEPTH = 32  # frames below a candidate's function in EvalPlus' process (Python 3.11): recursion starts from there


def at_depth(work, *given):
    """Calls `work` with as many frames below it as EvalPlus has."""
    frame: object = sys._getframe()
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[attr-defined]
    return _sink(DEPTH - depth - 2, work, given)


def _sink(more, work, given):
    return work(*given) if more <= 0 else _sink(more - 1, work, given)


def load(code, given, stateless):
    """What calls may use: `part` alone."""
    return {"part": Task(code, stateless, **given).part}


class Task:
    """One candidate and its inputs, each of which is used once. `limits` maps the numbers of slow inputs to their
    seconds; 1 is the default."""

    def __init__(self, code, stateless, entry, parts, post, trusted):
        self.parts, self.post, self.trusted = parts, post, trusted
        self.renew = not stateless  # its alarm and handler before every call: such a program may have changed them
        self.fault = ""
        self.rings, self.limit, self.look, self.calling = 0, 1.0, False, False
        if not trusted:
            guard()
        space: dict = {"__builtins__": builtins.__dict__}
        gc.freeze()  # the inputs: no collection in a call need go through them
        try:
            at_depth(exec, code, space)
            self.function = space[entry]
        except BaseException as fault:
            self.fault = "!" + _kind(fault).__name__

    def part(self, name, budget=0.0, full=-1):
        return at_depth(self.answers, name, budget, full)

    def late(self, number, frame):
        """The alarm of a call. It rings once, as in EvalPlus; in a first look a program that catches it is ended."""
        if not self.calling:
            return
        left = self.limit - self.watch.seconds()
        if left > 2 * STALE_S:
            _alarm(_REAL, left)
            return
        self.rings += 1
        if self.look:
            if self.rings > 1:
                _end(1)
            _alarm(_REAL, self.limit)
        raise TimeoutException("Timed out!")

    def answers(self, name, budget, full):
        """The answers to one set of inputs, and the seconds of each call where the candidate is trusted."""
        if self.fault:
            return self.fault
        part = self.parts[name]
        inputs = part["inputs"] if part["json"] else eval(part["inputs"], {"inf": math.inf, "nan": math.nan})
        limits = {int(number): limit for number, limit in part["limits"].items()}
        total, function, post = part["total"], self.function, POSTS[self.post]
        lines: list = []
        seconds: list = []
        size, armed, self.rings = 0, 0.0, 0
        gc.collect()
        whole = self.watch = Stopwatch()
        for number, given in enumerate(inputs):
            if self.trusted or _clock() - self.watch.wall > STALE_S:
                self.watch, armed = Stopwatch(), 0.0
            limit = limits.get(number, 1.0)
            self.look = 0 < budget < limit
            self.limit = budget if self.look else limit
            try:
                try:
                    if not self.trusted and (self.renew or armed != self.limit):
                        _alarm(_REAL, self.limit)
                        _handle(_ALRM, self.late)
                        armed = self.limit
                    self.calling = True
                    value = function(*given)
                finally:
                    self.calling = False
                    if self.renew:
                        _alarm(_REAL, 0)
                if self.look and self.rings:
                    return "\n".join([*lines, "+"])
                if self.trusted:
                    seconds.append(self.watch.seconds())
                value = post(value, given)
                if full >= 0:
                    if number == full:
                        return express(value, 0)
                    continue
                line = wire(value, SMALL if size < ROOM else 40)
            except BaseException as fault:
                return "\n".join([*lines, "+" if self.look and self.rings else "!" + _kind(fault).__name__])
            lines.append(line)
            size += _count(line)
            if self.trusted:
                continue
            spent = _clock() - whole.wall
            if spent > total and whole.seconds() > total:
                return "\n".join([*lines, "!Late"])
            if budget and spent > budget and number + 1 < _count(inputs) and whole.seconds() > budget:
                return "\n".join([*lines, "+"])
        if self.trusted:
            lines.append(json.dumps([round(one, 6) for one in seconds]))
        return "\n".join(lines)


POSTS = {
    "": lambda value, given: value,
    "any": lambda value, given: None,
    "set": lambda value, given: set(value),
    "told": lambda value, given: value if isinstance(value, bool) else value is not None,
    "with_input": lambda value, given: (given[0], value),
}
