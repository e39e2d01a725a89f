"""Experiment trackers: wandb, trackio, TensorBoard and MLflow behind one small interface.

A library is imported where its tracker is opened, in a process of its own (`runs.tracking`): it may raise, hang or wait
for a network.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from codea1_cli.environment import PYTHON, without_secrets
from codea1_cli.errors import EnvironmentFault

_PROJECT = "codea1"
_MADE_S = 120.0  # a class outside the project takes longer only when it hangs


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run. folder: inside the run, for the tracker's own files. root: the folder of runs.
    config: what the run was made with, `recipe` and `run` (run.json); `params` has the same without nesting."""

    name: str
    folder: Path
    root: Path
    config: Mapping[str, Any]
    params: Mapping[str, Any]


class Opened(NamedTuple):
    """A run in a tracker: its id there, where it is to be seen, and whether it holds nothing yet."""

    id: str
    where: str
    new: bool


class Tracker:
    """One run in a tracker."""

    def open(self, run: TrackedRun, id: str | None, back: int | None) -> Opened:
        """Begins a run there, or goes on with the one of that id.

        back: the first step that was logged and holds no more, because a resume went back behind it.
        """
        raise NotImplementedError

    def log(self, step: int, at: float, figures: Mapping[str, float]) -> None:
        """Logs figures of a step, by names such as `code/reward`; `at` in seconds since 1970."""
        raise NotImplementedError

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Logs rollouts of a step; every row has the same keys."""

    def close(self, failed: bool) -> None:
        """Sends what is left. `failed`: the run ended with an error."""


class Wandb(Tracker):
    """Without a key, and with WANDB_MODE=offline, the run is kept in `trackers/wandb/`, for `wandb sync`."""

    def open(self, run: TrackedRun, id: str | None, back: int | None) -> Opened:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        # `step` is a figure like the others: wandb's own count only ever grows, and a resume goes back.
        keyless = not os.environ.get("WANDB_MODE") and not wandb.login(prompt=False)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or _PROJECT,
            id=id or secrets.token_hex(4),
            name=run.name,
            dir=str(run.folder),
            config=dict(run.config),
            resume="allow",
            allow_val_change=True,
            mode="offline" if keyless else None,
            settings=wandb.Settings(console="off", disable_git=True, save_code=False),
        )
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")
        return Opened(self.run.id, str(self.run.settings.sync_dir if self.run.offline else self.run.url), id is None)

    def log(self, step: int, at: float, figures: Mapping[str, float]) -> None:
        self.run.log({"step": step, **figures})

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        import wandb

        table = wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
        self.run.log({"step": step, "rollouts": table})

    def close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))


class Trackio(Tracker):
    """On this machine in trackio's own folder (TRACKIO_DIR), or where TRACKIO_SPACE_ID or TRACKIO_SERVER_URL says. It
    cannot forget a step, only a run: one that a resume went back in is logged again from the start."""

    def open(self, run: TrackedRun, id: str | None, back: int | None) -> Opened:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT") or _PROJECT
        try:
            there = list(trackio.Api().runs(project))
        except ValueError:  # no such project yet
            there = []
        if id is not None and back is not None:
            old = [run for run in there if run.name == id and run.delete()]
            there, id = [run for run in there if run not in old], None if old else id
        names = chain([run.name], (f"{run.name}-{number}" for number in count(2)))
        name = id or next(name for name in names if name not in {run.name for run in there})
        how: dict[str, Any] = {"config": dict(run.config), "resume": "must" if id else "never", "embed": False}
        self.run = trackio.init(project=project, name=name, **how)
        return Opened(name, self.run.url or f"trackio show --project {project}", id is None)

    def log(self, step: int, at: float, figures: Mapping[str, float]) -> None:
        self.run.log(dict(figures), step=step)

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        import trackio

        table = trackio.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
        self.run.log({"rollouts": table}, step=step)

    def close(self, failed: bool) -> None:
        self.run.finish()


class TensorBoard(Tracker):
    """Event files in `trackers/tensorboard/` of the run. TensorBoard itself drops the steps from `back` on."""

    def open(self, run: TrackedRun, id: str | None, back: int | None) -> Opened:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = run.folder / "tensorboard"
        self.writer, self.event = EventFileWriter(str(folder), flush_secs=5), Event
        if back is not None:
            self.writer.add_event(Event(step=back, session_log=SessionLog(status=SessionLog.START)))
        self._text("config", 0, indented(json.dumps(run.config, indent=2)))
        return Opened("tensorboard", str(folder), id is None)

    def log(self, step: int, at: float, figures: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self.writer.add_event(self.event(wall_time=at, step=step, summary=Summary(value=values)))

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        self._text("rollouts", step, markdown(rows))

    def _text(self, name: str, step: int, text: str) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self.writer.add_event(self.event(wall_time=time.time(), step=step, summary=text_pb(name, text)))

    def close(self, failed: bool) -> None:
        self.writer.close()


class MLflow(Tracker):
    """In the store that MLFLOW_TRACKING_URI names, else in `mlflow.db` beside the runs."""

    _AT_ONCE = 100  # of what one call may carry

    def open(self, run: TrackedRun, id: str | None, back: int | None) -> Opened:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self.metric, local = Metric, f"sqlite:///{run.root}/mlflow.db"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or local
        self.client, name = MlflowClient(uri), os.environ.get("MLFLOW_EXPERIMENT_NAME") or _PROJECT
        found = self.client.get_experiment_by_name(name)
        place = {"artifact_location": str(run.root / "mlartifacts")} if uri == local else {}
        experiment = found.experiment_id if found else self.client.create_experiment(name, **place)
        self.id = id or self.client.create_run(experiment, run_name=run.name).info.run_id
        self.client.update_run(self.id, status="RUNNING")
        known = self.client.get_run(self.id).data.params  # a parameter is said once; config.json is as it is now
        params = {_allowed(key): str(value)[:6000] for key, value in run.params.items()}
        new = [Param(key, value) for key, value in params.items() if key not in known]
        for start in range(0, len(new), self._AT_ONCE):
            self.client.log_batch(self.id, params=new[start : start + self._AT_ONCE])
        self.client.log_text(self.id, json.dumps(run.config, indent=2), "config.json")
        return Opened(self.id, f"run {self.id} of experiment {name} in {without_secrets(uri)}", id is None)

    def log(self, step: int, at: float, figures: Mapping[str, float]) -> None:
        metrics = [self.metric(_allowed(name), value, int(1000 * at), step) for name, value in figures.items()]
        for start in range(0, len(metrics), self._AT_ONCE):
            self.client.log_batch(self.id, metrics=metrics[start : start + self._AT_ONCE])

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        self.client.log_text(self.id, markdown(rows), f"rollouts/step-{step:06d}.md")

    def close(self, failed: bool) -> None:
        self.client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


def _allowed(name: str) -> str:
    """A name with those characters alone that MLflow takes: `pass_1` for `pass@1`."""
    return re.sub(r"[^\w./ :-]", "_", name, flags=re.ASCII)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as text for a person: the first key and numbers on a line, other texts below it, each as it is."""
    parts = []
    for row in rows:
        texts = {key: value for key, value in list(row.items())[1:] if isinstance(value, str)}
        parts.append("  ".join(f"**{key}** {value}" for key, value in row.items() if key not in texts))
        parts += [f"**{key}**\n\n{indented(value)}" for key, value in texts.items()]
    return "\n\n".join(parts)


