"""The arena: one async actor in which both policies meet each step.

It hands the candidates to the test side, judges suites while the next ones are sampled, keeps the Mistake Book, decides
when to save and stop, and writes metrics, rollouts, book and checkpoints of the run. Whoever waits here waits on a
future; nothing polls.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import gather
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from codea1_cli.engine.client import Decision, Heartbeats, RankReport
from codea1_cli.engine.evaluation_in_arena import BenchmarkEvaluator, Evaluator, HeldoutEvaluator
from codea1_cli.engine.judge_processes import run_judge
from codea1_cli.engine.preflight import PreflightCounts, PreflightGate, Samples
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.engine.run_writer import RunWriter
from codea1_cli.engine.step_state import StepState, check_outage, future_of, lasting_outage
from codea1_cli.environment import settle, settle_umask
from codea1_cli.errors import CodeA1Error, SandboxOutage
from codea1_cli.game.judged_tests import SolveResult
from codea1_cli.methods.base import CandidateView, SuiteResults
from codea1_cli.methods.registry import method_of
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.resources import figure_due
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir


class Arena:
    """The actor where both policies meet: it judges, rewards, evaluates, and writes the run's files."""

    def __init__(self, recipe: Recipe, run_path: str, labels: Sequence[str]) -> None:
        settle(threads=True)
        settle_umask()
        self.recipe, self.labels, self.method = recipe, list(labels), method_of(recipe)
        self.run = RunDir(run_path)
        self.unopened: CodeA1Error | None = None  # told by `layers`: what an actor's start raises, Ray does not pass on
        try:
            self.judge = run_judge(recipe, self.run.path)
        except CodeA1Error as fault:
            self.unopened = fault
        callers = 1 if self.unopened else self.judge.workers
        # More than callers: some wait for what another has asked a reference.
        self.threads = ThreadPoolExecutor(2 * callers + 16, thread_name_prefix="judge")
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="run-writer")
        self.run_writer: RunWriter | None = None
        self.heldout: HeldoutEvaluator | None = None
        self.benchmarks: BenchmarkEvaluator | None = None
        self.gate: PreflightGate | None = None
        self.schedule = Schedule((), 0)
        self.problems: dict[str, Problem] = {}
        self.steps: dict[int, StepState] = {}
        self.decisions: dict[int, Decision] = {}
        self.stop_requested = self.sampling = False  # `sampling`: whether any rank has begun its first step
        self.outage: SandboxOutage | None = None
        self.first_step = self.last_step = 0
        self.lines: dict[int, asyncio.Future[None]] = {}  # of each step, when all policies have reported of it
        self.written: dict[int, set[str]] = defaultdict(set)
        self.beats = Heartbeats(self.run.phases_file)
        self.events: list[dict[str, Any]] = []
        self.news = asyncio.Event()

    async def in_thread(self, function: Any, *arguments: Any) -> Any:
        """Judges in one of the threads."""
        return await self._run_in(self.threads, function, *arguments)

    async def in_writer(self, function: Any, *arguments: Any) -> Any:
        """Writes in the one thread for that, which no queue of programs to judge holds up."""
        return await self._run_in(self.writer, function, *arguments)

    async def _run_in(self, pool: ThreadPoolExecutor, function: Any, *arguments: Any) -> Any:
        result = await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
        self.beats.judged()
        return result

    # -- before the first step -------------------------------------------------------------------------------------
    async def layers(self) -> dict[str, Any]:
        """The sandbox's canary and which of its layers are missing.

        Raises:
            EnvironmentFault, UserError: there is no sandbox, or it cannot judge.
        """
        if self.unopened is not None:
            raise self.unopened
        return await self.in_thread(self.judge.canary)

    async def check_references(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Why a problem cannot be used, by id: its reference does not load or does not agree with itself, for one."""
        fault = self.method.problem_fault
        reasons = await gather(*(self.in_thread(self.judge.ask, fault, problem) for problem in problems))
        return {problem.id: reason for problem, reason in zip(problems, reasons, strict=True) if reason}

    async def solve(self, problems: Sequence[Problem], texts: list[list[str]]) -> list[SolveResult]:
        """How many of each problem's solutions pass its own tests."""
        return await gather(*(self.in_thread(self.judge.solve_rate, *one) for one in zip(problems, texts, strict=True)))

    async def start(
        self, schedule: Schedule, problems: dict[str, Problem], heldout: list[Problem], resume_step: int, last_step: int
    ) -> None:
        """After `layers` and before anything of a step. `last_step` is where this call of the command stops: the
        schedule's end, or earlier with --max-steps."""
        self.schedule, self.problems, self.first_step, self.last_step = schedule, problems, resume_step + 1, last_step
        self.run_writer = await self.in_writer(RunWriter, self.recipe, self.run)
        self.gate = PreflightGate(self.recipe, self.run, self.labels, problems)
        self.heldout = HeldoutEvaluator(self, heldout)
        self.benchmarks = BenchmarkEvaluator(self)
        await self.benchmarks.open(resume_step)

    async def preflight_programs(self) -> dict[str, str]:
        """A program per problem that gave one, when all that write programs have posted their pre-flight samples."""
        assert self.gate is not None
        return await self.gate.programs()

    async def post_preflight(self, label: str, role: str, counts: PreflightCounts, samples: Samples) -> None:
        """Takes one rank's pre-flight samples of a role."""
        assert self.gate is not None
        self.gate.post(label, role, counts, samples)

    async def finish_preflight(self) -> None:
        """Returns when the run may begin. Raises UserError when it may not."""
        assert self.gate is not None
        await self.gate.verdict()

    # -- a step ----------------------------------------------------------------------------------------------------
    def step(self, number: int) -> StepState:
        """The state of a step; made, and its scoring begun, when the first rank posts or asks for something."""
        if number not in self.steps:
            assert self.run_writer is not None
            given = self.judge, self.problems, self.in_thread, self.run_writer.replayed, self.run_writer.pool
            self.steps[number] = StepState(number, *given, self.recipe.seed)
            self.steps[number].scoring = asyncio.create_task(self._score(number))
        return self.steps[number]

    async def substitutes(self, step: int) -> dict[str, str]:
        """By the id of a problem that has left the schedule, which one is played in its place."""
        return self.schedule.substitutes(step, self._gone(step))

    def _gone(self, step: int) -> set[str]:
        """The problems that had left the schedule when a step's candidates were sampled."""
        assert self.run_writer is not None
        known = step - self.recipe.train.staleness
        return {pid for pid, at in self.run_writer.left.items() if at < known}

    async def post_candidates(self, step: int, texts: dict[str, list[str]]) -> None:
        """Takes candidates as they are sampled; loading starts at once."""
        await self.step(step).load_candidates(texts)

    async def finish_candidates(self, step: int, ids: Sequence[str]) -> dict[str, list[float | None]]:
        """Called when a rank has posted all its candidates; returns their rewards when the whole step is scored."""
        outcomes = await self.step(step).scored
        return {pid: list(outcomes[pid].code_rewards) for pid in ids}

    async def next_candidates(self, step: int, ids: Sequence[str]) -> dict[str, list[CandidateView]]:
        """Of these problems, the candidates that are loaded as the Test LLM sees them; waits for those of one."""
        return await self.step(step).first_views(ids)

    async def post_suites(self, step: int, groups: Sequence[tuple[str, int, list[str]]]) -> None:
        """Takes suites as they are sampled; judging starts at once."""
        await self.step(step).judge_groups(groups)

    async def skip_suites(self, step: int, keys: Sequence[tuple[str, int]]) -> None:
        """Candidates whose prompt is too long for the Test LLM: nobody attacks them."""
        self.step(step).prompts_too_long += len(keys)
        await self.post_suites(step, [(pid, index, []) for pid, index in keys])

    async def finish_suites(self, step: int, ids: Sequence[str]) -> dict[str, SuiteResults]:
        """Called when a rank has posted all its suites; returns when the whole step is scored."""
        outcomes = await self.step(step).scored
        return {pid: SuiteResults(outcomes[pid].suite_rewards, outcomes[pid].selected) for pid in ids}

    async def _score(self, number: int) -> None:
        assert self.run_writer is not None
        step = self.steps[number]
        try:
            if (before := self.steps.get(number - 1)) is not None:
                await before.scored  # whose book and pool this one is judged by
            ids = self.schedule.played(number, self._gone(number))
            problems = await gather(*(self.method.judge(step, pid) for pid in ids))
            judged = dict(zip(ids, problems, strict=True))
            check_outage(number, judged.values(), self.judge, self.recipe.judge.max_unscored, self.run)
            outcomes, stats = await self.in_writer(self.run_writer.score_step, number, judged)
            self.run_writer.arena_stats(number, stats | step.figures | {"sandbox_failures": self.judge.failures()})
            self.steps.pop(number - 2, None)
            step.scored.set_result(outcomes)
        except Exception as error:
            step.scored.set_exception(error)

    # -- the end of a step -----------------------------------------------------------------------------------------
    async def step_ended(self, label: str, step: int) -> Decision:
        """Save? Stop? The first rank to ask settles it for all ranks of both sides."""
        if step not in self.decisions and step < self.last_step and self.outage is None and not self.method.pairs:
            # Better now, with this step saved, than in the middle of the next one.
            self.outage = await lasting_outage(self.in_thread, self.judge)
        if step not in self.decisions:
            last = self.stop_requested or step >= self.last_step or self.outage is not None
            ends = (len(self.schedule), self.last_step)
            every = self.recipe.checkpoint.every
            due = every is not None and (last or step % every == 0 or figure_due(self.recipe, step, *ends))
            self.decisions[step] = Decision(save=due, stop=last)
        return self.decisions[step]

    async def report(self, report: RankReport) -> None:
        """Takes a rank's part of a step's line; the last one writes the line and tells the driver."""
        assert self.run_writer is not None
        if line := await self.in_writer(self.run_writer.report, report):
            self.tell({"kind": "step", "line": line})
            future_of(self.lines, report.step).set_result(None)

    async def keep_step(self, step: int) -> None:
        """Returns when every policy has reported of a step."""
        if step >= self.first_step:
            await future_of(self.lines, step)

    async def checkpoint_written(self, label: str, step: int, optimizer_step: int) -> None:
        """The last rank to report commits the checkpoint: no rank goes on believing in one that is not whole."""
        assert self.run_writer is not None
        self.written[step].add(label)
        if self.written[step] < set(self.labels):
            return
        assert self.heldout is not None
        assert self.benchmarks is not None
        await self.heldout.drain(step)
        pruned = await self.in_writer(self.run_writer.commit, step, optimizer_step, self.benchmarks.pending_steps())
        self.tell({"kind": "checkpoint", "step": step, "pruned": pruned})

    async def request_stop(self) -> None:
        """The run is to save and end after the step that it is in."""
        self.stop_requested = True

    # -- evaluation ------------------------------------------------------------------------------------------------
    def _evaluator(self, name: str) -> Evaluator:
        assert self.heldout is not None
        assert self.benchmarks is not None
        return self.heldout if name in self.heldout.sets else self.benchmarks

    async def evaluation_share(self, name: str, rank: int, ranks: int) -> list[Any]:
        """The items of a set that one rank samples; waits where they are not known yet."""
        return list((await self._evaluator(name).items(name))[rank::ranks])

    async def post_evaluation(
        self, step: int, name: str, rank: int, texts: dict[str, list[str]], too_long: int
    ) -> None:
        """Takes one rank's texts of a set, by the items' ids; they are scored when all its ranks have posted."""
        await self._evaluator(name).post(step, name, rank, texts, too_long)

    async def benchmarks_scored(self, timeout_s: float) -> bool:
        """Whether all benchmarks are scored; waits up to `timeout_s` for it."""
        return self.benchmarks is None or await self.benchmarks.scored(timeout_s)

    # -- the driver's view -----------------------------------------------------------------------------------------
    def tell(self, event: dict[str, Any]) -> None:
        """Queues an event for the driver."""
        self.events.append(event)
        self.news.set()

    async def next_events(self, timeout_s: float = 1.0) -> list[dict[str, Any]]:
        """What happened since the last call, for which it waits up to `timeout_s`, and what the ranks do now."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.news.wait(), timeout_s)
        events, self.events = self.events, []
        self.news.clear()
        counts = self.steps[max(self.steps)].progress if self.steps else {}
        return [*events, {"kind": "doing", "ranks": self.beats.phases, "counts": counts}]

    async def heartbeat(self, label: str, phase: str, step: int) -> None:
        """A rank is in a phase of a step; the first that samples starts the clock of the steps."""
        if phase == "sampling" and not self.sampling:
            self.sampling = True
            if self.run_writer is not None:
                self.run_writer.training_begins()
        self.beats.beat(label, phase, step)

    async def position(self, label: str) -> tuple[str, int] | None:
        """(phase, step) that a rank reported last."""
        return self.beats.position(label)

    async def health(self) -> dict[str, tuple[str, int, float]]:
        """(phase, step, seconds since it began) of every rank that works, and of the judge when all ranks wait. Raises
        what ended a task that nobody waits for."""
        if self.heldout is not None and self.heldout.fault is not None:
            raise self.heldout.fault
        return self.beats.at_work()

    async def close(self) -> dict[str, Any]:
        """Waits for evaluations still being judged and ends the sandbox. Returns the closing figures."""
        if self.heldout is not None and self.benchmarks is not None:
            await self.heldout.drain()
            await self.benchmarks.close()
        if self.outage is not None:
            raise self.outage
        summary = self.run_writer.close() if self.run_writer is not None else {}
        await self.in_thread(self.judge.close)
        return summary
