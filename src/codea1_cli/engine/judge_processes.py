"""The judge of a run: in the arena's own process, or in several, on this machine and on every node of a Ray cluster.

Reading suites, asking and comparing is a quarter to a third of the processor time of judging, and Python does it on one
core per process: alone, the arena's would be the limit from four cores on (`benchmarks/judge/processes.py`).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.environment import cores, settle, settle_umask
from codea1_cli.errors import CodeA1Error, EnvironmentFault
from codea1_cli.game.judged_tests import SolveResult, SuiteResult
from codea1_cli.game.pool import Pool
from codea1_cli.judging.step_judge import Candidate, JudgedProblem, StepCandidate, StepJudge
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.resources import open_step_judge
from codea1_cli.recipe.schema import Recipe

PLACES = 3
"""How many programs at once keep one process busy."""


def run_judge(recipe: Recipe, run_path: Path) -> StepJudge:
    """The judge of a run. Only a sandbox on this machine is worth several processes: a service's requests are
    put together.

    Raises:
        EnvironmentFault: no sandbox starts, or it lacks a required layer.
    """
    shares = processes(recipe)
    if not recipe.sandbox.on_this_machine or len(shares) == 1:
        return open_step_judge(recipe, run_path)
    return SpreadJudge(recipe, run_path, shares)


def processes(recipe: Recipe) -> list[tuple[str, int]]:
    """Ray's id of the node that each process of the judge is on, and how many programs it runs at once.

    `judge.workers` are per node, by default one per core; `PLACES` of them, or a few more, make a process.
    """
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]] if ray.is_initialized() else []
    counts = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in nodes}
    if len(counts) < 2:
        counts = dict.fromkeys(counts or [""], cores())
    shares = []
    for node, cpus in counts.items():
        places = recipe.judge.workers or cpus
        count = max(1, places // PLACES)
        shares += [(node, len(range(number, places, count))) for number in range(count) if cpus]
    return shares


class JudgeProcess:
    """A Ray actor: one process with a judge and a sandbox of its own."""

    def open(self, recipe: Recipe, run_path: Path | None, workers: int) -> None:
        """Starts the sandbox. `run_path`: where answers of references are kept, None for another node,
        which may not lock a file of this one."""
        settle(threads=True)
        settle_umask()
        section = recipe.judge.model_copy(update={"workers": workers})
        self.judge = open_step_judge(recipe.model_copy(update={"judge": section}), run_path)

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(judge, *arguments)`."""
        return function(self.judge, *arguments)

    def usage(self) -> tuple[float, float]:
        """Processor seconds of this process, and of the programs that it ran."""
        spent = os.times()
        programs = getattr(self.judge.sandbox, "cpu_seconds", float)
        return spent.user + spent.system, programs()


