"""A run's checkpoints: whether one is what was committed, which one is the best by the figure that the recipe names,
and which ones pruning leaves alone.

The best one is read from metrics.jsonl and the checkpoints that there are: marking again changes nothing, and a resumed
run marks as one that was never interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zipfile
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, RootModel

from codea1_cli.durable import write_atomic
from codea1_cli.errors import UserError
from codea1_cli.files import kept_json, read_model
from codea1_cli.methods.registry import ROLES, method_of
from codea1_cli.models.model_files import safetensors_size
from codea1_cli.runs import read_part

if TYPE_CHECKING:
    from codea1_cli.runs.run_dir import RunDir


COMMITTED = "COMMITTED"
_STATE = "arena/state.json"
# What a trainer needs of each policy; it goes on with a fresh optimizer, without a word, where that is missing.
_NEEDED = {
    "weights": ("*model*.safetensors", "*model*.bin"),
    "optimizer": ("optimizer*",),
    "schedule": ("scheduler.pt",),
    "random state": ("rng_state*.pth",),
    "trainer state": ("trainer_state.json",),
}


class _State(BaseModel, strict=True):
    """What the arena goes on from; earlier versions lack some."""

    step: int
    book: dict[str, list[Any]]
    pool: dict[str, list[Any]] = {}
    late: dict[str, list[int]] = {}
    flat: dict[str, list[int]] = {}


class _Group(BaseModel, strict=True):
    prompt: list[int]
    completions: list[list[int]]
    logprobs: list[list[float]] | None


class _Ahead(BaseModel, strict=True):
    """What a rank had sampled ahead."""

    step: int
    groups: dict[str, _Group]


class _Trainer(BaseModel, strict=True):
    global_step: int = 0
    log_history: list[dict[str, Any]] = []


_Any = RootModel[Any]
_KINDS: dict[str, type[BaseModel]] = {"trainer_state.": _Trainer, "rollouts-": _Ahead}


def commit_note(folder: Path, step: int) -> str:
    """What COMMITTED holds: the step, and the size of each file of the checkpoint by its name."""
    return json.dumps({"step": step, "files": _sizes(folder)}) + "\n"


def _sizes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


def damage(folder: Path, step: int, policies: Sequence[str]) -> str | None:
    """What is wrong with the checkpoint of `step` of `policies`; None for a whole one.

    Sizes are compared with COMMITTED's where it holds them, as those of earlier versions do not; what a crash of the
    machine turned into zeros is told by the formats' own marks. The bytes of weights are not read.
    """
    if not folder.is_dir():
        return "it is gone"
    there = _sizes(folder)
    if COMMITTED not in there:
        return f"{COMMITTED} is missing"
    note = kept_json(folder / COMMITTED)
    sizes = note.get("files", {})
    if "step" not in note or not isinstance(sizes, dict):
        return f"{COMMITTED} is broken"
    if note["step"] != step:
        return f"{COMMITTED} is of step {note['step']}"
    for name in dict.fromkeys((*sizes, _STATE)):
        if name not in there:
            return f"{name} is missing"
        if there[name] != sizes.get(name, there[name]):
            return f"{name} has {there[name]} of {sizes[name]} bytes"
    state = read_part(folder / _STATE, _State, lambda _: None)
    if state is None or state.step != step:
        return f"{_STATE} is broken"
    for policy in policies:
        for what, patterns in _NEEDED.items():
            if not any(fnmatchcase(name, f"{policy}/{pattern}") for name in there for pattern in patterns):
                return f"{policy} lacks its {what}"
    return next((f"{name} {fault}" for name, size in there.items() if (fault := _fault(folder / name, size))), None)


def model_damage(folder: Path) -> str | None:
    """What is wrong with the model in a policy's folder, as far as its files' formats tell; None for a whole one."""
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".safetensors", ".bin")]
    return next((f"{path.name} {fault}" for path in files if (fault := _fault(path, path.stat().st_size))), None)


def _fault(path: Path, size: int) -> str | None:
    """What is wrong with a file, as far as its own format tells."""
    try:
        if path.suffix == ".json":
            read_model(path, next((kind for name, kind in _KINDS.items() if path.name.startswith(name)), _Any))
        elif path.suffix == ".safetensors" and safetensors_size(path) != size:
            return "is truncated"
        elif path.suffix in (".pt", ".pth", ".bin") and not zipfile.is_zipfile(path):
            return "is broken"
    except (OSError, ValueError):
        return "is broken"
    return None


# -- the best one ------------------------------------------------------------------------------------------------------
def figure_of(line: dict[str, Any], name: str) -> float | None:
    """The value of a figure, `SET/KEY`, in an evaluation's line of metrics.jsonl; None where it is not in it.

    A held-out key (`heldout/pass@1`, `heldout/exposed`) is looked up in the Code LLM's part, then in the Test LLM's;
    `heldout/near_miss/exposed` is of the near-miss programs.
    """
    figures = line.get("eval")
    chosen, _, key = name.partition("/")
    if not isinstance(figures, dict) or figures.get("set") != chosen:
        return None
    parts = [figures, *map(figures.get, ROLES)]
    if key.startswith("near_miss/"):
        parts, key = [figures.get("near_miss")], key.removeprefix("near_miss/")
    for part in parts:
        value = part.get(key) if isinstance(part, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def best_of(lines: Iterable[dict[str, Any]], figure: str, steps: Collection[int]) -> tuple[int, float] | None:
    """The step among `steps` with the highest value, the earliest of equals; the last line of a step counts."""
    values = {line["step"]: value for line in lines if (value := figure_of(line, figure)) is not None}
    found = [(step, value) for step, value in values.items() if step in steps]
    return max(found, key=lambda item: (item[1], -item[0]), default=None)


def prunable(steps: Sequence[int], keep: int, spared: Collection[int]) -> list[int]:
    """All but the newest `keep` of the steps, which are in order; at least one stays, and the spared ones do."""
    return [step for step in steps[: -max(keep, 1)] if step not in spared]


def mark_best(run: RunDir, figure: str | None) -> dict[str, Any] | None:
    """Points `checkpoints/best` at the best whole checkpoint and writes best.json; returns what best.json holds, None
    where no checkpoint has the figure. Without a figure nothing is touched."""
    if figure is None:
        return None
    link, file = run.path / "checkpoints" / "best", run.path / "best.json"
    found = best_of(run.metrics(), figure, run.committed_steps())
    if found is None:  # a run that starts over
        link.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        return None
    best = {"step": found[0], "figure": figure, "value": found[1]}
    if best != run.best(lambda _: None):  # a broken one is written anew
        # The link is last: best.json alone spares the checkpoint from pruning.
        write_atomic(file, json.dumps(best) + "\n")
    run.point("best", found[0])
    return best


def checkpoints(run: RunDir) -> list[dict[str, int]]:
    """Step and size of every whole checkpoint, oldest first."""
    return [{"step": step, "bytes": folder_bytes(run.checkpoint(step))} for step in run.committed_steps()]


def folder_bytes(folder: Path) -> int:
    """Bytes of the files below `folder`; files that vanish meanwhile count nothing, links are not followed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


