"""What a run writes: the Mistake Book, rollouts, metrics and checkpoints. One writer, the arena, uses it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.engine.client import RankReport
from codea1_cli.engine.resume import book_state, pool_state
from codea1_cli.errors import EnvironmentFault
from codea1_cli.files import kept_json
from codea1_cli.game.judged_tests import LATE_SHARE, LATE_STEPS, late_calls
from codea1_cli.game.mistake_book import Book
from codea1_cli.game.pool import Pool, PoolEvent, events_between
from codea1_cli.game.scoring import ProblemOutcome, has_signal
from codea1_cli.judging.step_judge import JudgedProblem
from codea1_cli.methods.registry import method_of
from codea1_cli.mistakes import MistakeStore
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.checkpoints import mark_best
from codea1_cli.runs.rollout_files import rollout_rows, write_rollouts
from codea1_cli.runs.run_dir import RunDir


class RunWriter:
    """The one writer of a run directory, inside the arena's process. Methods block; `lock` guards what ranks report."""

    def __init__(self, recipe: Recipe, run: RunDir) -> None:
        self.recipe, self.run, self.rules, self.method = recipe, run, recipe.game, method_of(recipe)
        self.store = MistakeStore(run.mistakes_file)
        self.books = {pid: Book(tuple(entries)) for pid, entries in self.store.all_books().items()}
        self.pools = self.store.pools()
        latest = run.latest_step()
        kept = kept_json(run.checkpoint(latest) / "arena" / "state.json") if latest else {}
        self.late: dict[str, list[int]] = kept.get("late", {})  # by problem, the steps that its reference was late in
        self.flat: dict[str, list[int]] = kept.get("flat", {})  # with leave_flat: its last steps with equal rewards
        self.stats: dict[int, dict[str, Any]] = {}
        self.reports: dict[int, dict[str, RankReport]] = {}
        self.lock = threading.Lock()
        self.last_line = time.monotonic()
        mark_best(run, recipe.eval.best)

    def training_begins(self) -> None:
        """Step times count from here: what came before was starting up and evaluating."""
        self.last_line = time.monotonic()

    def close(self) -> dict[str, Any]:
        """Closes the Mistake Book's file and removes what an unfinished checkpoint left. Returns closing figures."""
        shutil.rmtree(self.run.path / "checkpoints" / ".work", ignore_errors=True)
        self.store.close()
        return self.summary()

    # -- a step ----------------------------------------------------------------------------------------------------
    def replayed(self, pid: str) -> tuple[str, ...]:
        """The book's tests that a problem's candidates face this step, most frequent first."""
        if not self.rules.book or pid not in self.books:
            return ()
        return self.books[pid].replay(self.rules.book_replay)

    def pool(self, pid: str) -> Pool:
        """A problem's wrong programs of earlier steps."""
        return self.pools.get(pid, ())

    @property
    def left(self) -> dict[str, int]:
        """The problems that have left the schedule, and after which step."""
        return self._after(self.flat, self.recipe.data.leave_flat) | self._after(self.late, LATE_STEPS)

    @staticmethod
    def _after(steps: Mapping[str, list[int]], most: int | None) -> dict[str, int]:
        return {pid: at[most - 1] for pid, at in steps.items() if most and len(at) >= most}

    def _count_leaving(
        self, step: int, judged: Mapping[str, JudgedProblem], outcomes: Mapping[str, ProblemOutcome]
    ) -> dict[str, Any]:
        """Notes which references ran out of time, and which problems taught the Code LLM nothing; the figures of it."""
        total = 0
        for pid, problem in judged.items():
            late, calls = late_calls(suite for one in problem.candidates for suite in one.game.suites)
            total += late
            if late and late >= LATE_SHARE * calls:
                self.late.setdefault(pid, []).append(step)
        most = self.recipe.data.leave_flat
        for pid, outcome in outcomes.items() if most else ():
            if has_signal(outcome.code_rewards):
                self.flat.pop(pid, None)
            elif any(reward is not None for reward in outcome.code_rewards):
                self.flat.setdefault(pid, []).append(step)
        leaving = sorted(pid for pid, at in self._after(self.late, LATE_STEPS).items() if at == step)
        found = {"reference_timeouts": total, "leaving": leaving, "problems_left": len(self.left)}
        if most:
            found["leaving_flat"] = sorted(pid for pid, at in self._after(self.flat, most).items() if at == step)
        return found

    def score_step(
        self, step: int, judged: Mapping[str, JudgedProblem]
    ) -> tuple[dict[str, ProblemOutcome], dict[str, Any]]:
        """Rewards, selection, book and pool of a whole step, written to disk before anybody learns of them."""
        outcomes: dict[str, ProblemOutcome] = {}
        events: list[tuple[str, str, int, str | None]] = []
        pool_events: list[PoolEvent] = []
        for pid, problem in judged.items():
            book, codes = self.books.get(pid, Book()), [one.candidate.code for one in problem.candidates]
            outcome = self.method.score(self.rules, book.entries, problem, pid)
            outcomes[pid] = outcome
            self.books[pid] = Book(outcome.book_after)
            events += [(pid, e.test, e.change, codes[e.candidate_index]) for e in outcome.events]
            if problem.pool is not None:
                after = problem.pool.after(self.pool(pid))
                pool_events += events_between(pid, self.pool(pid), after)
                self.pools[pid] = after
        if events or pool_events:
            self.store.append(step, events, pool_events)
        write_rollouts(self.run.rollout_file(step), rollout_rows(step, judged, outcomes))
        left = self._count_leaving(step, judged, outcomes)
        return outcomes, self.method.figures(self.rules, outcomes) | self.summary() | left

    def arena_stats(self, step: int, stats: dict[str, Any]) -> None:
        """Keeps what the arena counted of a step until the ranks have reported it."""
        with self.lock:
            self.stats[step] = stats

    def report(self, report: RankReport) -> dict[str, Any] | None:
        """Takes a rank's report; the last one that a step's line needs writes the line and returns it."""
        with self.lock:
            if not report.label.endswith("[0]"):
                return None
            parts = self.reports.setdefault(report.step, {})
            parts[report.label.partition("[")[0]] = report
            if len(parts) < len(self.method.policies):
                return None
            now, stats = time.monotonic(), {} if self.method.pairs else self.stats.pop(report.step)
            tail = stats.pop("judge_tail_s", 0.0)
            del self.reports[report.step]
            reports = [parts[policy] for policy in self.method.policies]
            spent = {f"{part}_s": round(took, 3) for one in reports for part, took in one.seconds.items()}
            logs = {role: figures for one in reports for role, figures in one.logs.items()}
            line = {
                "step": report.step,
                "time": round(time.time(), 3),
                **{role: logs[role] for role in self.method.roles},
                "arena": stats,
                "timing": {"step_s": round(now - self.last_line, 3), "judge_tail_s": tail, **spent},
            }
            self.last_line = now
            self.run.append_metrics(line)
            return line

    # -- checkpoints -----------------------------------------------------------------------------------------------
    def commit(self, step: int, optimizer_step: int, pending: Collection[int] = ()) -> list[int]:
        """Puts the policies' folders and the arena's state together as one checkpoint.

        Returns the steps pruned; never one of `pending`, whose evaluation may yet make it the best.

        Raises:
            EnvironmentFault: it cannot be written.
        """
        staged, work = self.run.pending, self.run.path / "checkpoints" / ".work"
        shutil.rmtree(staged, ignore_errors=True)
        try:
            staged.mkdir()
            for policy in self.method.policies:
                os.replace(work / policy / f"checkpoint-{optimizer_step}", staged / policy)
            (staged / "arena").mkdir()
            state = {"step": step, "book": book_state(self.books), "pool": pool_state(self.pools)}
            state |= {"late": dict(sorted(self.late.items())), "flat": dict(sorted(self.flat.items()))}
            write_atomic(staged / "arena" / "state.json", json.dumps(state) + "\n")
            self.run.commit(step)
            if not self.method.pairs:  # else the other policy may be steps ahead, and have its next one there
                shutil.rmtree(work, ignore_errors=True)
        except OSError as error:
            raise EnvironmentFault(
                f"checkpoint {step} cannot be written: {error.strerror}: {error.filename}"
            ) from error
        mark_best(self.run, self.recipe.eval.best)
        return self.run.prune(self.recipe.checkpoint.keep, pending)

    def benchmark(self, line: dict[str, Any], pending: Collection[int]) -> None:
        """Writes a benchmark's line; its checkpoint, which waited for that, is now the best or free to go."""
        self.run.append_metrics(line)
        mark_best(self.run, self.recipe.eval.best)
        self.run.prune(self.recipe.checkpoint.keep, pending)

    def summary(self) -> dict[str, Any]:
        """How many tests and problems the Mistake Book has, and how many programs the pools."""
        return {
            "book_tests": sum(len(book.entries) for book in self.books.values()),
            "book_problems": sum(bool(book.entries) for book in self.books.values()),
            "pool_programs": sum(map(len, self.pools.values())),
        }
