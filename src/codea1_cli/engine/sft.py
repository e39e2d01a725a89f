"""Supervised fine-tuning in a run: its pairs, settled once and kept, and the warm-up before a run's first step.

A warm-up is a run of `method: sft` in the folder `warmup` of the run that it is for: it has all that a run has.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.data.pairs import Pair, read_pairs
from codea1_cli.durable import write_atomic, write_rows
from codea1_cli.engine.ranks import wants_vllm
from codea1_cli.engine.resume import free_name, resume_point, set_aside
from codea1_cli.engine.run_setup import RunSetup, Schedule, make_schedule, run_length
from codea1_cli.errors import UserError, command, counted
from codea1_cli.methods.registry import ROLES, method_of
from codea1_cli.models.loading import resolve_model
from codea1_cli.planning.gpu_assignment import GpuAssignment
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe import flat
from codea1_cli.recipe.batching import fitted, warmup_recipe
from codea1_cli.recipe.files import recipe_text
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.policy_folders import export_policy
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import RunOutcome


class PairSetup(RunSetup):
    """As `RunSetup`, for a run that learns from pairs. All that it was given lies in its folder `pairs`: a resume needs
    no other file."""

    def fresh(
        self, rows: Sequence[Any], faults: Mapping[str, str], lengths: Sequence[Any], devices: Mapping[str, str]
    ) -> tuple[Schedule, dict[str, Problem]]:
        """Leaves out the pairs that are too long and writes run.json.

        Args:
            rows: pairs, those of a role in the order of their file.
            lengths: tokens of each one's prompt and completion.

        Raises:
            UserError: a policy has none left, or too little for one step, or by the pre-flight less than half.
        """
        self._keep(rows)
        for pair, (prompt, completion) in zip(rows, lengths, strict=True):
            if over := _too_long(self.recipe, pair.role, prompt, completion):
                self.skipped.setdefault(over, []).append(pair.id)
            else:
                self.pairs[pair.id] = pair
        ids, ranks = self._ids(), Counter(label.partition("[")[0] for label in devices)
        gone = {pair.role for pair in rows} - {pair.role for pair in self.pairs.values()}
        if gone or (self.recipe.preflight.enabled and 2 * len(self.pairs) < len(rows)):
            others = f"`{command('train', *self.run.options, '--resume', '--no-preflight')}` trains on the others"
            raise UserError(
                f"before the first step: of {counted(len(rows), 'pair')} "
                + ", ".join(f"{len(ids)} are {reason}" for reason, ids in self.skipped.items()),
                hint="raise what is named" + ("" if gone else f"; {others}"),
            )
        self.recipe, fewer = fitted(self.recipe, min(map(len, ids.values())), ranks)
        if fewer:
            self.notes.append(fewer)
            write_atomic(self.run.recipe_file, recipe_text(self.recipe))
        schedule = self._schedule([])
        info = self._info(schedule, max(ids.values(), key=len), devices) | {"pair_ids": ids}
        write_atomic(self.run.path / "run.json", json.dumps(info, indent=2) + "\n")
        return schedule, {}

    def resume(self, rows: Sequence[Any], labels: Sequence[str]) -> tuple[Schedule, dict[str, Problem]]:
        """As `RunSetup.resume`, with the pairs that the run keeps."""
        info, by_id = self._same_run(labels, train=None), {pair.id: pair for pair in rows}
        self.pairs = {id: by_id[id] for ids in info["pair_ids"].values() for id in ids}
        schedule = self._schedule([])
        self.run.note(total_steps=len(schedule))
        return schedule, {}

    def _keep(self, rows: Sequence[Pair]) -> None:
        (self.run.path / "pairs").mkdir(exist_ok=True)
        for role in method_of(self.recipe).roles:
            write_rows(pairs_file(self.run, role), [pair.row() for pair in rows if pair.role == role])

    def _ids(self) -> dict[str, list[str]]:
        """The ids of each policy's pairs."""
        roles = method_of(self.recipe).roles
        return {role: [id for id, pair in self.pairs.items() if pair.role == role] for role in roles}

    def _schedule(self, ids: list[str]) -> Schedule:
        """As many pairs of each policy in a step; the run is as long as the longest file's epochs, where it is not said
        how long."""
        train, every = self.recipe.train, self._ids()
        steps = train.max_steps or run_length(self.recipe, max(map(len, every.values())))
        size, seed = train.problems_per_step, self.recipe.seed
        parts = [
            make_schedule(mine, problems_per_step=size, epochs=1, seed=seed, max_steps=steps) for mine in every.values()
        ]
        merged = tuple(sum(step, ()) for step in zip(*(part.steps for part in parts), strict=True))
        return Schedule(merged, max(part.steps_per_epoch for part in parts))

    def _trained_on(self) -> dict[str, Any]:
        pairs = {role: len(ids) for role, ids in self._ids().items()}
        files = {role: getattr(self.recipe.sft, role) for role in pairs}
        return {"train": self.recipe.data.train, "pairs": pairs, "files": files}


