"""What every sandbox backend offers: run one program on some calls, within limits, and hand back typed answers.

Also the layers of isolation by name (the local backend has them): what works here, what was demanded.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from codea1_cli.errors import EnvironmentFault, UserError, did_you_mean
from codea1_cli.sandbox.verdicts import Answer, AnswerKind, TestOutcome, Verdict


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    Seconds are wall-clock, but for `cpu_s` and `load_cpu_s`: the processor time that one call, or loading, may take, by
    default as much as it gets. It does not pass while the program waits for a busy machine. A program that has used up
    either limit on `patience` calls gets an eighth for every further call (at least 0.25 s, and 0.05 s of processor
    time), so that a program that always loops cannot hold a worker for minutes. With `stop_after` that many calls that
    are out of time end the run, and those after them have no answer; so does a process that has answered calls for
    `enough_s`, and for longer than its loading took. `memory_mb` counts what the program adds to an idle interpreter;
    `output_kb` bounds what a call may print and how large a file may grow; `processes` counts threads too. Loading may
    take `load_s`, by default two seconds more than a call.
    """

    time_s: float = 4.0
    load_s: float | None = None
    memory_mb: int = 1024
    output_kb: int = 4096
    processes: int = 64
    patience: int = 3
    cpu_s: float = math.inf
    load_cpu_s: float = math.inf
    stop_after: int | None = None
    enough_s: float = math.inf

    @property
    def load_limit_s(self) -> float:
        """Seconds that loading a program may take."""
        return self.time_s + 2.0 if self.load_s is None else self.load_s


@dataclass(frozen=True, slots=True)
class SandboxEnvironment:
    """What a program finds around it.

    env: environment variables beyond the usual ones. loopback: whether it may talk to itself over 127.0.0.1.
    scratch_mb: the size of its own folder. proc: a stand-in for /proc with facts about the machine and no process.
    unit: whether the worker can run unittest modules. harness: the source of a module of ours that a worker runs once
    and that loads every program: `load(code, given, stateless)` gets a program's code, what `Sandbox.run` was given
    beside it and whether its calls share a process, and returns the names that calls may use.
    """

    env: dict[str, str] = field(default_factory=dict)
    loopback: bool = False
    scratch_mb: int = 64
    proc: bool = False
    unit: bool = False
    harness: str = ""


@dataclass(slots=True)
class ProgramRun:
    """One program's run: `answers` in the order of the calls; fewer than calls where it ended early
    (`Limits.stop_after`, `enough_s`).

    `loaded` is None when the sandbox failed, False when the program could not be loaded (each answer then carries
    the reason's kind, which is `load_kind`), else True. `load_seconds`: what its first loading took, by the clock.
    """

    loaded: bool | None
    load_detail: str = ""
    answers: list[Answer] = field(default_factory=list)
    seconds: float = 0.0
    load_kind: AnswerKind | None = None
    load_seconds: float = 0.0

    @classmethod
    def unscored(cls, calls: int, why: str) -> ProgramRun:
        """The run that did not take place."""
        return cls(None, why, [Answer(AnswerKind.UNSCORED, detail=why)] * calls)


@dataclass(frozen=True, slots=True)
class UnitModule:
    """`code`, then `tests`, in one module; `names`: the test methods of `class_name`, sorted as unittest runs them."""

    code: str
    tests: str
    names: tuple[str, ...]
    class_name: str = "TestCases"

    def encode(self) -> tuple[bytes, int]:
        """The job for a worker, and how many bytes of it a program's process may see before it is loaded."""
        head = json.dumps({"code": self.code, "class": self.class_name}).encode()
        return head + json.dumps({"tests": self.tests, "names": self.names}).encode(), len(head)


@dataclass(slots=True)
class UnitRun:
    """`tests` in the order of the names; `whole` is what befell the class or the module beside them.

    `loaded` is None when the sandbox failed, False when the program could not be loaded; `whole` then says why.
    """

    loaded: bool | None
    tests: list[TestOutcome]
    whole: TestOutcome
    seconds: float = 0.0

    @classmethod
    def unscored(cls, module: UnitModule, why: str) -> UnitRun:
        """The run that did not take place."""
        outcome = TestOutcome(Verdict.UNSCORED, why)
        return cls(None, [outcome] * len(module.names), outcome)

    @property
    def first_fault(self) -> TestOutcome | None:
        """The first outcome that is neither PASSED nor SKIPPED, the whole's before the tests'."""
        everything = [self.whole, *self.tests]
        return next((o for o in everything if o.verdict not in (Verdict.PASSED, Verdict.SKIPPED)), None)


