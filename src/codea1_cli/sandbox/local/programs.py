"""One program's run, or one unittest module's, put together from what the children answered; before it, the bytecode of
the packages that the program imports."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import math
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from codea1_cli.environment import cache_folder, program_environment
from codea1_cli.sandbox.base import Limits, ProgramRun, UnitModule, UnitRun
from codea1_cli.sandbox.local.child_monitor import ChildReport, Frame, Kind
from codea1_cli.sandbox.verdicts import OUT_OF_TURN, Answer, AnswerKind, TestOutcome, Value, Verdict

_CLOCK = 8  # digits before a value: the microseconds that it took (`jailed/child.py`)
_RELOAD_LIMITS = 3  # a program may spend this many load limits on being loaded again
_COMPILE_S = 20.0  # sympy takes 2 s; what a giant on a slow file system has not by then is left to its programs
_WORD = re.compile(r"\w+")


class Watch(Protocol):
    """Starts a child on the calls from `start` on and follows it to its end."""

    def __call__(
        self,
        start: int,
        calls: int,
        request: dict[str, Any],
        load_s: float,
        call_s: float,
        cpu_s: float,
        enough_s: float,
        load_cpu_s: float,
    ) -> ChildReport: ...


def run_program(watch: Watch, calls: int, limits: Limits) -> ProgramRun:
    """A child for all calls, and a further one after each call that ended a child."""
    answers: list[Answer] = []
    late, loading, first_loading = 0, 0.0, 0.0
    refused = False
    while True:
        call_s, cpu_s = limits.time_s, limits.cpu_s
        if late >= limits.patience:
            call_s, cpu_s = min(call_s, max(call_s / 8, 0.25)), min(cpu_s, max(cpu_s / 8, 0.05))
        request = {
            "memory_mb": limits.memory_mb,
            "output_kb": limits.output_kb,
            "processes": limits.processes,
            "again": loading <= _RELOAD_LIMITS * limits.load_limit_s,
            "cpu_s": math.ceil(limits.load_limit_s + (calls - len(answers)) * limits.time_s) + 2,
        }
        bounds = (limits.load_limit_s, call_s, cpu_s, limits.enough_s, limits.load_cpu_s)
        seen = watch(len(answers), calls, request, *bounds)
        if seen.refused and not refused:
            refused = True  # whoever took the room may have left just now: if it is the program, it is refused again
            continue
        answers += [_answer(frame) for frame in seen.answers]
        loading += seen.load_seconds
        first_loading = first_loading or seen.load_seconds
        if not seen.reader.loaded:
            fault = _load_failure(seen)
            first = not answers
            answers += [fault] * (calls - len(answers))
            if first:
                return ProgramRun(False, fault.detail, answers, load_kind=fault.kind)
            return ProgramRun(True, "", answers, load_seconds=first_loading)
        if seen.ended == "done" and seen.reader.again:
            continue
        if seen.ended in ("done", "enough"):
            return ProgramRun(True, "", answers, load_seconds=first_loading)
        end = end_of_call(seen)
        late += end.kind is AnswerKind.TIMEOUT
        over = seen.ended == "garbage" or loading > _RELOAD_LIMITS * limits.load_limit_s
        answers += [end] * (calls - len(answers) if over else min(1, calls - len(answers)))
        if len(answers) == calls or (end.kind is AnswerKind.TIMEOUT and late == limits.stop_after):
            return ProgramRun(True, "", answers, load_seconds=first_loading)


def _answer(frame: Frame) -> Answer:
    if frame.kind is not Kind.VALUE:
        return Answer(AnswerKind[frame.kind.name], detail=frame.payload[:400].decode("utf-8", "replace"))
    text = frame.payload.decode("ascii", "replace")
    try:
        seconds = int(text[:_CLOCK], 16) / 1e6
    except ValueError:  # a program's own frame
        seconds = 0.0
    return Answer(AnswerKind.VALUE, Value(wire=text[_CLOCK:]), seconds=seconds)


def _load_failure(seen: ChildReport) -> Answer:
    failure = seen.reader.load_failure
    if failure is not None:
        return _answer(failure)
    end = end_of_call(seen)
    return Answer(end.kind, detail=f"while loading: {end.detail}")


def end_of_call(seen: ChildReport) -> Answer:
    """Why a child ended before it had answered."""
    if seen.ended == "timeout":
        return Answer(AnswerKind.TIMEOUT, detail="time limit", seconds=seen.cpu_seconds)
    if seen.ended == "garbage":
        return Answer(AnswerKind.CRASHED, detail=f"{OUT_OF_TURN}: {seen.detail}")
    if seen.out_of_memory:
        return Answer(AnswerKind.MEMORY, detail="memory limit")
    if os.WIFSIGNALED(seen.status):
        number = os.WTERMSIG(seen.status)
        limits = {int(signal.SIGXCPU): AnswerKind.TIMEOUT, int(signal.SIGXFSZ): AnswerKind.OUTPUT_LIMIT}
        return Answer(limits.get(number, AnswerKind.CRASHED), detail=signal_name(number))
    if seen.refused:
        return Answer(AnswerKind.CRASHED, detail="the program's processes leave none for a call")
    return Answer(AnswerKind.CRASHED, detail=f"ended with exit status {os.WEXITSTATUS(seen.status)}")


def signal_name(number: int) -> str:
    """SIGKILL and the like; "signal 40" for a real-time signal, most of which have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_module(watch: Callable[..., ChildReport], module: UnitModule, head: int, limits: Limits) -> UnitRun:
    """One child for the whole module: a test that ends it ends the tests after it.

    head: how many bytes of the job the program's process may see before it is loaded.
    """
    expected = len(module.names) + 1
    request = {
        "memory_mb": limits.memory_mb,
        "output_kb": limits.output_kb,
        "processes": limits.processes,
        "cpu_s": 4 * math.ceil(limits.time_s) + 2,  # of each process; threads count together
        "again": False,
        "head": head,
    }
    bounds = (limits.time_s, limits.time_s, math.inf, math.inf, math.inf, limits.time_s)
    watched = partial(watch, 0, expected, request, *bounds)
    seen = watched()
    if seen.refused:  # as in `run_program`
        seen = watched()
    outcomes = [_outcome(frame) for frame in seen.answers]
    loaded = seen.reader.loaded
    if seen.reader.load_failure is not None:
        outcomes = [_outcome(seen.reader.load_failure)] * expected
    elif len(outcomes) < expected or seen.ended != "done":
        end = end_of_call(seen)
        late = TestOutcome(end.kind.verdict, end.detail)
        crashed = bool(outcomes) and outcomes[-1].verdict is Verdict.CRASHED
        outcomes += [outcomes[-1] if crashed else late] * (expected - len(outcomes))
    return UnitRun(loaded, outcomes[:-1], outcomes[-1])


