"""What the arena knows of one step: what the ranks have posted, and who waits for it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from codea1_cli.errors import EnvironmentFault, SandboxOutage, command, counted
from codea1_cli.game.pool import Pool
from codea1_cli.judging.step_judge import Candidate, JudgedProblem, StepCandidate, StepJudge
from codea1_cli.methods.base import CandidateView
from codea1_cli.problems.problem import Problem
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.sandbox.base import in_order

_CANARY_PAUSES_S = (1.0, 5.0)


def new_future() -> asyncio.Future[Any]:
    """A future of the running event loop."""
    return asyncio.get_running_loop().create_future()


class StepState:
    """One step; it implements `methods.base.Step`. Whoever asks for something early waits until it is posted.

    number: counted from 1. in_thread: runs a blocking function of the judge in one of its threads. replayed: a
    problem's Mistake Book tests. pool: its wrong programs of earlier steps. seed: the run's.
    """

    def __init__(
        self,
        number: int,
        judge: StepJudge,
        problems: Mapping[str, Problem],
        in_thread: Callable[..., Awaitable[Any]],
        replayed: Callable[[str], tuple[str, ...]],
        pool: Callable[[str], Pool],
        seed: int,
    ) -> None:
        self._judge, self._problems, self._in_thread, self._replayed = judge, problems, in_thread, replayed
        self._number, self._pool, self._seed = number, pool, seed
        self._candidates: dict[str, asyncio.Future[list[Candidate]]] = {}
        self._judged: dict[tuple[str, int], asyncio.Future[StepCandidate]] = {}
        self.scored: asyncio.Future[dict[str, Any]] = new_future()
        self.scoring: asyncio.Task[None] | None = None
        self.judge_seconds = self.pool_seconds = 0.0
        self.sampled = time.monotonic()  # when the last rank posted what it had sampled
        self.prompts_too_long = self.posted = 0  # posted: candidates whose suites are there, or are not wanted

    @property
    def progress(self) -> dict[str, tuple[int, int]]:
        """How far the step is, by what is counted, as done and in all; nothing once it is scored. Identical candidates
        count once where they share their suites."""
        if self.scored.done():
            return {}
        groups = [slot.result() for slot in self._candidates.values() if slot.done() and not slot.exception()]
        if len(groups) < len(self._candidates) or not self._judged:
            return {"problems sampled": (len(groups), len(self._candidates))}
        every = sum(len(set(self.owners(group))) for group in groups)
        judged = sum(slot.done() for slot in self._judged.values())
        return {"attacked": (self.posted, every), "judged": (judged, every)}

    @property
    def figures(self) -> dict[str, float]:
        """Seconds of judging, summed over its threads; seconds since the last text was sampled, which is the judge's
        tail when the step has just been scored; and prompts that were too long for the Test LLM."""
        return {
            "judge_s": round(self.judge_seconds, 3),
            "pool_s": round(self.pool_seconds, 3),
            "judge_tail_s": round(time.monotonic() - self.sampled, 3),
            "prompts_too_long": self.prompts_too_long,
        }

    async def load_candidates(self, texts: Mapping[str, Sequence[str]]) -> None:
        """Extracts and loads what a rank sampled, by problem id."""
        self.sampled = time.monotonic()

        async def load(pid: str, group: Sequence[str]) -> None:
            slot = future_of(self._candidates, pid)
            try:
                slot.set_result(await self._in_thread(self._judge.load_candidates, self._problems[pid], group))
            except Exception as error:  # a fault of ours must end the run, not leave it waiting
                slot.set_exception(error)

        await asyncio.gather(*(load(pid, group) for pid, group in texts.items()))

    async def candidates(self, problem_id: str) -> list[Candidate]:
        """A problem's candidates; waits until all are extracted and loaded."""
        return await future_of(self._candidates, problem_id)

    async def first_views(self, ids: Sequence[str]) -> dict[str, list[CandidateView]]:
        """`views` of those of the problems whose candidates are loaded; waits until it is one of them at least."""
        slots = {pid: future_of(self._candidates, pid) for pid in ids}
        await asyncio.wait(slots.values(), return_when=asyncio.FIRST_COMPLETED)
        return {pid: await self.views(pid) for pid, slot in slots.items() if slot.done()}

    async def views(self, problem_id: str) -> list[CandidateView]:
        """What the Test LLM sees in the place of each of the problem's candidates."""
        candidates = await self.candidates(problem_id)
        partners = self._sparring(problem_id, candidates)
        return [
            CandidateView(partners.get(index, candidate.code), attack)
            for index, (candidate, attack) in enumerate(zip(candidates, self.attacked(candidates), strict=True))
        ]

    def _sparring(self, problem_id: str, candidates: Sequence[Candidate]) -> dict[int, str]:
        """By candidate, the member of the pool that is shown in its place. The same whenever it is asked."""
        free = [
            index
            for index, (candidate, attack) in enumerate(zip(candidates, self.attacked(candidates), strict=True))
            if attack and candidate.seems_right
        ]
        members = [member.code for member in self._pool(problem_id)]
        count = min(self._judge.rules.sparring, len(free), len(members))
        draw = random.Random(f"{self._seed} {self._number} {problem_id}")
        return dict(zip(draw.sample(free, count), draw.sample(members, count), strict=True))

    def attacked(self, candidates: Sequence[Candidate]) -> list[bool]:
        """As `StepJudge.attacked`."""
        return self._judge.attacked(candidates)

    def owners(self, candidates: Sequence[Candidate]) -> list[int]:
        """As `StepJudge.owners`."""
        return self._judge.owners(candidates)

    async def judge_suites(self, problem_id: str, index: int, texts: Sequence[str]) -> None:
        """Judges the suites against one candidate of a problem."""
        await self.judge_groups([(problem_id, index, texts)])

    async def judge_groups(self, groups: Iterable[tuple[str, int, Sequence[str]]]) -> None:
        """`judge_suites` for many candidates; those of a problem in one job, as far as the judge takes them so."""
        attacks: dict[str, list[tuple[int, Sequence[str]]]] = defaultdict(list)
        for problem_id, index, texts in groups:
            attacks[problem_id].append((index, texts))
            self.posted += 1
            self.sampled = time.monotonic() if texts else self.sampled
        parts = [
            (problem_id, dict(suites[start : start + self._judge.together]))
            for problem_id, suites in attacks.items()
            for start in range(0, len(suites), self._judge.together)
        ]
        await asyncio.gather(*(self._judge_part(*part) for part in parts))

    async def _judge_part(self, problem_id: str, attacks: Mapping[int, Sequence[str]]) -> None:
        slots = [future_of(self._judged, (problem_id, index)) for index in attacks]
        try:
            candidates = await self.candidates(problem_id)
            attacked = [(candidates[index], texts) for index, texts in attacks.items()]
            book, started = self._replayed(problem_id), time.monotonic()
            problem = self._problems[problem_id]
            judged = await self._in_thread(self._judge.ask, judge_attacks, problem, attacked, book)
            self.judge_seconds += time.monotonic() - started
            partners = self._sparring(problem_id, candidates)
            for slot, one, (index, texts) in zip(slots, judged, attacks.items(), strict=True):
                slot.set_result(replace(one, shown=partners.get(index) if texts else None))
        except Exception as error:  # a fault of ours must end the run, not leave it waiting
            for slot in slots:
                if not slot.done():
                    slot.set_exception(error)

    async def judged(self, problem_id: str, index: int) -> StepCandidate:
        """One candidate's judged suites; waits until they are."""
        return await future_of(self._judged, (problem_id, index))

    async def judge_pool(self, problem_id: str, candidates: Sequence[StepCandidate]) -> JudgedProblem:
        """Runs the suites of all of a problem's candidates on the problem's pool, where the rules have one."""
        if not self._judge.rules.has_pool:
            return JudgedProblem(candidates)
        started, pool = time.monotonic(), self._pool(problem_id)
        problem = self._problems[problem_id]
        judged = await self._in_thread(self._judge.judge_pool, problem, candidates, pool, self._number)
        self.pool_seconds += time.monotonic() - started
        return judged


