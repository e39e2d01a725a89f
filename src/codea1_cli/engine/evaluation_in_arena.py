"""The arena's part in evaluation: it gathers what the ranks sampled of a set, scores it beside the steps, and writes
the figures' line.

The held-out set is part of a run: a fault there ends it, and a commit waits for the figures of its step. A benchmark is
not: what cannot be scored is told, and its texts stay on disk until they are, also by the run that is resumed.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import time
import traceback
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codea1_cli.durable import write_atomic
from codea1_cli.engine.step_state import new_future
from codea1_cli.errors import UserError, counted, first_line
from codea1_cli.evals.benchmark import EvalSet, Texts
from codea1_cli.evals.heldout import NEAR_MISSES, TARGETS, HeldoutAttacking, HeldoutSolving
from codea1_cli.evals.wrong_programs import wrong_programs
from codea1_cli.files import read_json
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.resources import benchmark_sets, heldout_sets, target_files
from codea1_cli.runs.checkpoints import figure_of

if TYPE_CHECKING:
    from codea1_cli.engine.arena import Arena

Share = tuple[Texts, int]  # one rank's, and how many of its prompts were too long


class Evaluator(ABC):
    """Sets by name, and what is posted of them. Made inside the arena's event loop; scores in a thread of its own."""

    def __init__(self, arena: Arena) -> None:
        self.arena, self.folder = arena, arena.run.path / "evaluation"
        self.sets: Mapping[str, EvalSet] = {}
        self.posted: dict[tuple[int, str], dict[int, Share]] = defaultdict(dict)
        self._scorer = ThreadPoolExecutor(1, thread_name_prefix="evaluation")

    async def in_scorer(self, function: Any, *arguments: Any) -> Any:
        """Runs something that blocks in the evaluator's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._scorer, function, *arguments)

    async def post(self, step: int, name: str, rank: int, texts: Texts, too_long: int) -> None:
        """Takes one rank's share; the last rank of the set's role starts the scoring, which nobody waits for."""
        parts = self.posted[step, name]
        parts[rank] = texts, too_long
        policy = self.arena.method.policy(self.sets[name].role)
        if len(parts) < sum(label.startswith(f"{policy}[") for label in self.arena.labels):
            return
        del self.posted[step, name]
        whole = {item: group for rank in sorted(parts) for item, group in parts[rank][0].items()}
        await self.gathered(step, name, whole, sum(count for _, count in parts.values()))

    @abstractmethod
    async def items(self, name: str) -> Sequence[Any]:
        """The items of a set, which go to the ranks."""

    @abstractmethod
    async def gathered(self, step: int, name: str, texts: Texts, too_long: int) -> None:
        """Starts the scoring of what all ranks sampled."""


class HeldoutEvaluator(Evaluator):
    """The held-out problems. `fault` is what ended an evaluation that nobody waits for."""

    sets: Mapping[str, HeldoutSolving | HeldoutAttacking]

    def __init__(self, arena: Arena, problems: Sequence[Problem]) -> None:
        super().__init__(arena)
        every = heldout_sets(arena.recipe, problems, arena.judge, arena.beats.judged)
        self.solving, self.near_misses, self.attacking = every
        self.sets = {chosen.name: chosen for chosen in every if chosen.role in arena.method.roles}
        self.aimed: asyncio.Future[None] = new_future()  # done when the targets of `attacking` are known
        self.tasks: dict[asyncio.Task[None], int] = {}
        self.figures: dict[int, dict[str, Any]] = {}
        self.fault: Exception | None = None
        known = self._known_targets(problems)
        if known is not None or self.solving.name not in self.sets:
            self.attacking.targets = known or []  # none may have been chosen: the first policy solved everything
            self.aimed.set_result(None)

    def _known_targets(self, problems: Sequence[Problem]) -> list[tuple[str, str]] | None:
        """The wrong programs of the run that `eval.targets` names; else those that this run chose before its first
        step; else those that come with the problems."""
        for source in target_files(self.arena.recipe):
            self.folder.mkdir(exist_ok=True)
            if not (self.folder / source.name).exists():
                shutil.copyfile(source, self.folder / source.name)
        limit, file = self.arena.recipe.eval.wrong_per_problem, self.folder / TARGETS
        if not file.is_file():
            given = [(problem.id, source) for problem in problems for source in wrong_programs(problem)[:limit]]
            return given if given or not problems else None
        rows = read_json(file, list)
        if not all(isinstance(row, list) and [*map(type, row)] == [str, str] for row in rows):
            raise UserError(f"{file} holds other rows than problems' ids with a program each", hint="restore it")
        asked = {problem.id for problem in problems}  # a run that goes on may have another eval.limit
        return [(pid, source) for pid, source in rows if pid in asked]

    async def items(self, name: str) -> Sequence[Any]:
        """Where they are wrong programs: when they are known, the same for the whole run."""
        if name == self.attacking.name:
            await asyncio.shield(self.aimed)
        if name == self.near_misses.name and not self.near_misses.targets:
            self.folder.mkdir(exist_ok=True)
            limit = self.arena.recipe.eval.wrong_per_problem
            await self.in_scorer(self.near_misses.choose, self.folder / NEAR_MISSES, limit)
        return self.sets[name].load()

    async def gathered(self, step: int, name: str, texts: Texts, too_long: int) -> None:
        """Scores in a task that `drain` waits for."""
        self.tasks[asyncio.create_task(self._evaluate(step, self.sets[name], texts, too_long))] = step

    async def _evaluate(
        self, step: int, chosen: HeldoutSolving | HeldoutAttacking, texts: Texts, too_long: int
    ) -> None:
        try:
            figures, rows = await self.in_scorer(chosen.score, texts)
            if too_long:
                figures = figures | {"prompts_too_long": too_long}
                self._tell_too_long(chosen.role, too_long)
            if chosen is self.solving and not self.aimed.done():
                self._choose_targets(rows)
            line = await self.arena.in_writer(self._write, step, chosen.part, figures, rows, chosen.replies(texts))
        except Exception as error:  # nobody waits for this task: the driver is told, and who waits for the targets
            self.fault = error
            if not self.aimed.done():
                self.aimed.set_exception(error)
            raise
        if line is not None:
            self.arena.tell({"kind": "eval", "line": line})

    def _tell_too_long(self, role: str, prompts: int) -> None:
        text = f"{counted(prompts, f'held-out {role} prompt')} left no room for a reply, which counts as an empty one"
        self.arena.tell({"kind": "note", "text": f"{text} ({role}.max_prompt_tokens)"})

    def _choose_targets(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The first policy's own wrong solutions, kept for the whole run."""
        limit = self.arena.recipe.eval.wrong_per_problem
        self.attacking.targets = [(row["problem_id"], source) for row in rows for source in row["wrong"][:limit]]
        _keep(self.folder / TARGETS, self.attacking.targets)
        self.aimed.set_result(None)

    def _write(
        self, step: int, part: str, figures: dict[str, Any], rows: Sequence[Mapping[str, Any]], replies: Any
    ) -> Any:
        """In the writer's thread: a set's rows and texts; the last set completes the step's line, which it returns."""
        plain = [{key: value for key, value in row.items() if key != "wrong"} for row in rows]
        file = self.folder / f"step-{step:06d}-{part.replace('_', '-')}.json"
        _keep(file, plain)
        packed = gzip.compress(json.dumps(replies).encode(), mtime=0)
        write_atomic(file.with_name(f"{file.stem}-replies.json.gz"), packed)
        parts = self.figures.setdefault(step, {})
        parts[part] = figures
        if len(parts) < len(self.sets):
            return None
        del self.figures[step]
        line = _line(step, {"set": "heldout", **dict(sorted(parts.items()))})
        self.arena.run.append_metrics(line)
        return line

    async def drain(self, step: int | None = None) -> None:
        """Waits for the evaluations up to `step`, or for all. Raises what one of them failed with."""
        due = [task for task, at in self.tasks.items() if step is None or at <= step]
        await asyncio.gather(*due)
        for task in due:
            self.tasks.pop(task, None)


