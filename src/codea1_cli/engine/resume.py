"""What a resumed run goes on from, and where it keeps what it does not: nothing of a run is lost without a word."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from codea1_cli.durable import fsync_folder, write_rows
from codea1_cli.errors import UserError, command
from codea1_cli.game.mistake_book import Book
from codea1_cli.game.pool import Pool
from codea1_cli.methods.registry import method_of
from codea1_cli.mistakes import MistakeStore
from codea1_cli.runs.checkpoints import damage
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import known_info


@dataclass(frozen=True)
class ResumePoint:
    """The whole checkpoint to go on from, 0 for the start, and what is wrong with each later one."""

    step: int
    damaged: dict[int, str]


def resume_point(run: RunDir, start_over: bool = False) -> ResumePoint:
    """Looks for the newest whole checkpoint, and changes nothing.

    Raises:
        UserError: none of what was saved is whole, or run.json or the Mistake Book does not belong to it, and nobody
            asked to start over.
    """
    damaged: dict[int, str] = {}
    if start_over:
        return ResumePoint(0, dict.fromkeys(_saved(run), "the run starts over"))
    if (_saved(run) or run.metrics()) and not _info_is_whole(run):
        raise _nothing_whole(run, f"{run.path / 'run.json'} is missing or broken")
    recipe = run.recipe()
    policies = method_of(recipe).policies
    if recipe.eval.best is None:  # else it is written anew
        run.best()
    for step in sorted(_saved(run), reverse=True):
        fault = damage(run.checkpoint(step), step, policies)
        if fault is None:
            _check_book(run, step)
            return ResumePoint(step, damaged)
        damaged[step] = fault
    done = max((line["step"] for line in run.metrics() if "eval" not in line), default=0)
    if not damaged and done and recipe.checkpoint.every is None:
        typed = command("train", *run.options, "--resume", "--start-over")
        what = f"run {run.name} saves no checkpoints (checkpoint.every=null): it cannot go on from step {done}"
        raise UserError(what, hint=f"`{typed}` trains it again")
    if not damaged and done > (recipe.checkpoint.every or 0):
        raise _nothing_whole(run, f"the metrics of run {run.name} go to step {done}, and its checkpoints are gone")
    if damaged:
        what = "; ".join(f"checkpoint {step} is damaged: {fault}" for step, fault in damaged.items())
        raise _nothing_whole(run, f"no checkpoint of run {run.name} is whole: {what}")
    return ResumePoint(0, {})


def _nothing_whole(run: RunDir, what: str) -> UserError:
    return UserError(
        what, hint=f"restore it, or start over: `{command('train', *run.options, '--resume', '--start-over')}`"
    )


def _info_is_whole(run: RunDir) -> bool:
    return {"problem_ids", "devices", "data"} <= set(known_info(run))


def _saved(run: RunDir) -> set[int]:
    """The steps of all checkpoints that there are, whole or not, and of the one that `latest` leads to."""
    folder = run.path / "checkpoints"
    names = {path.name for path in folder.glob("step-*")}
    if (folder / "latest").is_symlink():
        names.add(os.readlink(folder / "latest"))
    return {int(number) for name in names if (number := name.removeprefix("step-")).isdigit()}


def _check_book(run: RunDir, step: int) -> None:
    """A checkpoint knows the book of its step: a lost or foreign file must not pass for an empty book."""
    state = json.loads((run.checkpoint(step) / "arena" / "state.json").read_text(encoding="utf-8"))
    books: dict[str, list[tuple[str, int]]] = {}
    pools: dict[str, Pool] = {}
    if run.mistakes_file.is_file():
        try:
            with MistakeStore(run.mistakes_file, read_only=True) as store:
                books, pools = store.all_books(step), store.pools(step)
        except UserError as fault:
            raise _nothing_whole(run, fault.what) from None
    whole = state["book"] == book_state({pid: Book(tuple(entries)) for pid, entries in books.items()})
    if not whole or state.get("pool", {}) != pool_state(pools):  # checkpoints of earlier versions have no pool
        raise _nothing_whole(run, f"{run.mistakes_file} does not hold the Mistake Book of checkpoint {step}")


def book_state(books: dict[str, Book]) -> dict[str, list[list[Any]]]:
    """The Mistake Book as a checkpoint keeps it."""
    return {pid: [list(entry) for entry in book.entries] for pid, book in sorted(books.items()) if book.entries}


def pool_state(pools: Mapping[str, Pool]) -> dict[str, list[list[Any]]]:
    """The pools as a checkpoint keeps them: each member's id, and the step that found it."""
    return {pid: [[member.id, member.step] for member in pool] for pid, pool in sorted(pools.items()) if pool}


