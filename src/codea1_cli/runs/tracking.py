"""A run in experiment trackers: each has a process of its own, which logs what the run has put on disk.

A run hands nothing over and waits for nothing: a tracker that raises, hangs or reaches nobody is given up, and the run
goes on. What a tracker was given is kept in `trackers/NAME.jsonl` of the run, so that a resume, or `codea1 runs track`,
goes on in the same place. This module is also that process: `python -m codea1_cli.runs.tracking RUN NAME SECONDS`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.durable import only_writer, write_rows
from codea1_cli.environment import PYTHON, without_secrets
from codea1_cli.errors import command, first_line
from codea1_cli.files import decode_json, kept_rows
from codea1_cli.runs import figures, metrics_fault
from codea1_cli.runs.rollout_files import some_rollouts
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import View
from codea1_cli.trackers import Opened, TrackedRun, label, make_tracker

_LOOK_S = 1.0  # how often a process looks for new lines
_TABLES = 20  # of rollouts in a run
_SAYS = "codea1 tracks: "  # begins the line in which a process says where the run is to be seen


# -- what is logged ----------------------------------------------------------------------------------------------------
def tracked_figures(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line of metrics.jsonl by their path, such as `code/reward`; those of an evaluation with its set:
    `eval/heldout/code/pass@1`."""
    told = {key: value for key, value in line.items() if key not in ("step", "time")}
    if isinstance(evaluation := told.get("eval"), dict):
        told["eval"] = {str(evaluation.get("set")): evaluation}
    return figures(told, sign="/")


Key = tuple[int, str, float]
"""What tells a line of metrics.jsonl from every other: its step, its set of an evaluation, its time."""


def _key(line: Mapping[str, Any]) -> Key:
    return line["step"], str((line.get("eval") or {}).get("set", "")), line.get("time", 0.0)


def _is_key(line: object) -> bool:
    """Whether this is what a journal has of a line; a file that was changed by hand may hold anything."""
    kinds = (int, str, int | float)
    return isinstance(line, list) and len(line) == 3 and all(map(isinstance, line, kinds))


class Journal:
    """What a tracker was given of a run: the run's id there, and the lines that were logged."""

    def __init__(self, run: RunDir, name: str) -> None:
        self.file = run.path / "trackers" / f"{label(name)}.jsonl"
        rows = kept_rows(self.file)
        self.id: str | None = next((row["id"] for row in reversed(rows) if "id" in row), None)
        self.lines: set[Key] = {tuple(row["line"]) for row in rows if _is_key(row.get("line"))}

    def begin(self, opened: Opened, kept: set[Key]) -> None:
        """The tracker is open, and holds `kept` of what it was given before."""
        self.id, self.lines = opened.id, kept
        write_rows(self.file, [{"id": opened.id, "where": opened.where}, *({"line": line} for line in sorted(kept))])

    def add(self, line: Key) -> None:
        """A line is logged."""
        self.lines.add(line)
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps({"line": line}) + "\n")


def places(run: RunDir) -> dict[str, str]:
    """Where each tracker shows a run."""
    files = sorted((run.path / "trackers").glob("*.jsonl"))
    told = {file.stem: [row["where"] for row in kept_rows(file) if "where" in row] for file in files}
    return {name: where[-1] for name, where in told.items() if where}