def indented(text: str) -> str:
    """A text that markdown shows as it is."""
    return "\n".join(f"    {line}" for line in text.splitlines())


# -- by name -----------------------------------------------------------------------------------------------------------
TRACKERS: dict[str, type[Tracker]] = {"wandb": Wandb, "trackio": Trackio, "tensorboard": TensorBoard, "mlflow": MLflow}
"""Each is named as its library's package, and as the extra that installs it."""


def label(name: str) -> str:
    """What a tracker's files are called: its name; the class of a `module:Class`."""
    return name.rpartition(":")[2]


def make_tracker(name: str) -> Tracker:
    """A tracker by its name, or by `module:Class` for one that lies outside the project; raises whatever that does."""
    module, _, attribute = name.partition(":")
    found = TRACKERS.get(name) or getattr(importlib.import_module(module), attribute)
    if not (isinstance(found, type) and issubclass(found, Tracker)):
        raise TypeError(f"{name} is not a subclass of codea1_cli.trackers.Tracker")
    return found()


def _fault(name: str) -> EnvironmentFault | None:
    """Why a tracker cannot be used here. A class outside the project is made once for that, in a process of its own."""
    if name in TRACKERS:
        store = name == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI")  # on this machine
        specs = [importlib.util.find_spec(module) for module in (name, *(("sqlalchemy", "alembic") if store else ()))]
        if all(spec is not None and spec.origin is not None for spec in specs):  # a mere folder has no origin
            return None
        why, hint = "is not installed here", f"`uv sync --extra {name}`, or `pip install 'codea1[{name}]'`"
    else:
        code = f"import os; from {__name__} import make_tracker as make; make({name!r}); os._exit(0)"
        given: dict[str, Any] = {"env": os.environ | PYTHON, "stdin": subprocess.DEVNULL, "capture_output": True}
        try:
            done = subprocess.run([sys.executable, "-P", "-c", code], timeout=_MADE_S, **given)
            if done.returncode == 0:
                return None
            said = done.stderr.decode(errors="replace").strip() or f"its process ended with {done.returncode}"
        except subprocess.TimeoutExpired:
            said = f"no answer within {_MADE_S:g} s"
        why = f"does not load here: {without_secrets(said.splitlines()[-1].strip())}"
        hint = "PYTHONPATH says where modules are looked for"
    return EnvironmentFault(f"tracker {name} {why}", hint=f"{hint}; tracker=[] goes without")


def check_trackers(names: Sequence[str], told: Callable[[str], None] | None = None) -> None:
    """Raises EnvironmentFault where a tracker cannot be used here; with `told` it is told of instead."""
    for fault in filter(None, map(_fault, names)):
        if told is None:
            raise fault
        told(f"{fault.what}: {fault.hint}")


def _names(names: list[str]) -> list[str]:
    for name in names:
        if name not in TRACKERS and ":" not in name:
            raise ValueError(f"unknown tracker {name!r}; there are {', '.join(TRACKERS)}, or module:Class")
    if len({*map(label, names)}) < len(names):
        raise ValueError(f"a tracker is named twice: {', '.join(names)}")
    return names


Trackers = Annotated[
    list[str],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else [] if value is None else value),
    AfterValidator(_names),
    Field(description=f"where its figures are logged too: {', '.join(TRACKERS)}, any of them"),
]
"""The recipe's key `tracker`."""