# -- giving disk space back --------------------------------------------------------------------------------------------
def deletions(runs: Iterable[RunDir], keep: int, whole: bool) -> list[dict[str, Any]]:
    """What pruning these runs deletes: each `run` by its name, the `step` of a checkpoint, and `bytes`. `whole`: the
    runs themselves, whose step is None."""
    if whole:
        return [{"run": run.name, "step": None, "bytes": folder_bytes(run.path)} for run in runs]
    return [
        {"run": run.name, "step": step, "bytes": folder_bytes(run.checkpoint(step))}
        for run in runs
        for step in run.prunable(keep, steps=_whole_steps(run))
    ]


def _whole_steps(run: RunDir) -> list[int]:
    """A damaged checkpoint is neither deleted nor counted: those before it are what the run can go on from."""
    try:
        policies = method_of(run.recipe()).policies
    except UserError:
        policies = ()
    return [step for step in run.committed_steps() if damage(run.checkpoint(step), step, policies) is None]


def delete(runs: Iterable[RunDir], entries: Iterable[dict[str, Any]]) -> None:
    """Deletes what `deletions` gave, each with its run's lock held."""
    by_name = {run.name: run for run in runs}
    for entry in entries:
        run = by_name[entry["run"]]
        with run.locked():
            if entry["step"] is not None:
                run.delete_checkpoint(entry["step"])
                continue
            # Out of the list at once: a crash in the middle leaves a hidden leftover, not half a run.
            doomed = run.path.with_name(f".{run.name}.deleted")
            shutil.rmtree(doomed, ignore_errors=True)
            run.path.rename(doomed)
        shutil.rmtree(doomed)
