"""What a run settles once and keeps: which problems it uses, in which order, and run.json.

The whole run's order is expanded before it starts: TRL's own shuffle is lost on a resume past the first epoch, so the
trainers get the order as their dataset and shuffle nothing.
"""

from __future__ import annotations

import json
import platform
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from codea1_cli.data.pairs import Pair
from codea1_cli.durable import write_atomic
from codea1_cli.environment import installed_version
from codea1_cli.errors import UserError, command, counted
from codea1_cli.methods.registry import method_of
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.batching import fitted
from codea1_cli.recipe.files import recipe_text
from codea1_cli.recipe.resources import file_hash
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir

_PACKAGES = ("codea1", "torch", "transformers", "trl", "ray", "vllm", "peft", "accelerate", "datasets")


@dataclass(frozen=True)
class Schedule:
    """`steps[t]` holds the problem ids of step t + 1, all different."""

    steps: tuple[tuple[str, ...], ...]
    steps_per_epoch: int

    def __len__(self) -> int:
        return len(self.steps)

    def substitutes(self, step: int, gone: Collection[str]) -> dict[str, str]:
        """What is played in a step in the place of problems that are gone from the schedule: those whose next turn is
        farthest away, where the schedule begins anew at its end. A problem for which there is no other stays."""
        due = self.steps[step - 1]
        coming = dict.fromkeys(pid for ids in (*self.steps[step:], *self.steps[:step]) for pid in ids)
        free = [pid for pid in coming if pid not in due and pid not in gone]
        return dict(zip((pid for pid in due if pid in gone), reversed(free), strict=False))

    def played(self, step: int, gone: Collection[str]) -> list[str]:
        """The problems of a step, after substitution."""
        instead = self.substitutes(step, gone)
        return [instead.get(pid, pid) for pid in self.steps[step - 1]]


def check_enough(count: int, problems_per_step: int, what: str) -> None:
    """Raises UserError when `count` problems, named `what`, do not fill one step."""
    if count < problems_per_step:
        raise UserError(
            f"{count} {what} do not fill a step of {problems_per_step}",
            hint=f"add problems, or set train.problems_per_step={max(count, 1)} or less",
        )


def run_length(recipe: Recipe, problems: int) -> int:
    """Steps of a run over so many usable problems."""
    train = recipe.train
    return train.max_steps or problems // train.problems_sampled * train.epochs


def make_schedule(
    ids: Sequence[str], *, problems_per_step: int, epochs: int, seed: int, max_steps: int | None = None
) -> Schedule:
    """Shuffles each epoch with its own seed and cuts it into whole steps; what does not fill a step is left to later
    epochs' shuffles. With `max_steps` the run is exactly that long, whatever `epochs` says.

    Raises:
        UserError: fewer problems than a step needs.
    """
    check_enough(len(ids), problems_per_step, "usable problems")
    per_epoch = len(ids) // problems_per_step
    total = max_steps if max_steps is not None else per_epoch * epochs
    steps: list[tuple[str, ...]] = []
    epoch = 0
    while len(steps) < total:
        order = list(ids)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        steps += [tuple(order[i * problems_per_step : (i + 1) * problems_per_step]) for i in range(per_epoch)]
        epoch += 1
    return Schedule(tuple(steps[:total]), per_epoch)


def known_solve_rate(problem: Problem) -> float | None:
    """The `solve_rate` that its row states, from 0 to 1; None without one."""
    rate = problem.meta.get("solve_rate")
    return float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate <= 1 else None


def outside(rates: Mapping[str, float | None], least: float, most: float) -> dict[str, str]:
    """Why problems are left out by their solve rate, by id."""
    found = {}
    for pid, rate in rates.items():
        if rate is None:
            found[pid] = "no solve rate: its own tests judge no solution"
        elif not least <= rate <= most:
            found[pid] = f"solve rate below {least:g}" if rate < least else f"solve rate above {most:g}"
    return found


