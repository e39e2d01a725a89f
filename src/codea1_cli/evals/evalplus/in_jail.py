"""What runs beside one candidate inside the sandbox: calls it on a task's inputs and writes each answer as text.

Shipped as source, standard library only, Python 3.10 or newer. It knows inputs and time limits, never an expected value,
so a candidate that takes it over can only change what it answers itself. As in EvalPlus, a set of inputs runs in one
process, one after another, under an alarm a call, with the same functions switched off.

An answer is a line: a Python expression in ASCII (`evals.evalplus.values` reads it), `#KIND DIGEST` for a large value (the
kind's letter, then n where it holds a NaN and f where it is all floats), `!NAME` for an exception (and then nothing more), `?` for a value that equals no other. A line `+` says that the time
for a first look was up.
"""

import builtins
import gc
import hashlib
import io
import json
import marshal
import math
import os
import signal
import sys
import time
from itertools import chain

SMALL = 4000  # characters of an answer that is sent as it stands
ROOM = 600_000  # characters of all answers together, before long ones are sent as digests too
_NOTHING = "nothing()"
_NONE = type(None)
_SCALARS = frozenset({int, float, str, bool, _NONE, bytes, complex})
_BOXES = frozenset({list, tuple, dict, set, frozenset})
_KINDS = {list: "l", tuple: "t", dict: "d", set: "s", frozenset: "z"}
_ascii, _type, _clock, _dumps, _blake = ascii, type, time.perf_counter, marshal.dumps, hashlib.blake2b
_alarm, _handle, _REAL, _ALRM = signal.setitimer, signal.signal, signal.ITIMER_REAL, signal.SIGALRM
_get, _len = type.__getattribute__, len
_modules = sys.modules

_OS = [
    "kill",
    "system",
    "putenv",
    "remove",
    "removedirs",
    "rmdir",
    "fchdir",
    "setuid",
    "fork",
    "forkpty",
    "killpg",
    "rename",
    "renames",
    "truncate",
    "replace",
    "unlink",
    "fchmod",
    "fchown",
    "chmod",
    "chown",
    "chroot",
    "lchflags",
    "lchmod",
    "lchown",
    "getcwd",
    "chdir",
]


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
    import shutil
    import subprocess

    os.environ["OMP_NUM_THREADS"] = "1"
    for name in _OS:
        setattr(os, name, None)
    for name in ("exit", "quit", "open", "help"):
        setattr(builtins, name, None)
    for module, name in ((shutil, "rmtree"), (shutil, "move"), (shutil, "chown"), (subprocess, "Popen")):
        setattr(module, name, None)
    for name in ("ipdb", "joblib", "resource", "psutil", "tkinter"):
        _modules[name] = None  # type: ignore[assignment]
    sys.stdout = sys.stderr = sys.stdin = _Silent()


class TimeoutException(Exception):
    pass


def _late(number, frame):
    raise TimeoutException("Timed out!")


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


class Task:
    """One candidate and its inputs. `limits` maps the numbers of slow inputs to their seconds; 4 are the default."""

    def __init__(self, source, entry, parts, post, trusted=False):
        self.parts, self.post, self.trusted = parts, post, trusted
        self.fault = ""
        if not trusted:
            guard()
        space: dict = {"__builtins__": builtins.__dict__}  # not the copy that the sandbox keeps for itself
        try:
            at_depth(exec, source, space)
            self.function = space[entry]
        except BaseException as fault:
            self.fault = "!" + _type(fault).__name__

    def part(self, name, budget=0.0, full=-1):
        return at_depth(self.answers, name, budget, full)

    def answers(self, name, budget, full):
        """The answers to one set of inputs, and the seconds of each call where the candidate is trusted."""
        if self.fault:
            return self.fault
        part = self.parts[name]
        text = part["inputs"]
        inputs = json.loads(text) if part["json"] else eval(text, {"inf": math.inf, "nan": math.nan})
        limits, total, function, post = part["limits"], part["total"], self.function, POSTS[self.post]
        lines: list = []
        seconds: list = []
        size = 0
        gc.collect()
        began = _clock()
        for number, given in enumerate(inputs):
            called = _clock()
            try:
                try:
                    if not self.trusted:
                        _alarm(_REAL, limits.get(str(number), 4.0))
                        _handle(_ALRM, _late)
                    value = function(*given)
                finally:
                    _alarm(_REAL, 0)
                seconds.append(_clock() - called)
                value = post(value, given)
                if full >= 0:
                    if number == full:
                        return express(value, 0)
                    continue
                line = wire(value, SMALL if size < ROOM else 40)
            except BaseException as fault:
                return "\n".join([*lines, "!" + _type(fault).__name__])
            lines.append(line)
            size += _len(line)
            spent = _clock() - began
            if not self.trusted and spent > total:
                return "\n".join([*lines, "!Late"])
            if budget and spent > budget and number + 1 < _len(inputs):
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


