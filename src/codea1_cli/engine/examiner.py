"""The arena's part in held-out evaluation: it judges what the ranks sampled, beside the training steps."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from codea1_cli.problems.problem import Problem

if TYPE_CHECKING:
    from codea1_cli.engine.arena import Arena
    from codea1_cli.engine.run_writer import RunWriter

Items = list[tuple[Any, list[str]]]


class Examiner:
    """Made inside the arena's event loop. `targets` resolves to the (problem id, wrong candidate) pairs that suites are
    written against; `fault` is what ended an evaluation that nobody waits for."""

    def __init__(self, arena: Arena, run_writer: RunWriter, heldout: Sequence[Problem]) -> None:
        self.arena, self.run_writer = arena, run_writer
        self.problems = {problem.id: problem for problem in heldout}
        self.targets: asyncio.Future[list[tuple[str, str]]] = asyncio.get_running_loop().create_future()
        known = run_writer.evaluation_targets(heldout)
        if known is not None:  # none may have been chosen: the first policy solved everything
            self.targets.set_result(known)
        self.posted: dict[tuple[int, str], dict[int, Items]] = defaultdict(dict)
        self.tasks: dict[asyncio.Task[None], int] = {}
        self.fault: Exception | None = None

    def post(self, step: int, role: str, rank: int, items: Items) -> None:
        """Takes one rank's share; the last rank of a role starts the judging."""
        parts = self.posted[step, role]
        parts[rank] = items
        if len(parts) == sum(label.startswith(f"{role}[") for label in self.arena.labels):
            del self.posted[step, role]
            whole = [item for rank in sorted(parts) for item in parts[rank]]
            self.tasks[asyncio.create_task(self._evaluate(step, role, whole))] = step

    async def _evaluate(self, step: int, role: str, items: Items) -> None:
        try:
            line = await self._judge(step, role, items)
        except Exception as error:  # nobody waits for this task: the driver is told, and who waits for the targets
            self.fault = error
            if not self.targets.done():
                self.targets.set_exception(error)
            raise
        if line is not None:
            self.arena.tell({"kind": "eval", "line": line})

    async def _judge(self, step: int, role: str, items: Items) -> dict[str, Any] | None:
        arena, judge = self.arena, self.arena.judge
        if role == "code":
            jobs = [arena.in_thread(judge.solve_rate, self.problems[pid], texts) for pid, texts in items]
        else:
            jobs = [
                arena.in_thread(judge.suite_on_wrong, self.problems[pid], source, texts[0])
                for (pid, source), texts in items
            ]
        rows = await asyncio.gather(*jobs)
        if role == "code" and not self.targets.done():
            self.targets.set_result(self.run_writer.choose_targets(rows))
        return await arena.in_writer(self.run_writer.evaluation, step, role, rows)

    async def drain(self, step: int | None = None) -> None:
        """Waits for the evaluations up to `step`, or for all."""
        due = [task for task, at in self.tasks.items() if step is None or at <= step]
        await asyncio.gather(*due)
        for task in due:
            self.tasks.pop(task, None)