def stated_outside(recipe: Recipe, problems: Sequence[Any]) -> dict[str, str]:
    """As `outside`, of the rates that rows state and by the recipe's `data.solve_rate`.

    Raises:
        UserError: no problem is left.
    """
    if recipe.data.solve_rate is None:
        return {}
    rates = {problem.id: rate for problem in problems if (rate := known_solve_rate(problem)) is not None}
    found = outside(rates, *recipe.data.solve_rate)
    if found and len(found) == len(problems):
        reasons = "; ".join(f"{count} {reason}" for reason, count in Counter(found.values()).items())
        raise UserError(f"no problem of {recipe.data.train} can be used: {reasons}", hint="widen data.solve_rate")
    return found


class RunSetup:
    """What a run works out before its first step: the problems that it takes, their order, run.json."""

    def __init__(self, recipe: Recipe, run: RunDir) -> None:
        self.recipe, self.run = recipe, run
        self.first = method_of(recipe).roles[0]  # whose prompts are known before the run
        self.skipped: dict[str, list[str]] = {}
        self.pairs: dict[str, Pair] = {}  # by id, of a run that learns from pairs (`engine.sft`)
        self.notes: list[str] = []  # what a user should know of the problems before the first step
        self.sandbox_layers: dict[str, Any] = {}
        self.environment: dict[str, Any] = {}

    def fresh(
        self,
        problems: Sequence[Problem],
        faults: Mapping[str, str],
        prompt_tokens: Sequence[int],
        devices: Mapping[str, str],
    ) -> tuple[Schedule, dict[str, Problem]]:
        """Leaves out what cannot be used, by a named reason, fits the step to what is left, and writes run.json.

        Raises:
            UserError: nothing is left, or too little for one step.
        """
        skipped = defaultdict(list)
        kept: dict[str, Problem] = {}
        longest = self.recipe.role(self.first).max_prompt_tokens
        for problem, tokens in zip(problems, prompt_tokens, strict=True):
            if problem.id in faults:
                skipped[faults[problem.id]].append(problem.id)
            elif tokens > longest:
                skipped[f"prompt longer than {self.first}.max_prompt_tokens={longest}"].append(problem.id)
            else:
                kept[problem.id] = problem
        self.skipped = dict(skipped)
        if not kept:
            reasons = "; ".join(f"{len(ids)} {reason}" for reason, ids in skipped.items())
            raise UserError(f"no problem of {self.recipe.data.train} can be used: {reasons}")
        self._check_lengths(len(problems), max(prompt_tokens))
        ranks = Counter(label.partition("[")[0] for label in devices)
        self.recipe, fewer = fitted(self.recipe, len(kept), ranks)
        if fewer:
            self.notes.append(fewer)
            write_atomic(self.run.recipe_file, recipe_text(self.recipe))
        schedule = self._schedule(list(kept))
        write_atomic(self.run.path / "run.json", json.dumps(self._info(schedule, list(kept), devices), indent=2) + "\n")
        return schedule, kept

    def outside_solve_rate(
        self,
        problems: Sequence[Problem],
        faults: Mapping[str, str],
        prompt_tokens: Sequence[int],
        measure: Callable[[Sequence[Problem]], Mapping[str, float | None]],
    ) -> dict[str, str]:
        """Why problems that could be used are left out by `data.solve_rate`, by id; writes solve_rates.json.

        measure: gives the rates that no row states; None where nothing could be judged.
        """
        if self.recipe.data.solve_rate is None:
            return {}
        longest = self.recipe.role(self.first).max_prompt_tokens
        usable = [p for p, n in zip(problems, prompt_tokens, strict=True) if p.id not in faults and n <= longest]
        rates = {problem.id: known_solve_rate(problem) for problem in usable}
        if missing := [problem for problem in usable if rates[problem.id] is None]:
            rates |= measure(missing)
        write_atomic(self.run.path / "solve_rates.json", json.dumps(rates) + "\n")
        return outside(rates, *self.recipe.data.solve_rate)

    def _check_lengths(self, problems: int, longest: int) -> None:
        """A pre-flight finding that needs no sample: most prompts are too long."""
        left_out = sum(len(ids) for reason, ids in self.skipped.items() if reason.startswith("prompt longer"))
        if self.recipe.preflight.enabled and 2 * left_out > problems:
            raise UserError(
                f"before the first step: {left_out} of {counted(problems, 'prompt')} exceed "
                f"{self.first}.max_prompt_tokens={self.recipe.role(self.first).max_prompt_tokens}",
                hint=f"raise {self.first}.max_prompt_tokens to {longest} or more; "
                f"`{command('train', *self.run.options, '--resume', '--no-preflight')}` trains on the others",
            )

    def resume(self, problems: Sequence[Problem], labels: Sequence[str]) -> tuple[Schedule, dict[str, Problem]]:
        """The order that the run began with, as long as the recipe says now; `labels` are the ranks that would go on
        with it.

        Raises:
            UserError: a file of problems, or the number of ranks, is not the one that the run began with.
        """
        info = self._same_run(labels, train=self.recipe.data.train)
        by_id = {problem.id: problem for problem in problems}
        kept = {pid: by_id[pid] for pid in info["problem_ids"]}
        schedule = self._schedule(list(kept))
        self.run.note(total_steps=len(schedule))
        return schedule, kept

    def _same_run(self, labels: Sequence[str], train: str | None) -> dict[str, Any]:
        """run.json, for a run that can go on with these files and ranks."""
        info = self.run.info()
        for source, digest in ((train, "sha256"), (self.recipe.data.heldout, "heldout_sha256")):
            if source is not None and info["data"][digest] != file_hash(source):
                raise UserError(
                    f"{source} has changed since run {self.run.name} began",
                    hint="restore the file, or start a new run: with other problems it would not be the same run",
                )
        if set(info["devices"]) != set(labels):
            raise UserError(
                f"run {self.run.name} began with the ranks {', '.join(info['devices'])}; "
                f"here there would be {', '.join(labels)}",
                hint="offer it as many GPUs as it had, for example with CUDA_VISIBLE_DEVICES",
            )
        return info

    def _schedule(self, ids: list[str]) -> Schedule:
        train = self.recipe.train
        return make_schedule(
            ids,
            problems_per_step=train.problems_sampled,
            epochs=train.epochs,
            seed=self.recipe.seed,
            max_steps=train.max_steps,
        )

    def _info(self, schedule: Schedule, kept: list[str], devices: Mapping[str, str]) -> dict[str, Any]:
        return {
            "name": self.run.name,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": sys.argv,
            "seed": self.recipe.seed,
            "total_steps": len(schedule),
            "steps_per_epoch": schedule.steps_per_epoch,
            "versions": versions((*_PACKAGES, *self.recipe.tracker)),
            "python": platform.python_version(),
            "host": platform.platform(),
            "devices": dict(devices),
            "environment": self.environment,
            "sandbox": self.sandbox_layers,
            "git_revision": git_revision(),
            "data": {
                **self._trained_on(),
                "heldout": self.recipe.data.heldout,
                "heldout_sha256": file_hash(self.recipe.data.heldout) if self.recipe.data.heldout else None,
                "problems": len(kept),
                "skipped": {reason: len(ids) for reason, ids in self.skipped.items()},
            },
            "problem_ids": kept,
        }

    def _trained_on(self) -> dict[str, Any]:
        train = self.recipe.data.train or ""
        return {"train": train, "sha256": file_hash(train)}


def versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
    """The versions of those packages that are installed."""
    return {package: there for package in packages if (there := installed_version(package)) is not None}


def git_revision() -> str | None:
    """The revision of a source checkout of codea1; None for an installed wheel."""
    folder = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
