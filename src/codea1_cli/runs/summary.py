"""How far a run has come and what it was measured at, read from its folder alone."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from codea1_cli.errors import UserError
from codea1_cli.evals.heldout import NEAR_MISSES, PARTS, TARGETS
from codea1_cli.evals.statistics import Change, changes
from codea1_cli.files import read_json
from codea1_cli.problems.row_files import Row
from codea1_cli.runs.checkpoints import folder_bytes
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
class RunOutcome:
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
        return "finished" if self.step >= self.total else "interrupted" if self.interrupted else "stopped"


class View(Protocol):
    """Who shows a run: the terminal, or nobody."""

    def phase(self, text: str) -> None:
        """What the run does now, until the next call."""

    def event(self, event: dict[str, Any]) -> None:
        """Something that happened, as the arena tells it."""


def summarise(run: RunDir) -> RunSummary:
    """The summary of a run; a folder with a broken recipe or run.json is listed all the same."""
    info = known_info(run)
    step = max((line["step"] for line in run.metrics() if "eval" not in line), default=0)
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


def known_info(run: RunDir) -> dict[str, Any]:
    """run.json; of a broken one what is wrong with it, as `error`."""
    try:
        return run.info()
    except UserError as error:
        return {"error": error.what}


def _state(run: RunDir, info: dict[str, Any], step: int, total: int | None) -> State:
    """The lock outranks everything: it alone tells a run in progress from one that was killed."""
    if run.locked_by() is not None:
        return "running"
    if info.get("error"):
        return "failed"
    saved = max(run.latest_step(), info.get("stop") or 0)  # where a run without checkpoints has stopped
    if total and saved >= total:
        return "finished"
    if not step and not saved:  # nothing on disk tells a failure of the start from an interrupt
        return "stopped before step 1"
    return "stopped" if saved >= info.get("stop", step + 1) else "interrupted"


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


def last_metrics(run: RunDir, count: int, told: Callable[[str], None] | None = None) -> tuple[list[Any], list[Any]]:
    """The last `count` step lines, and all evaluation lines, of metrics.jsonl, read as `RunDir.metrics` does."""
    lines = run.metrics(told)
    steps = [line for line in lines if "eval" not in line]
    return steps[len(steps) - min(count, len(steps)) :], [line for line in lines if "eval" in line]


# -- what it was measured at -------------------------------------------------------------------------------------------
Parts = dict[str, tuple[float, float]]
"""By problem, what it adds to a figure's numerator and to its denominator."""


def _scored(row: Row) -> int:
    return len(row["passed"]) - row["unscored"]


FIGURES: dict[str, tuple[str, Callable[[Row], float], Callable[[Row], float]]] = {
    "pass@1": ("code", lambda row: sum(row["passed"]) / max(_scored(row), 1), lambda row: _scored(row) > 0),
    "pass@n": ("code", lambda row: any(row["passed"]), lambda row: _scored(row) > 0),
    "exposed": ("test", lambda row: row["exposed"], lambda row: 1),
    "near-miss exposed": ("near-miss", lambda row: row["exposed"], lambda row: 1),
    "soundly exposed": ("test", lambda row: row["exposed"] and not row["misstated"], lambda row: 1),
    "near-miss soundly exposed": ("near-miss", lambda row: row["exposed"] and not row["misstated"], lambda row: 1),
    "false alarm": ("test", lambda row: row["misstated"] > 0, lambda row: 1),
    "suite validity": ("test", lambda row: row["validity"], lambda row: 1),
    "stated rightly": ("test", lambda row: row["correct"], lambda row: row["valid"]),
    "asserts per suite": ("test", lambda row: row["asserts"], lambda row: 1),
}
"""The held-out figures: the evaluation's part, and what one of its rows adds to numerator and denominator."""


@dataclass(frozen=True)
class Measured:
    """One evaluation set of a run at one step: its problems and the hash of their file, where it is known; figures by
    name; by part the wrong programs that suites were written against, where the run chose them."""

    problems: frozenset[str]
    figures: dict[str, Parts]
    source: str = ""
    programs: dict[str, str] = field(default_factory=dict)


