"""How far a run has come, read from its folder alone."""

import contextlib
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from codea1_cli.errors import UserError
from codea1_cli.runs.run_dir import RunDir

State = Literal["running", "finished", "failed", "interrupted", "stopped", "stopped before step 1"]


@dataclass(frozen=True)
class RunSummary:
    """One run of the list. `step` is the newest step in metrics.jsonl, `total` the run's length where it is known."""

    name: str
    path: str
    recipe: str
    step: int
    total: int | None
    state: State
    started: str | None
    bytes: int
    error: str | None


@dataclass(frozen=True)
class Outcome:
    """Where a run has come to: `total` is its length, `last` where this call of the command was to stop. An interrupted
    run is saved and can be resumed. `summary` holds the closing figures."""

    step: int
    total: int
    last: int
    interrupted: bool
    summary: dict[str, Any]

    @property
    def state(self) -> Literal["finished", "interrupted", "stopped"]:
        """As `runs list` calls it; `stopped` is short of the whole length because --max-steps said so."""
        if self.step >= self.total:
            return "finished"
        return "interrupted" if self.interrupted else "stopped"


class View(Protocol):
    """Who shows a run: the terminal, or nobody."""

    def phase(self, text: str) -> None: ...

    def event(self, event: dict[str, Any]) -> None: ...


def summarise(run: RunDir) -> RunSummary:
    """The summary of a run; a folder with a broken recipe or run.json is listed all the same."""
    info = _info(run)
    step = max((line["step"] for line in run.metrics() if "eval" not in line and "step" in line), default=0)
    total = info.get("total_steps")
    return RunSummary(
        name=run.name,
        path=str(run.path),
        recipe=_recipe_name(run),
        step=step,
        total=total,
        state=_state(run, info, step, total),
        started=_started(run, info),
        bytes=folder_bytes(run.path),
        error=info.get("error"),
    )


def _info(run: RunDir) -> dict[str, Any]:
    try:
        return run.info()
    except UserError:
        return {"error": "run.json is broken"}


def _state(run: RunDir, info: dict[str, Any], step: int, total: int | None) -> State:
    """The lock outranks everything: it alone tells a run in progress from one that was killed."""
    if run.locked_by() is not None:
        return "running"
    if info.get("error"):
        return "failed"
    if total and run.latest_step() >= total:
        return "finished"
    if not step and not run.latest_step():  # nothing on disk tells a failure of the start from an interrupt
        return "stopped before step 1"
    return "stopped" if run.latest_step() >= info.get("stop", step + 1) else "interrupted"


def _recipe_name(run: RunDir) -> str:
    import yaml

    try:
        content = yaml.safe_load(run.recipe_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return "?"
    return str(content.get("name", "?")) if isinstance(content, dict) else "?"


def _started(run: RunDir, info: dict[str, Any]) -> str | None:
    if info.get("started"):
        return str(info["started"])
    with contextlib.suppress(OSError):
        return datetime.fromtimestamp(run.recipe_file.stat().st_mtime).astimezone().isoformat(timespec="seconds")
    return None


def last_metrics(run: RunDir, count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The last `count` step lines, and all evaluation lines, of metrics.jsonl."""
    lines = run.metrics()
    steps = [line for line in lines if "eval" not in line]
    return steps[len(steps) - min(count, len(steps)) :], [line for line in lines if "eval" in line]


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
