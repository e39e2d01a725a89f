"""The arena as a rank calls it, one typed method per call, and what it knows of every rank's progress.

A test holds the signatures to those of `engine.arena.Arena`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codea1_cli.methods.base import CandidateView, Exchange
from codea1_cli.problems.prompts import KnownNames, real_reply, shown_code


@dataclass(frozen=True)
class RankReport:
    """One rank's step: what TRL logged, by role that its policy plays, and seconds by role and part together, such as
    `code_sampling`."""

    label: str
    step: int
    logs: dict[str, dict[str, float]]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Decision:
    """What to do at the end of a step; the same for every rank."""

    save: bool
    stop: bool


class ArenaClient(Exchange):
    """All calls of a rank. They block until the arena answers, except `heartbeat` and those that `Exchange` names.

    Where the rank's model has seen few names (`names`), programs come here under the one that it knows for a function,
    and replies leave under the functions' own (`entry_points`, by problem id): nobody else meets the other.
    """

    def __init__(
        self, arena: Any, names: KnownNames | None = None, entry_points: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(arena)
        self.names, self.entry_points = names, entry_points or {}

    def _shown(self, pid: str, code: str) -> str:
        return shown_code(code, self.entry_points[pid], self.names)

    def _real(self, pid: str, texts: Sequence[str]) -> list[str]:
        return [real_reply(text, self.entry_points[pid], self.names) for text in texts]

    def post_candidates(self, step: int, texts: dict[str, list[str]]) -> None:
        """As `Exchange`."""
        if self.names is not None:
            texts = {pid: self._real(pid, group) for pid, group in texts.items()}
        super().post_candidates(step, texts)

    def next_candidates(self, step: int, ids: Sequence[str]) -> Callable[[bool], dict[str, list[CandidateView]]]:
        """As `Exchange`."""
        answer = super().next_candidates(step, ids)
        if self.names is None:
            return answer

        def shown(pid: str, views: Sequence[CandidateView]) -> list[CandidateView]:
            return [replace(view, code=self._shown(pid, view.code)) for view in views]

        return lambda wait: {pid: shown(pid, views) for pid, views in answer(wait).items()}

    def post_suites(self, step: int, groups: Sequence[tuple[str, int, list[str]]]) -> None:
        """As `Exchange`."""
        if self.names is not None:
            groups = [(pid, index, self._real(pid, texts)) for pid, index, texts in groups]
        super().post_suites(step, groups)

    def heartbeat(self, label: str, phase: str, step: int) -> None:
        """Tells what a rank does from now on: a hang is blamed on the rank that is not `waiting`."""
        self._arena.heartbeat.remote(label, phase, step)

    def step_ended(self, label: str, step: int) -> Decision:
        """Whether the rank saves and whether it stops; the first rank to ask settles it for all."""
        return self._wait(self._arena.step_ended.remote(label, step))

    def report(self, report: RankReport) -> None:
        """Hands over a step's figures. The first ranks of all policies make its line: the last of these to report finds
        it on disk when the call returns."""
        self._wait(self._arena.report.remote(report))

    def keep_step(self, step: int) -> None:
        """Returns when every policy has reported of a step."""
        self._wait(self._arena.keep_step.remote(step))

    def checkpoint_written(self, label: str, step: int, optimizer_step: int) -> None:
        """Says that the rank's part of a checkpoint is written; the last rank's call commits the whole."""
        self._wait(self._arena.checkpoint_written.remote(label, step, optimizer_step))

    def preflight_programs(self) -> dict[str, str]:
        """A program per problem that gave one, when all ranks that write programs have posted theirs."""
        found: dict[str, str] = self._wait(self._arena.preflight_programs.remote())
        return found if self.names is None else {pid: self._shown(pid, code) for pid, code in found.items()}

    def post_preflight(self, label: str, role: str, counts: Any, samples: list[tuple[str, list[str]]]) -> None:
        """Posts a rank's pre-flight samples of a role."""
        if self.names is not None:
            samples = [(pid, self._real(pid, texts)) for pid, texts in samples]
        self._wait(self._arena.post_preflight.remote(label, role, counts, samples))

    def finish_preflight(self) -> None:
        """Returns when the run may begin.

        Raises:
            UserError: the samples speak against the run.
        """
        self._wait(self._arena.finish_preflight.remote())

    def evaluation_share(self, name: str, rank: int, ranks: int) -> list[Any]:
        """The items of an evaluation set that one rank samples; waits until they are known."""
        return self._wait(self._arena.evaluation_share.remote(name, rank, ranks))

    def post_evaluation(self, step: int, name: str, rank: int, texts: dict[str, list[str]], too_long: int) -> None:
        """Posts a rank's share of a set's texts by the items' ids, and how many prompts were too long."""
        self._wait(self._arena.post_evaluation.remote(step, name, rank, texts, too_long))


class Heartbeats:
    """When each rank last made progress, and in which phase it is."""

    def __init__(self, file: Path) -> None:
        """`file`: where `codea1 runs watch` finds each rank's phase, its step and the time that it began."""
        self._beats: dict[str, tuple[str, int, float]] = {}
        self._judged = time.monotonic()
        self._file, self._told = file, dict[str, tuple[str, int, float]]()
        file.unlink(missing_ok=True)

    def beat(self, label: str, phase: str, step: int) -> None:
        """A rank begins a phase, or goes on with it."""
        self._beats[label] = (phase, step, time.monotonic())
        if self._told.get(label, ())[:2] != (phase, step):
            self._told[label] = (phase, step, round(time.time(), 3))
            self._tell()

    def _tell(self) -> None:
        """Not flushed to disk, and without a word where it cannot be written: a run does without it."""
        beside = self._file.with_name(f".{self._file.name}.tmp")
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(self._told) + "\n", encoding="utf-8")
            os.replace(beside, self._file)

    def judged(self) -> None:
        """The judge has finished something."""
        self._judged = time.monotonic()

    @property
    def phases(self) -> dict[str, tuple[str, int, float]]:
        """(phase, step, time that it began) of every rank."""
        return dict(self._told)

    def position(self, label: str) -> tuple[str, int] | None:
        """(phase, step) that a rank reported last."""
        beat = self._beats.get(label)
        return (beat[0], beat[1]) if beat else None

    def at_work(self) -> dict[str, tuple[str, int, float]]:
        """(phase, step, seconds since it began) of every rank that works, and of the judge when all ranks wait."""
        now = time.monotonic()
        beats = self._beats.items()
        working = {who: (phase, step, now - since) for who, (phase, step, since) in beats if phase != "waiting"}
        if working or not self._beats:
            return working
        since = max([self._judged, *(since for _, _, since in self._beats.values())])
        return {"judge": ("judging", max(step for _, step, _ in self._beats.values()), now - since)}
