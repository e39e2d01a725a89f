"""`codea1 runs watch` and `runs track`: a run, also one in progress, seen and logged through its files alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption
from codea1_cli.cli.shell import RunArgument, RunOption, run_of, tracker_names
from codea1_cli.errors import clock

if TYPE_CHECKING:
    from rich.console import Console, Group

    from codea1_cli.runs.run_dir import RunDir

TrackerOption = Annotated[
    list[str] | None,
    Option(
        metavar="NAME",
        help="Log to wandb, trackio, tensorboard or mlflow; again for another one.",
        autocompletion=tracker_names,
    ),
]

# Words, table and key of what is drawn, and the unit it is shown in; on a low screen the last ones are left out.
_LINES = (
    ("Code LLM reward", "steps", "code.reward", ""),
    ("Test LLM reward", "steps", "test.reward", ""),
    ("held-out pass@1", "heldout", "code.pass@1", "%"),
    ("held-out exposed", "heldout", "test.exposed", "%"),
    ("held-out false alarm", "heldout", "test.false_alarm", "%"),
    ("exposed", "steps", "arena.exposed_share", "%"),
    ("false alarm", "steps", "arena.false_alarm_share", "%"),
    ("seconds per step", "steps", "timing.step_s", "s"),
    ("Code LLM idle", "steps", "idle.code", "%"),
    ("Test LLM idle", "steps", "idle.test", "%"),
    ("suite validity", "steps", "arena.suite_validity", "%"),
    ("candidates solving", "steps", "arena.solved_share", "%"),
    ("Mistake Book", "steps", "arena.book_tests", ""),
    ("Code LLM signal", "steps", "arena.code_signal_share", "%"),
    ("Test LLM signal", "steps", "arena.test_signal_share", "%"),
    ("Code LLM entropy", "steps", "code.entropy", ""),
    ("Test LLM entropy", "steps", "test.entropy", ""),
)
_WIDTH = 30  # of a sparkline
_TOLD = 4  # warnings
_FOREVER_S = 1e6  # each line has to be answered in time
_QUIT = {b"q", b"Q", b"\x03", b"\x04"}  # the terminal hands Ctrl-C over as a key


def watch(
    name: RunArgument = None,
    run: RunOption = None,
    runs: RunsOption = None,
    every: Annotated[float, Option(metavar="SECONDS", min=0.2, help="How often to look at the files.")] = 2.0,
    once: Annotated[bool, Option("--once", help="Show it once and end.")] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Watch a run from another terminal. Figures, what each rank does, warnings, time left; q or Ctrl-C ends it.

    It reads files and touches nothing. Where stdout is no terminal, or nobody trains, it shows the run once.
    """
    from codea1_cli.runs.run_dir import find_run, runs_root

    chosen = find_run(run_of(name, run), runs_root(runs))
    if as_json:
        console.emit(snapshot(chosen, time.time()))
        return
    out = console.out()
    if not once and out.is_terminal and chosen.locked_by() is not None:
        from rich.live import Live

        with _keys() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
            while chosen.locked_by() is not None:
                live.update(_fitting(snapshot(chosen, time.time()), out), refresh=True)
                if pressed(every):
                    break
    console.show(_screen(snapshot(chosen, time.time())))


