"""The arena's part in the benchmarks of `eval:`: it gathers what the ranks sampled and scores it in a thread of its own,
beside the training steps.

What is gathered is kept in the run directory until it is scored, so that a run that is killed meanwhile scores it when
it is resumed.
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codea1_cli.durable import write_atomic
from codea1_cli.engine import evaluation
from codea1_cli.engine.benchmark_sets import open_sets
from codea1_cli.engine.benchmarks import due
from codea1_cli.evals.eval_set import EvalSet
from codea1_cli.runs.best import figure_of

if TYPE_CHECKING:
    from codea1_cli.engine.run_writer import RunWriter
    from codea1_cli.recipe.schema import Recipe
    from codea1_cli.runs.run_dir import RunDir

Share = tuple[dict[str, list[str]], int]


class BenchmarkDesk:
    """A part of the arena. `pending` holds (step, set) from the first rank's post until the line is written."""

    recipe: Recipe
    run: RunDir
    run_writer: RunWriter | None
    labels: list[str]

    if TYPE_CHECKING:
        schedule: Any
        judge: Any

        def tell(self, event: dict[str, Any]) -> None: ...

        async def in_writer(self, function: Any, *arguments: Any) -> Any: ...

    async def open_benchmarks(self, resume_step: int) -> None:
        """Loads what the recipe names, and scores what an interrupted run left.

        Raises:
            UserError, EnvironmentFault: the data of one is not there.
        """
        self.scorer = ThreadPoolExecutor(1, thread_name_prefix="benchmarks")
        self.posted: dict[tuple[int, str], dict[int, Share]] = defaultdict(dict)
        self.pending: set[tuple[int, str]] = set()
        self.scorings: set[asyncio.Task[None]] = set()
        self.sets: dict[str, tuple[EvalSet, Sequence[Any]]] = {}
        if not self.recipe.eval.benchmarks:
            return
        # Half of the judge's: the other half of the cores goes on with the steps.
        workers = max(1, self.judge.workers // 2)
        loop = asyncio.get_running_loop()
        self.sets = await loop.run_in_executor(self.scorer, open_sets, self.recipe, workers)
        written = {(line["step"], line["eval"].get("set")) for line in self.run.metrics() if "eval" in line}
        for name in self.sets if resume_step else ():
            for file in sorted((self.run.path / "evaluation").glob(f"step-*-{name}-texts.json")):
                step = int(file.name.split("-")[1])
                if (step, name) in written:
                    file.unlink()
                else:
                    self._schedule_scoring(step, name)

    async def benchmark_share(self, name: str, rank: int, ranks: int) -> list[Any]:
        """The tasks that one rank samples."""
        return list(self.sets[name][1][rank::ranks])

    async def post_benchmark(self, step: int, name: str, rank: int, texts: dict[str, list[str]], too_long: int) -> None:
        """Takes one rank's texts by task id; the last rank starts the scoring, which nobody waits for."""
        self.pending.add((step, name))
        parts = self.posted[step, name]
        parts[rank] = texts, too_long
        if len(parts) < sum(label.startswith(f"{self.sets[name][0].role}[") for label in self.labels):
            return
        del self.posted[step, name]
        whole = {task: group for share, _ in parts.values() for task, group in share.items()}
        content = {"prompts_too_long": sum(count for _, count in parts.values()), "texts": whole}
        await self.in_writer(_keep, self._texts_file(step, name), content)
        self._schedule_scoring(step, name)

    def pending_steps(self) -> set[int]:
        """Steps whose checkpoint may yet be the best."""
        return {step for step, _ in self.pending}

    def figure_due(self, step: int) -> bool:
        """Whether the figure that marks the best checkpoint is measured after this step."""
        figure, total = self.recipe.eval.best, len(self.schedule)
        if figure is None:
            return False
        return (evaluation.due if figure.startswith("heldout/") else due)(self.recipe, step, total)

    def _texts_file(self, step: int, name: str) -> Path:
        return self.run.path / "evaluation" / f"step-{step:06d}-{name}-texts.json"

    def _schedule_scoring(self, step: int, name: str) -> None:
        self.pending.add((step, name))
        task = asyncio.create_task(self._score_benchmark(step, name))
        self.scorings.add(task)

    async def _score_benchmark(self, step: int, name: str) -> None:
        """A fault here is told and leaves the texts where they are: it is no figure, and no reason to end a run."""
        try:
            loop = asyncio.get_running_loop()
            line, rows = await loop.run_in_executor(self.scorer, self._benchmark_line, step, name)
            assert self.run_writer is not None
            if rows:
                await self.in_writer(_keep, self.run.path / "evaluation" / f"step-{step:06d}-{name}.json", rows)
            others = {at for at, which in self.pending if (at, which) != (step, name)}
            await self.in_writer(self.run_writer.benchmark, line, others)
            self._texts_file(step, name).unlink()
            self.tell({"kind": "eval", "line": line})
            best = self.recipe.eval.best or ""
            if best.startswith(f"{name}/") and figure_of(line, best) is None:
                there = ", ".join(
                    f"{name}/{key}" for key in line["eval"] if figure_of(line, f"{name}/{key}") is not None
                )
                self.tell({"kind": "note", "text": f"eval.best={best} is not among the figures: {there}"})
        except Exception as fault:
            traceback.print_exc()  # into the arena's log
            what = str(fault).strip().splitlines()[0] if str(fault).strip() else "no message"
            text = f"{name} at step {step} could not be scored: {type(fault).__name__}: {what}"
            self.tell({"kind": "note", "text": text})
        finally:
            self.pending.discard((step, name))

    def _benchmark_line(self, step: int, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """In the benchmarks' thread."""
        content = json.loads(self._texts_file(step, name).read_text(encoding="utf-8"))
        started, chosen = time.monotonic(), self.sets[name][0]
        figures, rows = chosen.score(content["texts"])
        told = {
            "set": name,
            "tasks": len(content["texts"]),
            "n": max(map(len, content["texts"].values()), default=0),
            "prompts_too_long": content["prompts_too_long"],
            **figures,
            "scoring_s": round(time.monotonic() - started, 3),
        }
        return {"step": step, "time": round(time.time(), 3), "eval": told}, rows

    async def benchmarks_scored(self, timeout_s: float) -> bool:
        """Whether everything is scored; waits up to `timeout_s` for it."""
        if self.scorings:
            _, left = await asyncio.wait(self.scorings, timeout=timeout_s)
            self.scorings = left
        return not self.scorings

    async def close_benchmarks(self) -> None:
        """Waits for the scoring and ends the benchmarks' sandboxes."""
        while not await self.benchmarks_scored(60.0):
            pass
        loop = asyncio.get_running_loop()
        for chosen, _ in self.sets.values():
            await loop.run_in_executor(self.scorer, chosen.close)


def _keep(file: Path, content: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    write_atomic(file, json.dumps(content) + "\n")
