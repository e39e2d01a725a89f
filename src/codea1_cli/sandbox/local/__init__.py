"""The local backend: programs and unittest modules in jailed forks of warm interpreters, some of them per hash seed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

import codea1_cli
from codea1_cli.sandbox.base import (
    Limits,
    ProgramRun,
    SandboxEnvironment,
    UnitModule,
    UnitRun,
    check_layers,
    demand_layers,
    layer_report,
)
from codea1_cli.sandbox.local import cgroup
from codea1_cli.sandbox.local.child_monitor import ChildReport
from codea1_cli.sandbox.local.programs import Packages, run_module, run_program
from codea1_cli.sandbox.local.worker import STAGE, Places, Worker, WorkerLost

T = TypeVar("T")


class LocalSandbox:
    """Runs programs in jailed forks of warm interpreters on this machine. Thread-safe.

    workers: how many programs may run at once for each hash seed, `most` while these run for long and the machine has
    processors to spare (`Places`). python: the candidates' interpreter (3.10 or
    newer), default this one. require: layers that must work, names of `base.LAYERS`. without: layers to leave out.
    apart: give every call a fork of its own, also where a program keeps no state. environment: what else programs find
    around them. compiling: have the packages that programs import compiled (`Packages`). Raises EnvironmentFault when
    the interpreter does not start or a required layer is missing, UserError for an unknown layer.
    """

    def __init__(
        self,
        workers: int = 2,
        python: str | None = None,
        require: Iterable[str] = (),
        without: Iterable[str] = (),
        warm: Iterable[str] = ("numpy",),
        apart: bool = False,
        environment: SandboxEnvironment = SandboxEnvironment(),
        compiling: bool = True,
    ) -> None:
        self.workers = max(1, workers)
        self.most = 3 * self.workers
        self.python = python or sys.executable
        self.apart = apart
        without = check_layers(without)
        self._setup: dict[str, object] = {
            "without": sorted(without),
            "hidden": [str(Path(codea1_cli.__file__).parent)],
            "warm": list(warm),
            **asdict(environment),
        }
        parents = {k: v for k, v in cgroup.find_parents().items() if f"{k}_cgroup" not in without}
        cgroup.sweep(parents.values())
        cgroup.sweep([Path(tempfile.gettempdir())], STAGE)
        self._parents = parents
        self._lock = threading.Lock()
        self._count = 0
        self._closed = False
        self._working: set[Worker] = set()
        self._all: weakref.WeakSet[Worker] = weakref.WeakSet()
        self._places: dict[int, Places] = {}  # by hash seed
        # A zygote is told to end with the thread that started it, so one thread that stays starts them all.
        self._starts = ThreadPoolExecutor(1, thread_name_prefix="codea1-sandbox")
        first = self._take(0)
        self.hello = first.hello
        self._working.discard(first)
        self._places[0].give(first)
        self._packages = Packages(self.python, first.hello["path"] if compiling else (), first.hello["tag"])
        self.layers = layer_report(first.hello["layers"], parents, without)
        try:
            demand_layers(self.layers, require)
        except Exception:
            self.close()
            raise

    def _start(self, seed: int) -> Worker:
        with self._lock:
            self._count += 1
            name = str(self._count)

        def start() -> Worker:
            group = cgroup.Cgroup(self._parents, f"{id(self):x}-{name}") if self._parents else None
            return Worker(self.python, seed, self._setup, group)

        return self._starts.submit(start).result()

    def _take(self, seed: int) -> Worker:
        with self._lock:
            if self._closed:
                raise WorkerLost("the sandbox is closed")
            if seed not in self._places:
                self._places[seed] = Places(self.workers, self.most)
            places = self._places[seed]
        worker = places.take()
        try:
            if worker is not None and not worker.is_alive():  # it died while it had no work
                worker.close()
                worker = None
            worker = worker or self._start(seed)
        except BaseException:
            places.give(None)
            raise
        self._working.add(worker)
        self._all.add(worker)
        return worker

    def pids(self) -> list[int]:
        """The zygotes that are at work now."""
        return [worker.process.pid for worker in list(self._working)]

    def cpu_seconds(self) -> float:
        """CPU that the zygotes and their children took so far."""
        return sum(worker.cpu_seconds() for worker in self._all if worker.process.poll() is None)

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
        """Loads a program and evaluates calls in it. Our own failure gives `loaded` None and `unscored` answers."""
        self._packages.prepare(program)
        began = time.monotonic()
        head = json.dumps({"program": program, "entry": entry_point, "calls": list(calls), "apart": self.apart})
        job = f'{head[:-1]}, "given": {given}}}'.encode()  # `given` is text already: it may be long
        run = self._try_twice(job, hash_seed, lambda watch: run_program(watch, len(calls), limits))
        if isinstance(run, str):
            run = ProgramRun.unscored(len(calls), run)
        run.seconds = time.monotonic() - began
        return run

    def run_unit(self, module: UnitModule, limits: Limits, hash_seed: int = 0) -> UnitRun:
        """Runs a program with a unittest module; needs an environment with `unit`. `limits.time_s` holds for all of it.

        Our own failure gives `loaded` None and `unscored` outcomes.
        """
        for text in (module.code, module.tests):
            self._packages.prepare(text)
        began = time.monotonic()
        job, head = module.encode()
        run = self._try_twice(job, hash_seed, lambda watch: run_module(watch, module, head, limits))
        if isinstance(run, str):
            run = UnitRun.unscored(module, run)
        run.seconds = time.monotonic() - began
        return run

    def _try_twice(self, job: bytes, seed: int, use: Callable[[Callable[..., ChildReport]], T]) -> T | str:
        """What `use` makes of a job, else why the sandbox failed."""
        fault: Exception | None = None
        for _ in range(2):
            try:
                descriptor = os.memfd_create("job", os.MFD_CLOEXEC)
                try:
                    with open(descriptor, "wb", closefd=False) as file:
                        file.write(job)
                    return self._run_once(descriptor, seed, use)
                finally:
                    os.close(descriptor)
            except Exception as lost:  # whatever it was, it is our failure
                fault = lost
        return f"the sandbox failed: {fault}"

    def _run_once(self, job: int, seed: int, use: Callable[[Callable[..., ChildReport]], T]) -> T:
        worker = self._take(seed)
        keep = False
        try:
            run = use(partial(worker.watch, job))
            keep = True
            return run
        finally:
            self._working.discard(worker)
            if not keep:
                with contextlib.suppress(Exception):
                    worker.abandon()
            self._places[seed].give(worker if keep else None)

    def close(self) -> None:
        """Ends all zygotes that are idle, and those at work when their job is done."""
        with self._lock:
            self._closed = True
            every = list(self._places.values())
        for places in every:
            places.close()
        self._starts.shutdown(wait=False)

    def __enter__(self) -> LocalSandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