class BenchmarkEvaluator(Evaluator):
    """The benchmarks of `eval:`. `pending` holds (step, set) from the first rank's post until the line is written."""

    def __init__(self, arena: Arena) -> None:
        super().__init__(arena)
        self.loaded: dict[str, Sequence[Any]] = {}
        self.pending: set[tuple[int, str]] = set()
        self.scorings: set[asyncio.Task[None]] = set()

    async def open(self, resume_step: int) -> None:
        """Loads what the recipe names, and scores what an interrupted run left.

        Raises:
            UserError, EnvironmentFault: the data of one is not there.
        """
        if not self.arena.recipe.eval.benchmarks:
            return
        # Half of the judge's: the other half of the cores goes on with the steps.
        judge = self.arena.judge
        workers = max(1, getattr(judge, "places", judge.workers) // 2)
        opened = await self.in_scorer(benchmark_sets, self.arena.recipe, workers)
        self.sets = {chosen.name: chosen for chosen in opened}
        for name, chosen in self.sets.items():
            self.loaded[name] = await self.in_scorer(chosen.load)
        written = {(line["step"], line["eval"].get("set")) for line in self.arena.run.metrics() if "eval" in line}
        for name in self.sets if resume_step else ():
            for file in sorted(self.folder.glob(f"step-*-{name}-texts.json")):
                step = int(file.name.split("-")[1])
                if (step, name) in written:
                    file.unlink()
                else:
                    self._schedule_scoring(step, name)

    async def items(self, name: str) -> Sequence[Any]:
        """The loaded tasks."""
        return self.loaded[name]

    async def post(self, step: int, name: str, rank: int, texts: Texts, too_long: int) -> None:
        """As `Evaluator.post`; from here on the step's checkpoint may yet be the best."""
        self.pending.add((step, name))
        await super().post(step, name, rank, texts, too_long)

    async def gathered(self, step: int, name: str, texts: Texts, too_long: int) -> None:
        """Keeps the texts until they are scored."""
        await self.arena.in_writer(_keep, self._texts_file(step, name), {"prompts_too_long": too_long, "texts": texts})
        self._schedule_scoring(step, name)

    def pending_steps(self) -> set[int]:
        """Steps whose checkpoint may yet be the best."""
        return {step for step, _ in self.pending}

    def _texts_file(self, step: int, name: str) -> Path:
        return self.folder / f"step-{step:06d}-{name}-texts.json"

    def _schedule_scoring(self, step: int, name: str) -> None:
        self.pending.add((step, name))
        self.scorings.add(asyncio.create_task(self._score(step, name)))

    async def _score(self, step: int, name: str) -> None:
        """A fault here is told and leaves the texts where they are: it is not a figure, and no reason to end a run."""
        arena = self.arena
        try:
            line, rows = await self.in_scorer(self._scored_line, step, name)
            assert arena.run_writer is not None
            if rows:
                await arena.in_writer(_keep, self.folder / f"step-{step:06d}-{name}.json", rows)
            others = {at for at, which in self.pending if (at, which) != (step, name)}
            await arena.in_writer(arena.run_writer.benchmark, line, others)
            self._texts_file(step, name).unlink()
            arena.tell({"kind": "eval", "line": line})
            best = arena.recipe.eval.best or ""
            if best.startswith(f"{name}/") and figure_of(line, best) is None:
                keys = (f"{name}/{key}" for key in line["eval"])
                there = ", ".join(key for key in keys if figure_of(line, key) is not None)
                arena.tell({"kind": "note", "text": f"eval.best={best} is not among the figures: {there}"})
        except Exception as fault:
            traceback.print_exc()  # into the arena's log
            text = f"{name} at step {step} could not be scored: {type(fault).__name__}: {first_line(fault)}"
            arena.tell({"kind": "note", "text": text})
        finally:
            self.pending.discard((step, name))

    def _scored_line(self, step: int, name: str) -> tuple[dict[str, Any], Any]:
        """In the evaluator's thread."""
        content = json.loads(self._texts_file(step, name).read_text(encoding="utf-8"))
        started = time.monotonic()
        figures, rows = self.sets[name].score(content["texts"])
        told = {
            "set": name,
            "tasks": len(content["texts"]),
            "n": max(map(len, content["texts"].values()), default=0),
            "prompts_too_long": content["prompts_too_long"],
            **figures,
            "scoring_s": round(time.monotonic() - started, 3),
        }
        return _line(step, told), rows

    async def scored(self, timeout_s: float) -> bool:
        """Whether everything is scored; waits up to `timeout_s` for it."""
        if self.scorings:
            _, left = await asyncio.wait(self.scorings, timeout=timeout_s)
            self.scorings = left
        return not self.scorings

    async def close(self) -> None:
        """Waits for the scoring and ends the benchmarks' sandboxes."""
        while not await self.scored(60.0):
            pass
        for chosen in self.sets.values():
            await self.in_scorer(chosen.close)


def _line(step: int, told: dict[str, Any]) -> dict[str, Any]:
    """An evaluation's line of metrics.jsonl."""
    return {"step": step, "time": round(time.time(), 3), "eval": told}


def _keep(file: Path, content: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    write_atomic(file, json.dumps(content) + "\n")