def _too_long(recipe: Recipe, role: str, prompt: int, completion: int) -> str | None:
    """Why a pair of so many tokens is left out."""
    for part, found in (("prompt", prompt), ("completion", completion)):
        if found > (most := getattr(recipe.role(role), f"max_{part}_tokens")):
            return f"longer than {role}.max_{part}_tokens={most}"
    return None


def some_short(recipe: Recipe, pairs: list[Pair]) -> list[Pair]:
    """One policy's pairs, where its tokenizer lies here as a file and does not say that each is too long: what a chat
    template adds is not counted, which the run itself does.

    Raises:
        UserError: each is.
    """
    from tokenizers import Tokenizer

    role = pairs[0].role
    file = Path(resolve_model(recipe.model_of(method_of(recipe).policy(role)), get=False)) / "tokenizer.json"
    if not file.is_file():
        return pairs
    tokenizer, reasons = Tokenizer.from_file(str(file)), Counter[str]()
    tokenizer.no_truncation()
    for pair in pairs:
        texts = pair.messages[-1]["content"].strip(), pair.completion
        prompt, completion = (len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
        if (over := _too_long(recipe, role, prompt, completion + 1)) is None:
            return pairs
        reasons[over] += 1
    why = ", ".join(f"{count} are {over}" for over, count in reasons.items())
    raise UserError(f"of {counted(len(pairs), 'pair')} for {role} {why}", hint="raise what is named")


def pairs_file(run: RunDir, role: str) -> Path:
    """Where a run keeps what it was given for a policy."""
    return run.path / "pairs" / f"{role}.jsonl"


def kept_pairs(run: RunDir) -> list[Pair]:
    """The pairs that a run of `method: sft` was given, by policy.

    Raises:
        UserError: they are gone, or broken.
    """
    return [pair for role in method_of(run.recipe()).roles for pair in read_pairs(pairs_file(run, role), role)]


# -- the warm-up -------------------------------------------------------------------------------------------------------
_DECISIVE = ("model", "seed", "data", "game", "train", "optim", *ROLES, "sft", "lora")

Train = Callable[[Recipe, RunDir, int], RunOutcome]
"""Goes on with a run from a step."""


def warm_up(recipe: Recipe, run: RunDir, train: Train, ranks: GpuAssignment) -> RunOutcome | None:
    """Trains a run's policies on pairs, from where that was left, and writes them to `warmup/model/POLICY`; where they
    are there already, does nothing. Returns the outcome of a warm-up that was interrupted, None of one that is done.

    What was made by another recipe is set aside, unless the run has gone on from it. Where the run samples with vLLM,
    the warm-up measures nothing: it has no engine, and the run's own figures before its first step are the warmed
    policies'.

    Raises:
        RunFailed, UserError, EnvironmentFault: as a run.
    """
    stage, wish = run.warmup, warmup_recipe(recipe)
    assert wish is not None
    if any(wants_vllm(recipe, gpu) for group in ranks.values() for gpu in group):
        wish = wish.model_copy(update={"data": wish.data.model_copy(update={"heldout": None})})
    policies = method_of(wish).policies
    if stage.exists() and not run.latest_step() and _decisive(stage.recipe()) != _decisive(wish):
        (run.path / "set-aside").mkdir(exist_ok=True)
        os.replace(stage.path, free_name(run.path / "set-aside", "warmup"))
    if run.warmed(policies):
        return None
    with stage.locked(wait=True):
        point = resume_point(stage) if stage.exists() else None
        if point is not None:
            set_aside(stage, point)
        stage.create()
        write_atomic(stage.recipe_file, recipe_text(wish))
        done = point.step if point is not None else 0
        if not done or done < stage.info()["total_steps"]:
            outcome = train(wish, stage, done)
            if outcome.state != "finished" or outcome.interrupted:
                return outcome
        for policy in policies:
            if not (stage.path / "model" / policy).is_dir():
                export_policy(stage, policy, stage.path / "model" / policy)
    return None


def _decisive(recipe: Recipe) -> dict[str, Any]:
    """The values of a recipe that decide what a run learns."""
    values = flat(recipe.dump())
    return {k: v for k, v in values.items() if k.partition(".")[0] in _DECISIVE and k != "data.heldout"}