def judge_attacks(
    judge: StepJudge, problem: Problem, attacks: Sequence[tuple[Candidate, Sequence[str]]], book: Sequence[str]
) -> list[StepCandidate]:
    """Each candidate with its suites and the book, side by side; a wrong one waits for `judge_pool`."""
    work = in_order(lambda one: judge.judge_suites(problem, *one, book, later=True), attacks, len(attacks))
    return [judged for _, judged in work]


def check_outage(step: int, problems: Iterable[JudgedProblem], judge: StepJudge, most: float, run: RunDir) -> None:
    """Stops before an update that would learn from next to nothing, and before anything of the step is written.

    Raises:
        SandboxOutage: the sandbox could not judge more than the share `most` of the candidates.
    """
    candidates = [one.game for problem in problems for one in problem.candidates]
    unscored = sum(c.loaded is None or any(suite.unscored for suite in c.suites) for c in candidates)
    if unscored > most * len(candidates):
        lost = f"{unscored} of {counted(len(candidates), 'candidate')} could not be judged"
        fault = judge.outage(f"step {step}: the sandbox failed, so {lost}")
        hint = f"{fault.hint}; then `{command('train', *run.options, '--resume')}` goes on"
        raise SandboxOutage(fault.what, hint=hint)


async def lasting_outage(in_thread: Callable[..., Awaitable[Any]], judge: StepJudge) -> SandboxOutage | None:
    """What is wrong with the sandbox when it goes on failing; a moment of trouble is waited for."""
    outage = None
    for pause_s in (*_CANARY_PAUSES_S, 0.0):
        try:
            await in_thread(judge.canary)
        except EnvironmentFault as fault:
            outage = SandboxOutage(fault.what, fault.hint)
        else:
            return None
        await asyncio.sleep(pause_s)
    return outage


def future_of(slots: dict[Any, asyncio.Future[Any]], key: Any) -> asyncio.Future[Any]:
    """What is kept by a key, made when it is first asked for."""
    if key not in slots:
        slots[key] = new_future()
    return slots[key]