class SpreadJudge(StepJudge):
    """A `StepJudge` whose work is done in several processes. Thread-safe; its methods block, and raise what theirs do.

    A problem's jobs go to one process, which asks its reference once, as long as that one has room. A process that is
    lost (with its node, say) is left out, and its jobs, which are pure questions, are asked again elsewhere.

    shares: each process's node and places.

    Raises:
        EnvironmentFault: no process has a sandbox that starts.
    """

    together = 8  # a job costs the arena half a millisecond, however large it is

    def __init__(self, recipe: Recipe, run_path: Path, shares: Sequence[tuple[str, int]]) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        super().__init__(recipe.game, None)
        self._ray = ray
        self._changed = threading.Condition()
        self._actors: dict[int, Any] = {}
        self._room: dict[int, int] = {}  # by process, how many jobs it may have
        self._jobs: Counter[int] = Counter()
        self._running: Counter[tuple[str, int]] = Counter()  # by problem and process
        here, opened = ray.get_runtime_context().get_node_id(), {}
        for number, (node, places) in enumerate(shares):
            place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": places + 2, "scheduling_strategy": place}
            actor: Any = ray.remote(**options)(JudgeProcess).remote()
            self._actors[number], self._room[number] = actor, places
            opened[number] = actor.open.remote(recipe, run_path if node == here else None, places)
        faults = []
        for number, reference in opened.items():
            try:
                self._get(reference)
            except (CodeA1Error, ray.exceptions.RayError) as fault:
                faults.append(fault)
                self._lose(number)
        if not self._actors:
            first = faults[0]
            raise first if isinstance(first, CodeA1Error) else EnvironmentFault(f"no judge starts: {first}")
        self.workers = self.places = sum(shares[number][1] for number in self._actors)

    @property
    def processes(self) -> list[int]:
        """Numbers of the processes that still judge."""
        return list(self._actors)

    # -- which process does what -----------------------------------------------------------------------------------
    def ask(self, function: Callable[..., Any], problem: Problem, *arguments: Any) -> Any:
        """`function(judge, problem, *arguments)` in one of the processes."""
        from ray.exceptions import RayError

        while True:
            number, actor = self._take(problem.id)
            try:
                return self._get(actor.ask.remote(function, problem, *arguments))
            except RayError:
                self._lose(number)
            finally:
                self._give(problem.id, number)

    def _get(self, reference: Any) -> Any:
        """An actor's answer; what a method of it raised is raised here as it was there."""
        from ray.exceptions import RayTaskError

        try:
            return self._ray.get(reference)
        except RayTaskError as fault:
            raise getattr(fault, "cause", None) or fault from None

    def _take(self, problem_id: str) -> tuple[int, Any]:
        """A process that has room: one that has jobs of this problem, else the least busy one. Waits for it."""
        with self._changed:
            while self._actors:
                free = [number for number in self._actors if self._jobs[number] < self._room[number]]
                if free:
                    busy = {number: self._jobs[number] / self._room[number] for number in free}
                    chosen = min(free, key=lambda n: ((problem_id, n) not in self._running, busy[n], n))
                    self._jobs[chosen] += 1
                    self._running[problem_id, chosen] += 1
                    return chosen, self._actors[chosen]
                self._changed.wait()
        raise EnvironmentFault("all processes of the judge are gone", hint="logs of Ray say why: memory, a lost node")

    def _give(self, problem_id: str, number: int) -> None:
        with self._changed:
            self._jobs[number] -= 1
            self._running[problem_id, number] -= 1
            if not self._running[problem_id, number]:
                del self._running[problem_id, number]
            self._changed.notify_all()

    def _lose(self, number: int) -> None:
        with self._changed:
            self._actors.pop(number, None)
            self._changed.notify_all()

    def _of_all(self, method: str, *arguments: Any) -> list[Any]:
        """What each process answers; without those that are lost."""
        from ray.exceptions import RayError

        asked = {number: getattr(actor, method).remote(*arguments) for number, actor in list(self._actors.items())}
        found = []
        for number, reference in asked.items():
            try:
                found.append(self._get(reference))
            except RayError:
                self._lose(number)
        return found

    # -- as StepJudge ----------------------------------------------------------------------------------------------
    def canary(self) -> dict[str, Any]:
        """As `StepJudge.canary`, in every process."""
        found = self._of_all("ask", StepJudge.canary)
        if not found:
            raise self.outage("all processes of the judge are gone")
        return {"missing": list(dict.fromkeys(layer for one in found for layer in one["missing"]))}

    def usage(self) -> tuple[float, float]:
        """Processor seconds of all processes, and of the programs that they ran."""
        each = self._of_all("usage")
        return sum(own for own, _ in each), sum(programs for _, programs in each)

    def reference_fault(self, problem: Problem) -> str | None:
        """As `StepJudge.reference_fault`."""
        fault: str | None = self.ask(StepJudge.reference_fault, problem)
        return fault

    def load_candidates(self, problem: Problem, texts: Sequence[str]) -> list[Candidate]:
        """As `StepJudge.load_candidates`."""
        candidates: list[Candidate] = self.ask(StepJudge.load_candidates, problem, texts)
        return candidates

    def judge_pool(self, problem: Problem, candidates: Sequence[StepCandidate], pool: Pool, step: int) -> JudgedProblem:
        """As `StepJudge.judge_pool`."""
        judged: JudgedProblem = self.ask(StepJudge.judge_pool, problem, candidates, pool, step)
        return judged

    def solve_rate(self, problem: Problem, texts: Sequence[str]) -> SolveResult:
        """As `StepJudge.solve_rate`."""
        found: SolveResult = self.ask(StepJudge.solve_rate, problem, texts)
        return found

    def suite_on_wrong(self, problem: Problem, wrong: str, text: str) -> SuiteResult:
        """As `StepJudge.suite_on_wrong`."""
        found: SuiteResult = self.ask(StepJudge.suite_on_wrong, problem, wrong, text)
        return found

    def close(self) -> None:
        """Ends every process; the guard of a run ends what their sandboxes had begun."""
        self._of_all("ask", StepJudge.close)
        for actor in self._actors.values():
            self._ray.kill(actor)
        with self._changed:
            self._actors = {}
            self._changed.notify_all()