def _outcome(frame: Frame) -> TestOutcome:
    detail = frame.payload[:1000].decode("utf-8", "replace")
    if frame.kind is Kind.VALUE:
        return TestOutcome(Verdict.SKIPPED) if detail == "skip" else TestOutcome(Verdict.PASSED)
    verdict = Verdict.TAMPERED if frame.kind is Kind.UNENCODABLE else Verdict[frame.kind.name]
    return TestOutcome(verdict, detail)


class Packages:
    """The installed packages that programs may import. Thread-safe.

    No program can keep bytecode, so one that nobody compiled would be compiled at every run, which counts as loading.
    The interpreter compiles it here, once, with what it requires, its tests left out; nothing of it is run. Import
    statements alone tell what a program imports: `__import__("sympy")` is compiled by its program, as ever.

    python: the programs' interpreter. path: its `sys.path`. tag: what it calls its bytecode.
    """

    def __init__(self, python: str, path: Sequence[str], tag: str) -> None:
        self._python, self._tag = python, tag
        # What else is on the path no program sees (`namespaces.readable_paths`).
        self._folders = [p for p in path if os.path.basename(p) in ("site-packages", "dist-packages")]
        names: set[str] = set()
        for folder in self._folders:
            with contextlib.suppress(OSError):
                names.update(entry.partition(".")[0] for entry in os.listdir(folder))
        self._pending = names - sys.stdlib_module_names

    def prepare(self, program: str) -> None:
        """Has the packages compiled that a program imports, and waits for it, outside of the program's time. Each is
        done once; where it cannot be done the program does without."""
        if "import" not in program or self._pending.isdisjoint(_WORD.findall(program)):
            return
        from codea1_cli.extract.source import imports, parse

        tree, deadline = parse(program), time.monotonic() + _COMPILE_S
        for name in self._pending & (imports(tree) if tree else set()):
            with contextlib.suppress(Exception):
                if not self._compile(name, deadline):
                    continue  # for the next program that imports it
            self._pending.discard(name)

    def _compile(self, name: str, deadline: float) -> bool:
        """Other threads and processes that want a package wait for the one that compiles; False: for too long."""
        if not self._uncompiled([name]):
            return True
        place = cache_folder() / "bytecode.lock"  # where no program sees it, and could hold it
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "ab") as lock:
            while not _locked(lock.fileno()):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
            if files := self._uncompiled(self._required(name)):  # another may have done it meanwhile
                subprocess.run(
                    [self._python, "-I", "-S", "-X", "utf8", "-m", "compileall", "-q", "-i", "-"], cwd="/", umask=0o022,
                    input=os.fsencode("\n".join(files)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    env=program_environment(0), timeout=max(deadline - time.monotonic(), 0.0),
                )  # fmt: skip
        return True

    def _places(self, name: str) -> list[str]:
        """Where a package or module lies: a namespace package in several folders."""
        places = [os.path.join(folder, name + end) for folder in self._folders for end in ("", ".py")]
        return [place for place in places if os.path.exists(place)]

    def _uncompiled(self, names: Iterable[str]) -> list[str]:
        """The sources without bytecode, in order, where it could be written."""
        found = []
        for place in (place for name in names for place in self._places(name)):
            alone = [(os.path.dirname(place), list[str](), [os.path.basename(place)])]
            for folder, below, files in alone if os.path.isfile(place) else os.walk(place):
                below[:] = sorted(set(below) - {"tests", "__pycache__"})
                cache = os.path.join(folder, "__pycache__")
                stems = [file[:-3] for file in files if file.endswith(".py")]
                missing = [
                    f"{folder}/{stem}.py"
                    for stem in stems
                    if not _is_compiled(f"{folder}/{stem}.py", f"{cache}/{stem}.{self._tag}.pyc")
                ]
                if missing and os.access(cache if os.path.isdir(cache) else folder, os.W_OK):
                    found += missing
        return found

    def _required(self, name: str) -> list[str]:
        """The modules of what a package requires, of what that requires and so on, and the package at the end."""
        modules: dict[str, set[str]] = {}
        requires: dict[str, list[str]] = {}
        for one in importlib.metadata.distributions(path=self._folders):
            with contextlib.suppress(Exception):  # whoever installed it wrote what cannot be read
                listed = (one.read_text("top_level.txt") or "").split()
                own = listed or [file.parts[0].partition(".")[0] for file in one.files or ()]
                known, wants = _normal(one.metadata["Name"] or ""), one.requires or ()
                requires[known] = [_normal(line) for line in wants if "extra" not in line.partition(";")[2]]
                modules[known] = self._pending.intersection(own)
        order: dict[str, None] = {}
        todo = [known for known, own in modules.items() if name in own]
        while todo:
            if (known := todo.pop(0)) in modules and known not in order:
                order[known] = None
                todo += requires[known]
        required = [module for known in reversed(order) for module in sorted(modules[known]) if module != name]
        return [*dict.fromkeys(required), name]


def _normal(requirement: str) -> str:
    """A distribution's name as it is compared, without what may follow in a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def _is_compiled(source: str, compiled: str) -> bool:
    """Whether Python would take this bytecode: by the source's time and size, unless a flag says else (PEP 552)."""
    try:
        with open(compiled, "rb") as file:
            flags, *made_of = struct.unpack("<4xIII", file.read(16))
        status = os.stat(source)
    except (OSError, struct.error):
        return False
    return bool(flags) or made_of == [int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF]


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: what is compiled twice does no harm
        pass
    return True
