"""The run directory: layout, lock, commit protocol, resume point.

A checkpoint exists only as a whole: both policies and the arena lie in `checkpoints/step-NNNNNN/` beside a file
`COMMITTED` that is written last. Everything is written to a sibling, flushed to disk and renamed into place, so that a
crash at any moment leaves the previous checkpoint untouched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.durable import check_folder, fsync_folder, fsync_tree, held_by, locked_folder, write_atomic
from codea1_cli.errors import UserError, command, did_you_mean
from codea1_cli.files import user_path
from codea1_cli.methods.registry import method_of
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs import Best, read_info, read_metrics, read_part
from codea1_cli.runs.checkpoints import COMMITTED, commit_note, prunable


def runs_root(root: str | Path | None = None) -> Path:
    """Where runs lie: the argument, else CODEA1_RUNS, else ./runs.

    Raises:
        UserError: a file stands there.
    """
    found = Path(root or os.environ.get("CODEA1_RUNS") or "runs")
    check_folder(found, "--runs" if root else "CODEA1_RUNS" if os.environ.get("CODEA1_RUNS") else "")
    return found


def runs_option(root: Path) -> list[str]:
    """What names a folder of runs on a command line typed in this place: nothing where it is found anyway."""
    return [] if root.absolute() == runs_root().absolute() else ["--runs", str(root)]


class RunDir:
    """One run's folder. Reading needs no lock; writing happens in the process that holds `locked()`."""

    def __init__(self, path: str | Path, within: RunDir | None = None) -> None:
        """`within`: the run that this one is the warm-up of."""
        self.path, self.within = Path(path).absolute(), within
        self.lock_file: int | None = None  # the open lock, while this process holds it

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def options(self) -> list[str]:
        """What names this run, or the one that it warms up, on a command line typed in this place, word by word."""
        if self.within is not None:
            return self.within.options
        return ["--run", self.name, *runs_option(self.path.parent)]

    @property
    def recipe_file(self) -> Path:
        """The recipe with every default written out."""
        return self.path / "recipe.yaml"

    @property
    def metrics_file(self) -> Path:
        """metrics.jsonl: one line per step and one per evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def mistakes_file(self) -> Path:
        """The Mistake Book (`mistakes.MistakeStore`)."""
        return self.path / "mistakes.sqlite"

    @property
    def logs(self) -> Path:
        """The folder with one log per rank."""
        return self.path / "logs"

    @property
    def phases_file(self) -> Path:
        """What each rank is doing: by its label phase, step and the time that it began."""
        return self.path / "phases.json"

    @property
    def warmup(self) -> RunDir:
        """The run that warms this one's policies up, where the recipe asks for one (`engine.sft`)."""
        return RunDir(self.path / "warmup", within=self)

    @property
    def pending(self) -> Path:
        """Where a checkpoint is put together from what the ranks wrote, before it is committed."""
        return self.path / "checkpoints" / ".pending"

    def rollout_file(self, step: int) -> Path:
        """The rollouts of a step (`runs.rollout_files`)."""
        return self.path / "rollouts" / f"step-{step:06d}.parquet"

    def checkpoint(self, step: int) -> Path:
        """The folder of a step's checkpoint; whole only with COMMITTED in it."""
        return self.path / "checkpoints" / f"step-{step:06d}"

    # -- reading ---------------------------------------------------------------------------------------------------
    def exists(self) -> bool:
        """Whether a run lies here."""
        return self.recipe_file.is_file()

    def begun(self) -> bool:
        """Whether a step was done or saved: such a run is gone on with, one without may also start anew."""
        return any("eval" not in line for line in self.metrics()) or any(self.path.glob("checkpoints/step-*"))

    def info(self) -> dict[str, Any]:
        """run.json; an empty mapping for a run that never started. Raises UserError where it is broken."""
        return read_info(self.path / "run.json")

    def recipe(self) -> Recipe:
        """The recipe of recipe.yaml; raises UserError where that is broken."""
        from codea1_cli.recipe.files import load_recipe

        recipe = load_recipe(str(self.recipe_file), of_run=True)
        recipe._warmed = self.warmed(method_of(recipe).policies if recipe.warmup is not None else ())
        return recipe

    def warmed(self, policies: Collection[str]) -> dict[str, str]:
        """The models that the warm-up has made of these policies; all or none."""
        folders = {policy: self.warmup.path / "model" / policy for policy in policies}
        return {policy: str(f) for policy, f in folders.items()} if all(f.is_dir() for f in folders.values()) else {}

    def problems(self) -> dict[str, Problem]:
        """The run's training problems by id."""
        from codea1_cli.recipe.resources import training_problems

        return {problem.id: problem for problem in training_problems(self.recipe())}

    def committed_steps(self) -> list[int]:
        """Steps with a whole checkpoint, oldest first."""
        folder = self.path / "checkpoints"
        if not folder.is_dir():
            return []
        marks = (path.parent.name.removeprefix("step-") for path in folder.glob(f"step-*/{COMMITTED}"))
        return sorted(int(step) for step in marks if step.isdigit())  # somebody may keep a copy beside one

    def latest_step(self) -> int:
        """The newest committed step; 0 when there is none."""
        return (self.committed_steps() or [0])[-1]

    def best(self, told: Callable[[str], None] | None = None) -> dict[str, Any] | None:
        """best.json: `step`, `figure` and `value` of the best checkpoint, read by `read_part`; None: none is marked."""
        found = read_part(self.path / "best.json", Best, told)
        return found.model_dump() if found else None

    def prunable(self, keep: int, spared: Collection[int] = (), steps: Sequence[int] | None = None) -> list[int]:
        """Which of `steps`, the committed ones when it is None, pruning would delete."""
        best, steps = self.best(), self.committed_steps() if steps is None else steps
        return prunable(steps, keep, {*spared, *([best["step"]] if best else [])})

    def metrics(self, told: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that a run wrote; others are `told` of (`read_metrics`)."""
        return read_metrics(self.metrics_file, told)

    def locked_by(self) -> int | None:
        """The process id that is writing here, or None."""
        return held_by(self.path / "lock")

    # -- writing ---------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def locked(self, wait: bool = False) -> Iterator[None]:
        """Holds the run for one writer, waiting for another where asked.

        Raises:
            UserError: another process is training here.
            EnvironmentFault: the folder cannot be written.
        """

        def taken(holder: str) -> UserError:
            return UserError(
                f"run {self.name} is being trained by process {holder}",
                hint="wait for it (with --wait), stop it, or choose another name with --run",
            )

        hint = "check its permissions; new runs may lie elsewhere: --runs DIR"
        with locked_folder(self.path, f"the run directory {self.path}", hint, taken, wait) as file:
            self.lock_file = file.fileno()
            try:
                yield
            finally:
                self.lock_file = None

    def note(self, **facts: Any) -> None:
        """Keeps facts in run.json, where there is one; None clears one."""
        info = self.info()
        noted = {key: value for key, value in (info | facts).items() if key not in facts or value is not None}
        if info and noted != info:
            write_atomic(self.path / "run.json", json.dumps(noted, indent=2) + "\n")

    def create(self) -> None:
        """Makes the folder and those inside it."""
        for folder in ("checkpoints", "rollouts", "logs"):
            (self.path / folder).mkdir(parents=True, exist_ok=True)

    def keep_data_card(self, data: Path) -> None:
        """Copies the data card of a folder that prepare-data made, as it is when the run begins."""
        for name in ("README.md", "card.json") if (data / "card.json").is_file() else ():
            (self.path / "data").mkdir(exist_ok=True)
            write_atomic(self.path / "data" / name, (data / name).read_text(encoding="utf-8"))

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Appends one line and flushes it to disk."""
        with open(self.metrics_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def commit(self, step: int) -> None:
        """Makes `.pending/{code,test,arena}` the whole checkpoint of `step` and points `latest` at it."""
        target = self.checkpoint(step)
        staged = target.with_name(f".step-{step:06d}.tmp")
        shutil.rmtree(staged, ignore_errors=True)
        os.replace(self.pending, staged)
        fsync_tree(staged)
        write_atomic(staged / COMMITTED, commit_note(staged, step))
        os.replace(staged, target)
        fsync_folder(target.parent)
        self.point("latest", step)

    def point(self, name: str, step: int) -> None:
        """Has the link `latest` or `best` lead to a checkpoint."""
        target = self.checkpoint(step)
        link = target.parent / f".{name}.tmp"
        link.unlink(missing_ok=True)
        link.symlink_to(target.name)
        os.replace(link, target.parent / name)
        fsync_folder(target.parent)

    def prune(self, keep: int, spared: Collection[int] = ()) -> list[int]:
        """Deletes all but the newest `keep` whole checkpoints (at least one stays), the best and the spared ones, and
        returns the steps deleted."""
        old = self.prunable(keep, spared)
        for step in old:
            self.delete_checkpoint(step)
        return old

    def delete_checkpoint(self, step: int) -> None:
        """It is renamed first, so that a half-deleted folder is never taken for a checkpoint."""
        folder = self.checkpoint(step)
        doomed = folder.with_name(f".{folder.name}.deleted")
        shutil.rmtree(doomed, ignore_errors=True)
        os.replace(folder, doomed)
        fsync_folder(folder.parent)
        shutil.rmtree(doomed)


def list_runs(root: Path) -> list[RunDir]:
    """The runs below `root`, newest first."""
    if not root.is_dir():
        return []
    runs = [RunDir(path) for path in root.iterdir() if (path / "recipe.yaml").is_file()]
    return sorted(runs, key=lambda run: (run.path / "recipe.yaml").stat().st_mtime_ns, reverse=True)


def named_run(name: str, root: Path) -> RunDir | None:
    """The run of that name, or at that path; None where there is none."""
    return next((run for run in map(RunDir, run_places(name, root)) if run.exists()), None)


def run_places(name: str, root: Path) -> list[Path]:
    """Where what is named may lie: below `root`, or at that path. `.` and `..` are of the current folder alone."""
    return [*([] if name.split("/")[0] in {".", ".."} else [root / name]), user_path(name)]


def find_run(name: str | None, root: Path) -> RunDir:
    """The run of that name or path; the newest one without a name.

    Raises:
        UserError: there is none; near names are suggested.
    """
    runs = list_runs(root)
    if name is None:
        if not runs:
            raise UserError(
                f"there is no run in {root}",
                hint=f"`{command('train', '--recipe', 'tiny', *runs_option(root))}` starts one; "
                "--runs names another folder",
            )
        return runs[0]
    if (found := named_run(name, root)) is not None:
        return found
    listed = command("runs", "list", *runs_option(root))
    raise UserError(
        f"the folder {name} is no run: there is no recipe.yaml in it"
        if any(place.is_dir() for place in run_places(name, root))
        else f"no run named {name!r} in {root}",
        hint=did_you_mean(name, [run.name for run in runs]) or f"`{listed}` shows what there is",
    )