def log_run(run: RunDir, name: str, patience_s: float, ended: threading.Event, failed: threading.Event) -> None:
    """Logs what is not yet logged of a run, and what it writes until `ended`. Raises what the library raises; a
    library that takes more than `patience_s` for an answer ends the process."""
    while not run.info():  # nothing is settled before it is written
        if ended.wait(_LOOK_S):
            return
    tracker, journal, info = make_tracker(name), Journal(run, name), run.info()
    lines, end = _lines(run.metrics_file, 0)
    there = {_key(line) for line in lines}
    back = min((step for step, *_ in journal.lines - there), default=None)
    with _answered(patience_s):
        opened = tracker.open(_tracked_run(run, info), journal.id, back)
    journal.begin(opened, set() if opened.new else journal.lines & there)
    print(_SAYS + opened.where, flush=True)
    every, last = max(1, info.get("total_steps", 1) // _TABLES), False
    while True:
        for line in lines:
            step, key = line["step"], _key(line)
            if key in journal.lines:
                continue
            due = "eval" not in line and (step == 1 or step % every == 0)
            rows = some_rollouts(run.rollout_file(step)) if due else []
            with _answered(patience_s):
                tracker.log(step, key[2], tracked_figures(line))
                if rows:
                    tracker.table(step, rows)
            journal.add(key)
        if last:
            break
        last = ended.wait(_LOOK_S)  # before the last look at the file
        lines, end = _lines(run.metrics_file, end)
    with _answered(patience_s):
        tracker.close(failed.is_set())


def _tracked_run(run: RunDir, info: Mapping[str, Any]) -> TrackedRun:
    from codea1_cli.recipe import flat

    folder, whole = run.path / "trackers", run.within or run
    folder.mkdir(exist_ok=True)
    told = {key: value for key, value in info.items() if key not in ("problem_ids", "pair_ids")}
    config = {"recipe": run.recipe().dump(), "run": told}
    name = run.name if run.within is None else f"{whole.name}-{run.name}"
    return TrackedRun(name, folder, whole.path.parent, config, flat(config, sign="/"))


def _lines(file: Path, start: int) -> tuple[list[dict[str, Any]], int]:
    """The whole lines from an offset on, and the offset of what follows them."""
    try:
        with open(file, "rb") as stream:
            stream.seek(start)
            data = stream.read()
    except FileNotFoundError:
        return [], start
    whole = data[: data.rfind(b"\n") + 1]
    return [line for line in map(decode_json, whole.splitlines()) if metrics_fault(line) is None], start + len(whole)


@contextlib.contextmanager
def _answered(patience_s: float) -> Iterator[None]:
    """Inside the block the process ends, with its stacks on stderr, when the time is up; whatever it hangs in."""
    faulthandler.dump_traceback_later(patience_s, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def main(path: str, name: str, patience: str, within: str = "") -> None:
    """The process of one tracker. It ends with its starter, who has its stdin open and says there how the run ended."""
    os.nice(10)
    run, ended, failed = RunDir(path, RunDir(within) if within else None), threading.Event(), threading.Event()

    def listen() -> None:
        for word in sys.stdin:
            if word.strip() == "failed":
                failed.set()
            ended.set()
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    try:
        (run.path / "trackers").mkdir(exist_ok=True)
        with only_writer(run.path / "trackers" / label(name)):
            log_run(run, name, float(patience), ended, failed)
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {first_line(error)}", file=sys.stderr, flush=True)
        os._exit(3)  # a library may have threads that never end
    faulthandler.dump_traceback_later(float(patience), exit=True)  # of what libraries do when Python ends


# -- who starts it -----------------------------------------------------------------------------------------------------
def way_out(run: RunDir, name: str) -> str:
    """How a tracker gets what it has missed of a run."""
    typed = [str(run.path)] if run.within else run.options[1:]
    return f"`{command('runs', 'track', *typed, '--tracker', name)}` logs what is missing"


class _Follower(threading.Thread):
    """Reads what a tracker's process says, into its log, until it ends."""

    def __init__(self, run: RunDir, name: str, view: View, patience_s: float) -> None:
        super().__init__(daemon=True)
        self.tracker, self.view, self.patience_s = name, view, patience_s
        self.way_out, self.log = way_out(run, name), run.logs / f"tracker-{label(name)}.log"
        self.why: str | None = None  # it is given up
        within = [str(run.within.path)] if run.within else []
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(run.path), name, str(patience_s), *within],
            env=os.environ | PYTHON,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the run
        )
        self.start()

    def run(self) -> None:
        last = ""
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            line = without_secrets(raw.decode(errors="replace"))
            with contextlib.suppress(OSError), open(self.log, "a", encoding="utf-8") as log:
                log.write(line)
            if line.startswith(_SAYS):
                self._say("note", f"tracker {self.tracker}: {line.removeprefix(_SAYS).strip()}")
            elif line.startswith("Timeout ("):
                last = f"no answer within {self.patience_s:g} s"
            elif not last.startswith("no answer"):
                last = line.strip() or last
        if (code := self.process.wait()) and self.why is None:
            self.give_up(last.rstrip(".") if code > 0 and last else f"its process ended with {code}")

    def give_up(self, why: str) -> None:
        """Says once that nothing more is logged, and why; ends what is left of it."""
        self.why = why
        self._say("warning", f"tracker {self.tracker} is given up: {why}; {self.way_out}")
        self.kill()

    def _say(self, kind: str, text: str) -> None:
        with contextlib.suppress(Exception):  # of a terminal that is gone
            self.view.event({"kind": kind, "text": text})

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@contextlib.contextmanager
def tracked(
    run: RunDir, names: Sequence[str], view: View, patience_s: float, wait_s: float | None = None
) -> Iterator[list[_Follower]]:
    """Inside the block, what the run writes is logged by each of these trackers; at its end they get `wait_s`
    seconds for what is left; a fifth of `patience_s`, the longest time for an answer, when it is None.

    `view` gets a `note` of where each shows the run, and one `warning` of each that is given up.
    """
    run.logs.mkdir(exist_ok=True)
    followers, word = list[_Follower](), "failed"
    for name in names:
        try:
            followers.append(_Follower(run, name, view, patience_s))
        except OSError as error:  # no room for a process
            view.event({"kind": "warning", "text": f"tracker {name} does not start: {error}; {way_out(run, name)}"})
    try:
        yield followers
        word = "finished"
    except KeyboardInterrupt:  # at once: the run that it came to may be in any state
        for one in followers:
            one.why = "interrupted"
            one.kill()
        raise
    finally:
        for one in followers:
            one.tell(word)
        deadline = time.monotonic() + (patience_s / 5 if wait_s is None else wait_s)
        for one in followers:
            one.join(max(0.0, deadline - time.monotonic()))
            if one.process.poll() is None:
                one.give_up("it does not come to an end")


if __name__ == "__main__":
    main(*sys.argv[1:])
