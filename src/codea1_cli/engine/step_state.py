"""What the arena knows of one step: what the ranks have posted, and who waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from codea1_cli.judging.step_judge import Candidate, Judged, StepJudge
from codea1_cli.methods.exchange import CandidateView
from codea1_cli.problems.problem import Problem


def new_future() -> asyncio.Future[Any]:
    """A future of the running event loop."""
    return asyncio.get_running_loop().create_future()


class Step:
    """One step; it implements `methods.base.Step`. Whoever asks for something early waits until it is posted.

    in_thread: runs a blocking function of the judge in one of its threads. replayed: a problem's Mistake Book tests.
    """

    def __init__(
        self,
        judge: StepJudge,
        problems: Mapping[str, Problem],
        in_thread: Callable[..., Awaitable[Any]],
        replayed: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._judge, self._problems, self._in_thread, self._replayed = judge, problems, in_thread, replayed
        self._candidates: dict[str, asyncio.Future[list[Candidate]]] = {}
        self._judged: dict[tuple[str, int], asyncio.Future[Judged]] = {}
        self.scored: asyncio.Future[dict[str, Any]] = new_future()
        self.scoring: asyncio.Task[None] | None = None
        self.judge_seconds = 0.0
        self.prompts_too_long = 0

    async def load_candidates(self, texts: Mapping[str, Sequence[str]]) -> None:
        """Extracts and loads what a rank sampled, by problem id."""

        async def load(pid: str, group: Sequence[str]) -> None:
            candidates = await self._in_thread(self._judge.load_candidates, self._problems[pid], group)
            _slot(self._candidates, pid).set_result(candidates)

        await asyncio.gather(*(load(pid, group) for pid, group in texts.items()))

    async def candidates(self, problem_id: str) -> list[Candidate]:
        return await _slot(self._candidates, problem_id)

    async def views(self, problem_id: str) -> list[CandidateView]:
        """The problem's candidates as the Test LLM sees them."""
        candidates = await self.candidates(problem_id)
        return [
            CandidateView(candidate.code, attack)
            for candidate, attack in zip(candidates, self.attacked(candidates), strict=True)
        ]

    def attacked(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self._judge.attacked(candidates)

    def owners(self, candidates: Sequence[Candidate]) -> list[int]:
        return self._judge.owners(candidates)

    async def judge_suites(self, problem_id: str, index: int, texts: Sequence[str]) -> None:
        slot = _slot(self._judged, (problem_id, index))
        try:
            candidate = (await self.candidates(problem_id))[index]
            book, started = self._replayed(problem_id), time.monotonic()
            judged = await self._in_thread(self._judge.judge_suites, self._problems[problem_id], candidate, texts, book)
            self.judge_seconds += time.monotonic() - started
            slot.set_result(judged)
        except Exception as error:  # a fault of ours must end the run, not leave it waiting
            if not slot.done():
                slot.set_exception(error)

    async def judged(self, problem_id: str, index: int) -> Judged:
        return await _slot(self._judged, (problem_id, index))


def _slot(slots: dict[Any, asyncio.Future[Any]], key: Any) -> asyncio.Future[Any]:
    if key not in slots:
        slots[key] = new_future()
    return slots[key]