def track(
    tracker: TrackerOption = None,
    name: RunArgument = None,
    run: RunOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Log a run to experiment trackers. What is missing there, and what a run in progress writes.

    A run that was tracked before goes on in the same place.
    """
    from codea1_cli.errors import UserError
    from codea1_cli.recipe.files import load_recipe
    from codea1_cli.runs.run_dir import find_run, runs_root
    from codea1_cli.runs.tracking import places, tracked
    from codea1_cli.trackers import TRACKERS, check_trackers, label

    chosen = find_run(run_of(name, run), runs_root(runs))
    recipe = load_recipe(str(chosen.recipe_file), [f"tracker={json.dumps(tracker)}"] if tracker else [], of_run=True)
    if not recipe.tracker:
        raise UserError("no tracker given", hint=f"--tracker NAME, one of {', '.join(TRACKERS)}")
    check_trackers(recipe.tracker)
    with tracked(chosen, recipe.tracker, _Teller(), recipe.faults.tracker_s, wait_s=_FOREVER_S) as followers:
        while chosen.locked_by() is not None and any(one.is_alive() for one in followers):
            time.sleep(0.5)
    if not chosen.info():
        raise UserError(f"run {chosen.name} has not begun: nothing to log", hint="its first step writes figures")
    if as_json:
        told, where = {one.tracker: one.why for one in followers}, places(chosen)
        console.emit(
            [{"tracker": name, "where": where.get(label(name)), "given_up": why} for name, why in told.items()]
        )
    return console.EXIT_ENVIRONMENT if any(one.why for one in followers) else console.EXIT_OK


class _Teller:
    """Says what becomes of the trackers."""

    def phase(self, text: str) -> None:
        """Nothing is told of phases."""

    def event(self, event: dict[str, Any]) -> None:
        """A note, or a warning."""
        (console.warn if event["kind"] == "warning" else console.note)(console.printable(event["text"]))


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Waits for a key that ends the watching: the function says whether one came within so many seconds."""
    import termios

    if not sys.stdin.isatty():
        yield lambda seconds: time.sleep(seconds)
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    keys = termios.tcgetattr(handle)
    keys[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)

    def pressed(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([handle], [], [], left)[0] and os.read(handle, 1) in _QUIT | {b""}:
                return True
        return False

    try:
        termios.tcsetattr(handle, termios.TCSADRAIN, keys)
        yield pressed
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def snapshot(run: RunDir, now: float) -> dict[str, Any]:
    """What is to be seen of a run at a moment: where it stands, `left_s` seconds to go, each rank's phase, the figures
    (`values`, oldest first) and the last warnings; `until`: the step that --max-steps ends it at."""
    from codea1_cli.report.curves import events, tables
    from codea1_cli.runs import Phases, read_part
    from codea1_cli.runs.summary import known_info, summarise

    told, info, lines, faults = summarise(run), known_info(run), run.metrics(), list[str]()
    found = tables(lines)
    phases = read_part(run.phases_file, Phases, faults.append) if told.state == "running" else None
    ranks = [
        {"rank": label, "phase": phase, "step": step, "seconds": max(0.0, now - since)}
        for label, (phase, step, since) in sorted(phases.root.items() if phases else ())
    ]
    figures = [
        {"figure": words, "unit": unit, "values": values[-_WIDTH:], "step": found[table]["x"][-1]}
        for words, table, key, unit in _LINES
        if (values := [value for value in found.get(table, {}).get("y", {}).get(key, ()) if value is not None])
    ]
    warnings = [f"step {one['step']}: {one['text']}" for one in events(lines, info) if one["kind"] != "resumed"]
    return {
        "run": run.name,
        "state": told.state,
        "step": told.step,
        "total": told.total,
        "until": info.get("until") if told.state == "running" else None,
        "left_s": _left(lines, info.get("until") or told.total) if told.state == "running" else None,
        "ranks": ranks,
        "figures": figures,
        "warnings": [*_logged(run.logs), *warnings, *faults][-_TOLD:],
    }


def doing(event: Mapping[str, Any], now: float, width: int) -> str:
    """A line of `width` columns of an event `doing`: the step at work, what each policy's ranks do and since when, how
    far the step is. Empty where nobody is at work; what does not fit is left out."""
    ranks, counts = event.get("ranks", {}), event.get("counts", {})
    working = [step for phase, step, _ in ranks.values() if phase != "waiting"]
    if not working and not counts:
        return ""
    at = max(working or (step for _, step, _ in ranks.values()))
    parts = [f"step {at}"]
    for policy in dict.fromkeys(label.partition("[")[0] for label in sorted(ranks)):
        own = [one for label, one in ranks.items() if label.startswith(f"{policy}[")]
        phases = Counter(
            phase if phase == "waiting" or step == at else f"{phase} step {step}" for phase, step, _ in own
        )
        each = " and ".join(f"{count} {phase}" if len(phases) > 1 else phase for phase, count in phases.items())
        parts.append(f"{policy} {each} {clock(max(0.0, now - max(since for *_, since in own)))}")
    parts += [f"{done}/{every} {what}" for what, (done, every) in counts.items()]
    while len("  ".join(parts)) > width and len(parts) > 1:
        parts.pop()
    return "  ".join(parts)


def _left(lines: Sequence[Mapping[str, Any]], total: int | None) -> float | None:
    """Seconds to the end, or to where --max-steps ends it, at the pace of the last ten steps."""
    timed = [line for line in lines if "eval" not in line and {"step", "time"} <= line.keys()][-11:]
    if total is None or not timed or timed[-1]["step"] == timed[0]["step"]:
        return None
    first, last = timed[0], timed[-1]
    return float((total - last["step"]) * (last["time"] - first["time"]) / (last["step"] - first["step"]))


def _logged(logs: Path) -> list[str]:
    """The last line of each rank's log that warns or is an error, of the last few kB."""
    found = []
    for file in sorted(logs.glob("*-*.log")):
        with contextlib.suppress(OSError), open(file, "rb") as log:
            log.seek(max(0, file.stat().st_size - 8192))
            said = [line for line in log.read().decode(errors="replace").splitlines() if _WARNS.search(line)]
            found += [f"{file.stem}: {line.strip()}" for line in said[-1:]]
    return found


_WARNS = re.compile(r"\b(warning|error|exception)\b", re.IGNORECASE)


def _screen(seen: Mapping[str, Any]) -> Group:
    from rich.console import Group
    from rich.text import Text

    done = f"{100 * seen['step'] / seen['total']:.0f}%" if seen["total"] else ""
    where = f"step {seen['step']}" + (f" of {seen['total']}" if seen["total"] else "")
    to = f" to step {seen['until']} (--max-steps)" if seen["until"] else ""
    left = f"  {clock(seen['left_s'])} left{to}" if seen["left_s"] is not None else ""
    parts: list[Any] = [console.cell(f"{seen['run']}: {seen['state']}  {where}  {done}{left}", "title")]
    parts += [
        console.cell(f"  {one['rank']:<8} {one['phase']} step {one['step']}, for {clock(one['seconds'])}")
        for one in seen["ranks"]
    ]
    if seen["state"] == "running" and not seen["ranks"]:
        parts.append(console.cell("  starting: no rank has begun", "muted"))
    rows = [
        (one["figure"], _bars(own := one["values"]), *(_value(value, one) for value in (min(own), max(own), own[-1])))
        for one in seen["figures"]
    ]
    if rows:
        parts += [Text(), console.table(None, ("<", "<lately", ">least", ">most", ">last"), rows)]
    parts += [console.cell(f"{seen['left_out']} more on a higher terminal", "muted")] if seen.get("left_out") else []
    if seen["warnings"]:
        parts += [Text(), *(_line(text) for text in seen["warnings"])]
    return Group(*parts)


def _fitting(seen: Mapping[str, Any], out: Console) -> Group:
    """The screen in as many lines as the terminal has: figures are left out from the last on, then ranks."""
    figures, ranks = every = len(seen["figures"]), len(seen["ranks"])
    while True:
        few = {"figures": seen["figures"][:figures], "ranks": seen["ranks"][:ranks]}
        screen = _screen({**seen, **few, "left_out": sum(every) - figures - ranks})
        if len(out.render_lines(screen, pad=False)) <= out.height or figures + ranks <= 2:
            return screen
        figures, ranks = (figures - 1, ranks) if figures > 1 else (figures, ranks - 1)


def _line(text: str) -> Any:
    """A warning on one line."""
    line = console.cell(text.replace("\n", " "), "warn")
    line.truncate(console.out().width, overflow="ellipsis")
    return line


def _bars(values: Sequence[float]) -> str:
    """The values from their least to their most."""
    from codea1_cli.mistakes.inspect import sparkline

    return sparkline([value - min(values) for value in values], _WIDTH) if console.unicode() else ""


def _value(value: float, one: Mapping[str, Any]) -> str:
    return f"{100 * value:.1f}%" if one["unit"] == "%" else f"{value:.4g}{' s' if one['unit'] else ''}"