_FILES = {
    "rollouts": ("file", "of rollouts"),
    "evaluation": ("file", "of evaluations"),
    "checkpoints": ("checkpoint", ""),
}


def set_aside(run: RunDir, point: ResumePoint) -> tuple[Path, list[str]] | None:
    """Moves everything later than the resume point to a folder of the run, and says what, in words; None where there
    was nothing. What a crash left half-written is deleted.

    A crash in the middle leaves the rest to the next call; nothing is cut before its copy is on disk.
    """
    step = point.step
    for leftover in (run.path / "checkpoints").glob(".*"):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
    target = free_name(run.path / "set-aside", f"after-step-{step:06d}")
    moved = []
    unread: list[str] = []
    # A run that starts over evaluates before its first step again.
    lines = [(line["step"] > step or not step, line) for line in run.metrics(unread.append)]
    if unread:
        target.mkdir(parents=True)
        shutil.copy2(run.metrics_file, target / "metrics-before.jsonl")
        moved.append(_count(len(unread), "line", "of metrics that no run writes"))
    if cut := [line for late, line in lines if late]:
        target.mkdir(parents=True, exist_ok=True)
        write_rows(target / "metrics.jsonl", cut)
        moved.append(_count(len(cut), "line", "of metrics"))
    write_rows(run.metrics_file, [line for late, line in lines if not late])
    if run.mistakes_file.is_file():
        moved += _move_events(run, step, target)
    for folder, (noun, rest) in _FILES.items():
        late = [path for path in (run.path / folder).glob("step-*") if _is_late(path, point)]
        for path in late:
            (target / folder).mkdir(parents=True, exist_ok=True)
            os.replace(path, target / folder / path.name)
        if late:
            moved.append(_count(len(late), noun, rest))
            fsync_folder(run.path / folder)
    if not _info_is_whole(run) and (run.path / "run.json").exists():
        target.mkdir(parents=True, exist_ok=True)
        os.replace(run.path / "run.json", target / "run.json")
        moved.append("a broken run.json")
    if not step and (run.path / "trackers").is_dir():  # the next start is another run there
        target.mkdir(parents=True, exist_ok=True)
        os.replace(run.path / "trackers", target / "trackers")
        moved.append("what trackers have of it")
    if step:
        run.point("latest", step)  # a crash between a commit and its link leaves the old one
    else:
        (run.path / "checkpoints" / "latest").unlink(missing_ok=True)
    return (target, moved) if moved else None


def begin_anew(run: RunDir) -> str:
    """Makes room for another start of a run that never came to its first step; returns what to say of it."""
    moved = set_aside(run, ResumePoint(0, {}))
    for name in ("run.json", "preflight.json"):
        (run.path / name).unlink(missing_ok=True)
    what = f"; {', '.join(moved[1])} set aside in {moved[0]}" if moved else ""
    return f"run {run.name} had not come to its first step: it begins anew with this recipe{what}"


def _move_events(run: RunDir, step: int, target: Path) -> list[str]:
    try:
        with MistakeStore(run.mistakes_file) as store:
            events = store.move_after(step, target / "mistakes.sqlite")
        return [_count(events, "event", "of the Mistake Book")] if events else []
    except UserError:
        if step:
            raise
    target.mkdir(parents=True, exist_ok=True)
    for file in run.path.glob(f"{run.mistakes_file.name}*"):  # with its journal, which is not the next book's
        os.replace(file, target / file.name)
    return ["a broken Mistake Book"]


def _count(number: int, noun: str, rest: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''} {rest}".strip()


def _is_late(path: Path, point: ResumePoint) -> bool:
    found = re.match(r"step-(\d+)", path.name)
    if found is None:
        return False
    step = int(found[1])
    return path.name == f"step-{step:06d}" and step in point.damaged if path.is_dir() else step > point.step


def free_name(folder: Path, name: str) -> Path:
    """`name` in `folder`, with a number behind it where something lies there."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(folder / free for free in names if not (folder / free).exists())