def measured(run: RunDir, told: Callable[[str], None] | None = None) -> dict[str, dict[int, Measured]]:
    """What evaluations of a run gave, by set (`heldout`, `humaneval`, ...) and step, as far as there are rows of
    problems. What is broken is told of and left out where there is `told`, else raised as UserError."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    sets: dict[str, dict[int, Measured]] = {}
    for file in sorted((run.path / "evaluation").glob("step-*.json")):
        _, step, part = file.stem.split("-", 2)
        if step.isdigit() and not part.endswith("-texts"):
            kind = "heldout" if part in PARTS else part
            with _telling(told, str(file)):
                found.setdefault(kind, {}).setdefault(int(step), {})[part] = read_json(file, object)
    for kind, at in found.items():
        for when, parts in at.items():
            with _telling(told, f"{run.path}: evaluation of {kind} at step {when}"):
                sets.setdefault(kind, {})[when] = _heldout(run, parts) if kind == "heldout" else _benchmark(parts[kind])
    return sets


@contextlib.contextmanager
def _telling(told: Callable[[str], None] | None, what: str) -> Iterator[None]:
    try:
        yield
    except (UserError, LookupError, TypeError, ValueError, AttributeError) as fault:
        shape = UserError(f"{what} has other rows than an evaluation writes", hint="restore its files, or remove them")
        error = fault if isinstance(fault, UserError) else shape
        if told is None:
            raise error from None
        told(error.what)


def _heldout(run: RunDir, parts: Mapping[str, Sequence[Row]]) -> Measured:
    figures: dict[str, Parts] = {}
    n = max((len(row["passed"]) for row in parts.get("code", ())), default=0)
    for name, (part, top, bottom) in FIGURES.items():
        own: Parts = {}
        with contextlib.suppress(KeyError):  # rows of an earlier version lack some
            for row in parts.get(part, ()):
                if part == "code" or not row["unscored"]:
                    above, below = own.get(row["problem_id"], (0.0, 0.0))
                    own[row["problem_id"]] = above + float(top(row)), below + float(bottom(row))
        if own:
            figures[f"pass@{n}" if name == "pass@n" else name] = own
    files = {part: run.path / "evaluation" / name for part, name in (("test", TARGETS), ("near-miss", NEAR_MISSES))}
    programs = {part: file.read_text(encoding="utf-8") for part, file in files.items() if file.is_file()}
    problems = frozenset(row["problem_id"] for rows in parts.values() for row in rows)
    return Measured(problems, figures, known_info(run).get("data", {}).get("heldout_sha256") or "", programs)


def _benchmark(rows: Mapping[str, Row]) -> Measured:
    """Of programs: samples that pass each column, per task; of suites: each function's share of each figure."""
    figures: dict[str, Parts] = {}
    for task, row in rows.items():
        shares = {name: value for name, value in row.items() if name not in ("n", "unscored", "not_run", "timeouts")}
        for name, value in shares.items():
            of = (name, value) if "n" not in row else (f"{name} pass@1", value / row["n"] if row["n"] else None)
            figures.setdefault(of[0], {})[task] = (0.0, 0.0) if of[1] is None else (float(of[1]), 1.0)
    return Measured(frozenset(rows), figures)


def compared(
    before: Sequence[Measured], after: Sequence[Measured], what: str, *, by_seed: bool = True
) -> dict[str, Change]:
    """The figures that two sides of a set have in common, a `Measured` per seed each, and their differences
    (`statistics.changes`). Figures of suites against other wrong programs are left out.

    Raises:
        UserError: they were measured on different problems; `what` names the set and the sides.
    """
    import numpy as np

    first, sides = before[0], [*before, *after]
    for side in sides:
        if (side.problems, side.source) != (first.problems, first.source):
            apart, every = len(side.problems ^ first.problems), len(side.problems | first.problems)
            known = bool(side.source and first.source)
            files = "their files differ" if known else "run.json of one does not tell their file"
            told = f"{apart} of {every} are in one only" if apart else files
            raise UserError(
                f"{what}: measured on different problems, {told}",
                hint="compare runs with the same data.heldout, eval.limit and eval.benchmark_limit"
                if apart or known
                else "restore its run.json",
            )
    pairs = zip(before, after, strict=False) if by_seed else ((a, b) for a in before for b in after)
    other = {part for a, b in pairs for part in a.programs | b.programs if a.programs.get(part) != b.programs.get(part)}
    names = [
        name
        for name in first.figures
        if all(name in side.figures for side in sides) and FIGURES.get(name, ("code",))[0] not in other
    ]
    order = sorted(first.problems)
    cells = [
        np.array([[[side.figures[name].get(pid, (0.0, 0.0)) for name in names] for pid in order] for side in half])
        for half in (before, after)
    ]
    return dict(zip(names, changes(*cells, by_seed=by_seed), strict=True)) if names else {}


Side = Literal["before", "after"]


@dataclass(frozen=True)
class Arm:
    """A run, or runs over seeds that count as one: in the order of their seeds, and what each was measured at."""

    name: str
    runs: list[RunDir]
    seeds: list[int]
    sets: list[dict[str, dict[int, Measured]]]

    def steps(self, kind: str, side: Side) -> list[int]:
        """In each run the step of a set's first evaluation, or of its last. `before` is empty where a run's only one is
        of its end, `after` where a run has none after its first step."""
        found = [run.get(kind, {}) for run in self.sets]
        if side == "before":
            return [min(steps) for steps in found] if all(len(steps) > 1 or 0 in steps for steps in found) else []
        return [max(steps) for steps in found] if all(steps and max(steps) for steps in found) else []

    def at(self, kind: str, side: Side) -> list[Measured]:
        """What a set gave in each run at these steps."""
        steps = self.steps(kind, side)
        return [run[kind][step] for run, step in zip(self.sets, steps, strict=True)] if steps else []

    def unmeasured(self, kind: str) -> list[str]:
        """The runs, by name, without figures of a set after their first step."""
        none = [run.name for run, sets in zip(self.runs, self.sets, strict=True) if not any(sets.get(kind, {}))]
        return [self.name if len(self.runs) == 1 else f"{name} of {self.name}" for name in none]


def seed_of(run: RunDir) -> int:
    """A run's seed. One that has not come to its first step, or failed before it, has it in its recipe alone."""
    info = run.info()
    return info["seed"] if "seed" in info else run.recipe().seed