class Sandbox(Protocol):
    """A backend; `run` is thread-safe and blocking, and reports its own failures as `unscored`, never raises them.

    workers: how many callers of `run` it keeps busy at once. layers: each layer of isolation with the reason why it is
    missing, empty where it works.

    What else a backend has is used: `run_unit(module, limits, hash_seed)` (unittest modules: a `UnitRun`), `hello`
    (`python`: the version that programs have), `cpu_seconds()` (of its programs so far), `most` (callers that it keeps
    busy where some wait for long), `requests` (what it runs at once, where several callers share a request), `trouble`
    and `hint` (its last failure and the way out, as texts), `failures` (how many of each kind so far) and
    `check(module)` (the canaries of a module, run where programs run).
    """

    workers: int
    layers: dict[str, str]

    def run(
        self,
        program: str,
        entry_point: str,
        calls: Sequence[str],
        limits: Limits,
        hash_seed: int = 0,
        *,
        given: str = "null",
    ) -> ProgramRun:
        """Loads a program and evaluates expressions in its module, in a process that hashes by `hash_seed`.

        given: JSON text for the harness, where the environment has one.
        """

    def close(self) -> None:
        """Ends what the backend holds; a program that is asked for afterwards is unscored."""


def at_most(sandbox: Sandbox) -> int:
    """How many callers of `run` a backend keeps busy at the most."""
    return getattr(sandbox, "most", getattr(sandbox, "workers", 1))


A = TypeVar("A")
B = TypeVar("B")


def in_order(function: Callable[[A], B], items: Iterable[A], workers: int) -> Generator[tuple[A, B], None, None]:
    """(item, function(item)) in the order of `items`, `workers` at a time; at most 4 items per worker are held at once.

    One worker is this thread itself. An exception of `function` comes out in its item's place. Closing the generator
    waits for the calls that have begun and drops the others.
    """
    if workers == 1:
        for item in items:
            yield item, function(item)
        return
    pending: deque[tuple[A, Future[Any]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="judge") as threads:
        try:
            for item in items:
                pending.append((item, threads.submit(function, item)))
                while len(pending) >= 4 * workers or (pending and pending[0][1].done()):
                    first, future = pending.popleft()
                    yield first, future.result()
            while pending:
                first, future = pending.popleft()
                yield first, future.result()
        finally:
            for _, future in pending:
                future.cancel()


def as_ended(
    function: Callable[[A], B], items: Iterable[A], workers: int, wait: bool = True
) -> Generator[tuple[A, B], None, None]:
    """(item, function(item)) as soon as each is there, `workers` at a time; at most 4 items per worker are held.

    Closing the generator, and an exception, drops the calls that have not begun and waits for the others; without
    `wait` these go on until what they use is closed.
    """
    ended: SimpleQueue[Future[B]] = SimpleQueue()
    pending: dict[Future[B], A] = {}
    threads = ThreadPoolExecutor(workers := max(1, workers))
    try:
        for item in items:
            future = threads.submit(function, item)
            pending[future] = item
            future.add_done_callback(ended.put)
            while len(pending) >= 4 * workers or not ended.empty():
                first = ended.get()
                yield pending.pop(first), first.result()
        while pending:
            first = ended.get()
            yield pending.pop(first), first.result()
    finally:
        threads.shutdown(wait=wait, cancel_futures=True)


LAYERS = (
    "rlimits", "no_new_privs", "user_namespace", "pid_namespace", "net_namespace", "ipc_namespace", "mount_namespace",
    "landlock", "seccomp", "pids_cgroup", "memory_cgroup",
)  # fmt: skip


def check_layers(names: Iterable[str]) -> frozenset[str]:
    """The names as a set, `all` written out. Raises UserError for one that is not a layer."""
    chosen = set(names)
    if "all" in chosen:
        return frozenset(LAYERS)
    for name in sorted(chosen.difference(LAYERS)):
        hint = did_you_mean(name, LAYERS) or f"layers: {', '.join(LAYERS)}"
        raise UserError(f"no sandbox layer is called {name!r}", hint)
    return frozenset(chosen)


def layer_report(zygote: Mapping[str, str], groups: Iterable[str], without: frozenset[str]) -> dict[str, str]:
    """Every layer in order, with an empty text where it works and else the reason why not."""
    groups = set(groups)
    found = dict(zygote)
    for name in ("pids", "memory"):
        off = "switched off" if f"{name}_cgroup" in without else "no control group can be made here"
        found[f"{name}_cgroup"] = "" if name in groups else off
    return {name: found.get(name, "not tried") for name in LAYERS}


def missing_layers(layers: Mapping[str, str]) -> list[str]:
    """The names of the layers that do not work."""
    return [name for name, fault in layers.items() if fault]


def demand_layers(layers: Mapping[str, str], require: Iterable[str]) -> None:
    """Raises EnvironmentFault when a required layer is missing, naming each with its reason."""
    lacking = [name for name in LAYERS if name in check_layers(require) and layers[name]]
    if lacking:
        reasons = ", ".join(f"{name} ({layers[name]})" for name in lacking)
        raise EnvironmentFault(
            f"the sandbox lacks required layers: {reasons}",
            "run on a host that grants them, or take them out of sandbox.require",
        )


def layer_warning(layers: Mapping[str, str]) -> str:
    """One line that names what is missing; empty when nothing is."""
    lacking = missing_layers(layers)
    if not lacking:
        return ""
    return "sandbox layers missing here: " + ", ".join(f"{name} ({layers[name]})" for name in lacking)