def wire(value, small):
    """The line of one answer."""
    kind = _type(value)
    if kind is int:
        if -(1 << 63) < value < 1 << 63:
            return _ascii(value)
        text = hex(value)
        return text if _len(text) <= small else "#i " + _digest(text.encode())
    if kind is str:
        if _len(value) * 10 <= small or _len(_ascii(value)) <= small:
            return _ascii(value)
        return "#c " + _digest(value.encode("utf-8", "surrogatepass"))
    if kind in _SCALARS:
        return _ascii(value)
    if kind in _BOXES:
        if _len(value) > 1000 and (kind is list or kind is tuple):
            return _large(value, kind)
        count, strange = survey(value)
        if count > 0:
            if count <= small // 2 and "n" not in strange:
                text = express(value, 0) if strange else _ascii(value)
                if _len(text) <= small:
                    return text
            return _large(value, kind, strange)
    text = express(value, 0)
    return text if _len(text) <= 20 * small else "?"


def _digest(data):
    return _blake(data, digest_size=20).hexdigest()


def _large(value, kind, strange=""):
    """A digest of the exact value: of its type, its length and its parts a thousand at a time."""
    state = _blake(digest_size=20)
    if kind is not list and kind is not tuple:
        return f"#{_KINDS[kind]}{strange.replace('i', '')} " + _digest(_dumps(value, 2))
    state.update(b"%d " % _len(value))
    for start in range(0, _len(value), 1000):
        piece = list(value[start : start + 1000])
        count, odd = survey(piece)
        if count < 0:
            return "?"
        strange += odd
        state.update(_dumps(piece, 2))
    floats = "f" if value and set(map(_type, value)) == {float} else ""
    return f"#{_KINDS[kind]}{'n' if 'n' in strange else ''}{floats} {state.hexdigest()}"


def survey(value):
    """How many parts a value has, -1 when one of them is no exact builtin; with "n" for a NaN, "i" for a long integer."""
    level, count, strange = [value], 0, ""
    for _ in range(60):
        kinds = set(map(_type, level))
        count += _len(level)
        if not (kinds <= _SCALARS or kinds <= _SCALARS | _BOXES) or count > 3_000_000:
            return -1, ""
        if float in kinds and any(x != x for x in level if _type(x) is float):
            strange += "n"
        if int in kinds and any(not -(1 << 9000) < x < 1 << 9000 for x in level if _type(x) is int):
            strange += "i"
        boxes = kinds & _BOXES
        if not boxes:
            return count, strange
        if boxes != kinds:
            level = [x for x in level if _type(x) in _BOXES]
        if dict in boxes:
            level = [chain(x, x.values()) if _type(x) is dict else x for x in level]
        level = list(chain.from_iterable(level))
        if not level:
            return count, strange
    return -1, ""


def express(value, depth):
    """An expression for any value that can equal another: builtins, numpy's, a subclass by the value that it is."""
    kind = _type(value)
    if depth > 60:
        raise RecursionError
    if kind is int:
        return hex(value) if value.bit_length() > 60 else _ascii(value)
    if kind in _SCALARS:
        return _ascii(value)
    if kind in _BOXES:
        return _box(kind, value, depth)
    numpy = _modules.get("numpy")
    if numpy is not None and kind is numpy.ndarray:
        return f"array({value.dtype.str!r}, {value.shape!r}, {express(value.ravel().tolist(), depth + 1)})"
    if numpy is not None and numpy.generic in _get(kind, "__mro__"):
        return f"scalar({value.dtype.str!r}, {express(value.item(), depth + 1)})"
    name, module = _get(kind, "__name__"), _module(kind)
    if module == "builtins" and name in ("dict_keys", "dict_items", "range", "bytearray"):
        args: tuple = (value.start, value.stop, value.step) if name == "range" else (list(value),)
        return f"{name}({', '.join(express(arg, depth + 1) for arg in args)})"
    if module == "collections" and name in ("OrderedDict", "Counter", "defaultdict", "deque"):
        items: list = list(value) if name == "deque" else list(dict.items(value))
        return f"{name}({express(items, depth + 1)})"
    if (module, name) in (("decimal", "Decimal"), ("fractions", "Fraction")):
        return f"{name}({_ascii(str(value))})"
    for base in _get(kind, "__mro__"):
        if base in _BOXES or base in _SCALARS:
            if _get(kind, "__eq__") is not _get(base, "__eq__"):
                return _NOTHING  # it would decide itself what it equals
            plain = base(value) if base is not dict else dict(dict.items(value))
            return f"sub({express(plain, depth + 1)})"
    return _NOTHING


def _module(kind):
    try:
        return _get(kind, "__module__")
    except AttributeError:  # made where no module has a name
        return ""


def _box(kind, value, depth):
    parts = [(express(x, depth + 1)) for x in value]
    if kind is dict:
        return "{" + ", ".join(f"{k}: {express(x, depth + 1)}" for k, x in zip(parts, value.values())) + "}"  # noqa: B905
    inner = ", ".join(parts)
    if kind is list:
        return f"[{inner}]"
    if kind is tuple:
        return f"({inner},)" if parts else "()"
    return f"{kind.__name__}([{inner}])"
