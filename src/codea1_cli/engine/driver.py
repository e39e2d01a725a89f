"""The driver: starts the policies and the arena, watches them, and ends a run with one clear outcome."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from codea1_cli.engine import as_error, resume_hint, stack_hint
from codea1_cli.engine.arena import Arena
from codea1_cli.engine.cluster import ray_cluster, runtime_env
from codea1_cli.engine.policy_worker import PolicyWorker
from codea1_cli.engine.preflight import measure_solve_rates
from codea1_cli.engine.ranks import Node, build_order, check_shared, on_node, pinned, rank_specs
from codea1_cli.engine.rehearsal import rehearse_commit
from codea1_cli.engine.run_setup import RunSetup, Schedule
from codea1_cli.engine.sft import PairSetup
from codea1_cli.engine.shutdown import EXIT_INTERRUPTED, MARK, interrupts, stop_note
from codea1_cli.engine.trl.vllm_engine import engine_line
from codea1_cli.environment import KEEP, PYTHON, foreign, settle
from codea1_cli.errors import RunFailed, SandboxOutage, counted, left_out
from codea1_cli.methods.registry import method_of
from codea1_cli.planning.gpu_assignment import Gpu
from codea1_cli.problems.problem import Problem, public_problem
from codea1_cli.recipe.resources import benchmarks_due, heldout_due, heldout_problems, unread_problems
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import RunOutcome, View, summarise

_IMPORTS_S = 600.0  # the least for processes to start and import torch and TRL, whatever the deadline of a phase
_REFERENCES_AT_ONCE = 256  # so that each call of the arena ends within the patience of a start


class Driver:
    """Starts the arena and the ranks of a run, watches them, and ends them."""

    def __init__(
        self, recipe: Recipe, run: RunDir, ranks: dict[str, list[Gpu | None]], view: View, nodes: Sequence[Node] = ()
    ) -> None:
        """`nodes`: those of the cluster that the run joins, the driver's first; none for a run on this machine."""
        self.recipe, self.run, self.view, self.ranks, self.nodes = recipe, run, view, ranks, nodes
        self.method, self.saves = method_of(recipe), recipe.checkpoint.every is not None
        self.single = len(self.method.policies) == 1
        self.workers: dict[str, Any] = {}
        self.options: dict[str, dict[str, Any]] = {}  # of each rank's actor
        self.where: dict[str, tuple[str, int]] = {}  # each rank's node and process id
        self.arena: Any = None
        self.interrupted = self.over = False
        self.set_aside: set[str] = set()  # variables that lay in the shell and no rank gets

    def train(self, rows: Sequence[Any], resume_step: int, max_steps: int | None, address: str | None) -> RunOutcome:
        """Runs over `rows`, problems or pairs, to the end, to `max_steps`, or to an interrupt. Raises RunFailed,
        UserError or EnvironmentFault: one error that names side, rank, step and cause."""
        if names := settle():
            note = f"set aside, because a run has its own: {', '.join(names)} ({KEEP}=NAME,... passes them on)"
            self.view.event({"kind": "note", "text": note})
        ray_s = [name for name in os.environ if name.startswith("RAY_") and address is None]
        self.set_aside = {*names, *foreign(os.environ, threads=True), *ray_s}
        if self.saves:
            rehearse_commit(self.run)
        self.view.phase("starting Ray")
        # From the first step on an interrupt is a request, until Ray has ended: then nothing is left to interrupt.
        with contextlib.ExitStack() as to_the_end, ray_cluster(self.run.path, address, self.run.lock_file) as ray:
            self.ray = ray
            self.node = ray.get_runtime_context().get_node_id()
            try:
                self._start()
                schedule, kept = self._prepare(rows, resume_step)
                last = min(len(schedule), max_steps or len(schedule))
                self.view.event({"kind": "length", "total": len(schedule), "last": last})
                heldout = heldout_problems(self.recipe)
                self._build(schedule, kept, heldout, resume_step, last)
                first = not resume_step and (heldout_due(self.recipe, 0) or benchmarks_due(self.recipe, 0))
                self.view.phase("evaluating before the first step" if first else "training")
                to_the_end.enter_context(interrupts(self._stop, self._stop_at_once))
                self._watch(self._launch(resume_step))
                self._wait_for_benchmarks()
                summary = self._call(self.arena.close.remote(), "the arena", self._patience)
            except Exception:
                self._end_actors()
                raise
            self._end_actors()
        reached = self.run.latest_step() if self.saves else summarise(self.run).step
        unfinished = reached < last or self.run.within is not None  # more follows on a warm-up
        return RunOutcome(reached, len(schedule), last, self.interrupted and unfinished, summary)

    def _end_actors(self) -> None:
        self.over = True
        for actor in (*self.workers.values(), *([self.arena] if self.arena else [])):
            with contextlib.suppress(Exception):
                self.ray.kill(actor)

    # -- starting --------------------------------------------------------------------------------------------------
    def _start(self) -> None:
        """Launches all actors at once: their imports are the longest part of a start."""
        ray = self.ray
        if self.nodes:
            check_shared(ray, self.nodes, self.run.path)
        self.specs = specs = rank_specs(self.recipe, self.run, self.ranks, self.nodes, ray)
        here = pinned(self.node)  # beside the driver, which holds the run's lock
        # The mark is for actors of a cluster that this process did not start: nothing shall outlive the driver.
        variables = PYTHON | {MARK: os.environ[MARK]}
        pythons = {node.id: node.interpreter for node in self.nodes} or {self.node: sys.executable}
        options: dict[str, Any] = {"num_cpus": 0, "runtime_env": runtime_env(variables, pythons[self.node])}
        self.arena = ray.remote(**options, max_concurrency=1000, scheduling_strategy=here)(Arena).remote(
            self.recipe, str(self.run.path), [spec.label for spec in specs]
        )
        for spec in specs:
            node = spec.node or self.node
            options["runtime_env"] = runtime_env(variables | {"CUDA_VISIBLE_DEVICES": spec.gpu or ""}, pythons[node])
            options["scheduling_strategy"] = pinned(node)
            self.options[spec.label] = dict(options)
            self.workers[spec.label] = ray.remote(**options)(PolicyWorker).remote(spec, self.recipe, self.arena)
        self.view.phase("loading the policy" if self.single else "loading both policies")
        self.loading = {label: worker.load.remote() for label, worker in self.workers.items()}

    def _prepare(self, problems: Sequence[Any], resume_step: int) -> tuple[Schedule, dict[str, Problem]]:
        self.setup = setup = (PairSetup if self.method.pairs else RunSetup)(self.recipe, self.run)
        layers = self._call(self.arena.layers.remote(), "the sandbox", max(self._patience, _IMPORTS_S))
        setup.sandbox_layers = layers
        if layers["missing"]:
            self.view.event({"kind": "note", "text": f"sandbox layers missing here: {', '.join(layers['missing'])}"})
        if resume_step:
            return setup.resume(problems, list(self.workers))
        faults = unread_problems(self.recipe, problems)
        for start in range(0, 0 if self.method.pairs else len(problems), _REFERENCES_AT_ONCE):
            part = [one for one in problems[start : start + _REFERENCES_AT_ONCE] if one.id not in faults]
            faults |= self._call(self.arena.check_references.remote(part), "the judge of references", self._patience)
        loaded = self._loaded()
        setup.environment = {
            "set_aside": sorted(self.set_aside.union(*(info["set_aside"] for info in loaded.values()))),
            "given": {spec.label: spec.environment for spec in self.specs},
        }
        lengths: list[Any] = []
        for policy in self.method.policies if self.method.pairs else self.method.policies[:1]:
            label, rows = f"{policy}[0]", [p if self.method.pairs else public_problem(p) for p in problems]
            lengths += self._call(self.workers[label].lengths.remote(rows), label, self._patience)
        faults |= setup.outside_solve_rate(problems, faults, lengths, self._solve_rates)
        devices = {
            label: info["device"] + (f" of node {info['node'][:8]}" if self.nodes else "")
            for label, info in loaded.items()
        }
        schedule, kept = setup.fresh(problems, faults, lengths, devices)
        self.recipe = setup.recipe
        for note in setup.notes:
            self.view.event({"kind": "note", "text": note})
        for line in left_out(setup.skipped, "pair" if self.method.pairs else "problem"):
            self.view.event({"kind": "note", "text": line})
        return schedule, kept

    def _solve_rates(self, problems: Sequence[Problem]) -> dict[str, float | None]:
        self.view.phase(f"measuring the solve rates of {counted(len(problems), 'problem')}")
        patience, solver = max(self._patience, _IMPORTS_S), self.method.policy("code")
        mine = [(spec, self.options[spec.label]) for spec in self.specs if spec.policy == solver]
        return measure_solve_rates(self.ray, self.recipe, mine, self.arena, self._call, patience, problems)

    def _build(
        self, schedule: Schedule, problems: dict[str, Problem], heldout: list[Problem], resume_step: int, last: int
    ) -> None:
        self._loaded()
        self._call(self.arena.start.remote(schedule, problems, heldout, resume_step, last), "the arena", self._patience)
        self.view.phase("building its trainer" if self.single else "building both trainers")
        # Model-written text is all that a policy needs besides the questions: references stay in the arena.
        public = {pid: public_problem(problem) for pid, problem in problems.items()}
        for group in build_order(self.specs, self.recipe):
            asked = self.recipe, schedule, last, public, self.setup.pairs
            building = {label: self.workers[label].build.remote(*asked) for label in group}
            told = self._gather(building, "building", self._patience)
            for label, chosen in told.items():
                if chosen:
                    self.view.event({"kind": "note", "text": engine_line(label, chosen)})

    def _launch(self, resume_step: int) -> dict[Any, str]:
        refs = {}
        for label, worker in self.workers.items():
            policy = label.partition("[")[0]
            checkpoint = str(self.run.checkpoint(resume_step) / policy) if resume_step else None
            refs[worker.train.remote(checkpoint, resume_step + 1)] = label
        return refs

    # -- watching --------------------------------------------------------------------------------------------------
    def _watch(self, training: dict[Any, str]) -> None:
        pending = list(training)
        news = self.arena.next_events.remote()
        checked = time.monotonic()
        outage: str | None = None
        while pending:
            done, _ = self.ray.wait([*pending, news], num_returns=1, timeout=1.0)
            for ref in done:
                if ref == news:
                    for event in self._call(news, "arena", self._patience):
                        self.view.event(event)
                    news = self.arena.next_events.remote()
                else:
                    pending.remove(ref)
                    outage = self._call(ref, training[ref]) or outage
            if time.monotonic() - checked > 1.0:
                checked = time.monotonic()
                self._check_progress()
        for event in self._call(news, "arena", self._patience):
            self.view.event(event)
        if outage:
            raise SandboxOutage(outage, resume_hint(self.run))

    def _wait_for_benchmarks(self) -> None:
        """What was sampled last may still be scored when training has ended: its lines are shown as they come."""
        scored, told = False, False
        while not scored:
            scored = self._call(self.arena.benchmarks_scored.remote(1.0), "the arena", self._patience)
            if not scored and not told:
                self.view.phase("scoring benchmarks")
                told = True
            for event in self._call(self.arena.next_events.remote(0.01), "the arena", self._patience):
                self.view.event(event)

    def _check_progress(self) -> None:
        health = self._call(self.arena.health.remote(), "arena", timeout=60.0)
        late = {who: beat for who, beat in health.items() if beat[2] > self._patience}
        if not late:
            return
        who, (phase, step, seconds) = max(late.items(), key=lambda item: item[1][2])
        raise self._late(who, f"{phase} step {step}", seconds)

    def _call(self, ref: Any, what: str, timeout: float | None = None) -> Any:
        try:
            return self.ray.get(ref, timeout=timeout)
        except Exception as error:
            raise as_error(error, what, self._position(what), self.run) from error

    def _loaded(self) -> dict[str, Any]:
        """What each rank says of itself when its imports are done and its tokenizer is loaded."""
        loaded = self._gather(self.loading, "loading", max(self._patience, _IMPORTS_S))
        self.where = {label: (info["node"], info["pid"]) for label, info in loaded.items()}
        return loaded

    def _gather(self, refs: dict[str, Any], phase: str, patience: float) -> dict[str, Any]:
        """Results by label; the first failure of any rank, or the deadline, ends the wait."""
        by_ref = {ref: label for label, ref in refs.items()}
        pending, results = list(by_ref), {}
        started = time.monotonic()
        while pending:
            done, pending = self.ray.wait(pending, num_returns=1, timeout=1.0)
            for ref in done:
                results[by_ref[ref]] = self._call(ref, by_ref[ref])
            if pending and time.monotonic() - started > patience:
                raise self._late(by_ref[pending[0]], phase, time.monotonic() - started)
        return results

    def _late(self, who: str, doing: str, seconds: float) -> RunFailed:
        """The error for a rank past the deadline; its stacks are in its log then."""
        self._dump_stacks(who)
        return RunFailed(
            f"{who} hangs: {doing} for {seconds:.0f} s, the deadline is {self._patience:.0f} s (faults.deadline_s)",
            hint=stack_hint(self.run, self.pids.get(who)),
        )

    @property
    def _patience(self) -> float:
        """Seconds that any part of a start or of a run may take without progress."""
        return self.recipe.faults.deadline_s

    def _dump_stacks(self, who: str) -> None:
        """Has a rank on another node write its stacks; `stack_hint` does it on this one."""
        node, pid = self.where.get(who, (self.node, 0))
        if node != self.node:
            with contextlib.suppress(Exception):
                self.ray.get(on_node(self.ray, node, os.kill, pid, signal.SIGUSR1), timeout=10.0)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the ranks on this node; on another the number is somebody else's."""
        return {label: pid for label, (node, pid) in self.where.items() if node == self.node}

    def _position(self, what: str) -> tuple[str, int] | None:
        """(phase, step) of a rank, as far as the arena still answers."""
        if not what.endswith("]"):
            return None
        with contextlib.suppress(Exception):
            return self.ray.get(self.arena.position.remote(what), timeout=3.0)
        return None

    def _stop(self) -> None:
        """The first interrupt: finish the step and save."""
        self.interrupted = True
        if self.over:
            return
        self.arena.request_stop.remote()
        self.view.event({"kind": "note", "text": stop_note(self.run.latest_step(), self.saves)})

    def _stop_at_once(self) -> None:
        for pid in self.pids.values():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        os._exit(EXIT_INTERRUPTED)
