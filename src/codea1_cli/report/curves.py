"""The curves of a run: which figures are drawn together, their values from metrics.jsonl, thinned to what a page can
hold, intervals of held-out figures, what happened beside them, and a picture.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codea1_cli.evals.statistics import levels
from codea1_cli.methods.registry import ROLES
from codea1_cli.runs import figures
from codea1_cli.runs.summary import Measured

STEPS = "steps"
"""The table of what was measured at every step; the other tables are named as their evaluation sets."""


@dataclass(frozen=True)
class Panel:
    """Figures of one table that share an axis: their keys, each with its words. A share is drawn in percent."""

    title: str
    figures: Mapping[str, str]
    table: str = STEPS
    share: bool = False
    main: bool = False  # of those that a picture or a terminal has room for


def _by_role(figure: str) -> dict[str, str]:
    """A figure of each role, whose place in the key is `{}`, by the name of the role's model."""
    return {figure.format(role): f"{role.title()} LLM" for role in ROLES}


PANELS = (
    Panel("Rewards", _by_role("{}.reward"), main=True),
    Panel("Token accuracy on the pairs", _by_role("{}.token_accuracy"), share=True, main=True),
    Panel("Held-out: problems solved", {"code.pass@1": "pass@1", "code.pass@n": "pass@n"}, "heldout", True, True),
    Panel(
        "Held-out: suites against wrong programs",
        {"test.exposed": "exposed", "test.soundly_exposed": "soundly exposed", "test.false_alarm": "false alarm"},
        "heldout",
        True,
        True,
    ),
    Panel(
        "Held-out: suites against near-misses",
        {"near_miss.exposed": "exposed", "near_miss.soundly_exposed": "soundly exposed"},
        "heldout",
        True,
        True,
    ),
    Panel(
        "Held-out: validity",
        {"test.validity": "suite validity", "test.stated_correctly": "stated rightly"},
        "heldout",
        True,
    ),
    Panel("Held-out: asserts per suite", {"test.asserts": "asserts"}, "heldout"),
    Panel(
        "Suites of the step",
        {"arena.exposed_share": "exposed", "arena.false_alarm_share": "false alarm"},
        share=True,
        main=True,
    ),
    Panel(
        "Validity",
        {"arena.suite_validity": "suite validity", "arena.stated_correctly_share": "stated rightly"},
        share=True,
        main=True,
    ),
    Panel(
        "Candidates",
        {
            "arena.loaded_share": "load",
            "arena.wrong_share": "known to be wrong",
            "arena.solved_share": "solve the problem",
            "arena.passed_share": "tests passed",
        },
        share=True,
    ),
    Panel("Mistake Book and pool", {"arena.book_tests": "tests", "arena.pool_programs": "programs"}, main=True),
    Panel("Mistake Book: replayed tests passed", {"arena.book_pass_rate": "passed"}, share=True),
    Panel("Groups with a signal", _by_role("arena.{}_signal_share"), share=True, main=True),
    Panel("Asserts and calls", {"arena.asserts_per_suite": "asserts per suite", "arena.group_calls": "distinct calls"}),
    Panel("Tokens per reply", _by_role("{}.completion_tokens"), main=True),
    Panel("Replies cut at the limit", _by_role("{}.clipped_share"), share=True),
    Panel("Entropy", _by_role("{}.entropy"), main=True),
    Panel("KL to the first policy", _by_role("{}.kl")),
    Panel("Gradient norm", _by_role("{}.grad_norm")),
    Panel("Learning rate", _by_role("{}.learning_rate")),
    Panel("Seconds per step", {"timing.step_s": "step", "timing.judge_tail_s": "judge's tail"}, main=True),
    Panel(
        "Seconds of the parts",
        {f"timing.{role}_{part}_s": f"{role} {part}" for role in ROLES for part in ("sampling", "updating")},
    ),
    Panel("Idle share of the step", _by_role("idle.{}"), share=True, main=True),
    Panel(
        "Left out",
        {
            "arena.unscored": "unscored",
            "arena.masked_groups": "masked groups",
            "arena.reference_timeouts": "late references",
        },
    ),
)

SIGNS = {
    "short_share": "more than half of the suites have fewer asserts than asked",
    "repeated_share": "more than half of the asserts repeat an earlier one of their suite",
}
"""Figures of a step's suites that, above a half, show a game that goes wrong without failing."""

# By the names of `summary.FIGURES`.
_OF_ROWS = {
    "pass@1": "code.pass@1",
    "exposed": "test.exposed",
    "near-miss exposed": "near_miss.exposed",
    "soundly exposed": "test.soundly_exposed",
    "near-miss soundly exposed": "near_miss.soundly_exposed",
    "false alarm": "test.false_alarm",
    "suite validity": "test.validity",
    "stated rightly": "test.stated_correctly",
    "asserts per suite": "test.asserts",
}

Table = dict[str, Any]
"""`x`: steps in order. `y`: by figure, a value or None at each of them. `low`, `high`: of figures that have bounds.
`bucket`: how many steps a point stands for."""


def tables(lines: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    """Every number of metrics.jsonl, by table. A line that stands twice counts as it stands last."""
    rows: dict[str, dict[int, dict[str, float]]] = {}
    for line in lines:
        step, evaluation = line.get("step"), line.get("eval")
        if not isinstance(step, int):
            continue
        if evaluation is None:
            numbers = figures({key: value for key, value in line.items() if key not in ("step", "time")})
            rows.setdefault(STEPS, {})[step] = numbers | _idle(numbers)
        elif isinstance(evaluation, Mapping):
            rows.setdefault(str(evaluation.get("set")), {})[step] = _solved(figures(evaluation))
    found = {}
    for name, by_step in rows.items():
        order = sorted(by_step)
        keys = dict.fromkeys(key for step in order for key in by_step[step])
        values = {key: [by_step[step].get(key) for step in order] for key in keys}
        found[name] = {"x": order, "y": values, "low": {}, "high": {}, "bucket": 1}
    return found


def _solved(numbers: dict[str, float]) -> dict[str, float]:
    """pass@n under one name, whatever n is."""
    n = numbers.get("code.n")
    best = numbers.get(f"code.pass@{n}") if n and n > 1 else None
    return numbers if best is None else numbers | {"code.pass@n": best}


def _idle(numbers: Mapping[str, float]) -> dict[str, float]:
    """The share of a step in which a policy's first rank waited for the other policy or for the judge."""
    step = numbers.get("timing.step_s")
    waited = {role: numbers.get(f"timing.{role}_waiting_s") for role in ROLES}
    return {f"idle.{role}": min(1.0, value / step) for role, value in waited.items() if step and value is not None}


def with_intervals(table: Table, measured: Mapping[int, Measured]) -> Table:
    """The held-out table with 95 % intervals (`levels`) of the figures that the evaluations' rows give. Figures that
    an earlier version left out of metrics.jsonl are added."""
    import numpy as np

    by_problems: dict[frozenset[str], list[int]] = {}
    for step, one in measured.items():
        if step in table["x"]:
            by_problems.setdefault(one.problems, []).append(step)
    columns: list[dict[str, list[float | None]]] = [{key: [*own] for key, own in table["y"].items()}, {}, {}]
    (y, low, high), nothing = columns, [None] * len(table["x"])
    for problems, steps in by_problems.items():
        order = sorted(problems)
        for name in dict.fromkeys(name for step in steps for name in measured[step].figures):
            key = _OF_ROWS.get(name, "code.pass@n")
            have = [step for step in steps if name in measured[step].figures]
            parts = [measured[step].figures[name] for step in have]
            cells = np.array([[part.get(pid, (0.0, 0.0)) for pid in order] for part in parts])
            for step, (above, below), (down, up) in zip(have, cells.sum(axis=1), levels(cells), strict=True):
                place = table["x"].index(step)
                for side, bound in ((low, down), (high, up)):
                    side.setdefault(key, [*nothing])[place] = None if math.isnan(bound) else bound
                values = y.setdefault(key, [*nothing])
                if values[place] is None and below:
                    values[place] = float(above / below)
    return {**table, "y": y, "low": low, "high": high}


def thinned(table: Table, points: int) -> Table:
    """The table with at most `points` points: of each run of so many steps the mean, and as bounds the smallest and the
    largest value. A shorter table stays as it is."""
    count = len(table["x"])
    if count <= points:
        return table
    size = -(-count // points)
    spans = [slice(start, start + size) for start in range(0, count, size)]
    parts = {
        key: [[value for value in values[span] if value is not None] for span in spans]
        for key, values in table["y"].items()
    }
    return {
        "x": [table["x"][span][-1] for span in spans],
        "y": {key: [sum(part) / len(part) if part else None for part in own] for key, own in parts.items()},
        "low": {key: [min(part, default=None) for part in own] for key, own in parts.items()},
        "high": {key: [max(part, default=None) for part in own] for key, own in parts.items()},
        "bucket": size,
    }


def events(lines: Sequence[Mapping[str, Any]], info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What happened in a run beside its steps, in order: `step`, `kind` (fault, warning, resumed) and `text`."""
    found = [
        {"step": (at := one.get("step", 0)), "kind": "resumed", "text": f"resumed after step {at}{_changed(one)}"}
        for one in info.get("resumed") or ()
        if isinstance(one, Mapping)
    ]
    before: dict[str, int] = {}
    signs: set[str] = set()
    last = 0
    for line in lines:
        arena, last = line.get("arena"), max(last, line["step"] if isinstance(line.get("step"), int) else 0)
        if not isinstance(arena, Mapping):
            continue
        failed = arena.get("sandbox_failures") or {}
        fresh = [
            f"{count - before.get(kind, 0)} {kind}" for kind, count in failed.items() if count > before.get(kind, 0)
        ]
        before = dict(failed)
        told = [f"sandbox failures: {', '.join(fresh)}"] if fresh else []
        told += [f"unscored: {arena['unscored']}"] if arena.get("unscored") else []
        told += [f"{pid} leaves the schedule: its reference runs out of time" for pid in arena.get("leaving") or ()]
        shares = figures(arena)
        for key, words in SIGNS.items():
            if shares.get(key, 0.0) > 0.5 and key not in signs:
                signs.add(key)
                told.append(words)
        found += [{"step": line["step"], "kind": "warning", "text": text} for text in told]
    if info.get("error"):
        found.append({"step": last, "kind": "fault", "text": str(info["error"])})
    return sorted(found, key=lambda one: one["step"])


def _changed(one: Mapping[str, Any]) -> str:
    changed = ", ".join(f"{key} {before} -> {now}" for key, (before, now) in (one.get("changed") or {}).items())
    return f" with {changed}" if changed else ""


def picture(name: str, found: Mapping[str, Table], kind: str) -> bytes:
    """A run's main panels as an image of a kind that matplotlib writes: png, svg, pdf."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    shown = [
        panel for panel in PANELS if panel.main and set(panel.figures) & set(found.get(panel.table, {}).get("y", ()))
    ]
    columns = 3
    figure = Figure(figsize=(4 * columns, 2.6 * -(-len(shown) // columns)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(name)
    buffer = io.BytesIO()
    for place, panel in enumerate(shown, 1):
        axes = figure.add_subplot(-(-len(shown) // columns), columns, place)
        table, scale = found[panel.table], 100 if panel.share else 1
        for key, words in panel.figures.items():
            if key in table["y"]:
                drawn = axes.plot(
                    table["x"], _scaled(table["y"][key], scale), marker="." if len(table["x"]) < 30 else "", label=words
                )
                if key in table["low"]:
                    low, high = (_scaled(table[side][key], scale) for side in ("low", "high"))
                    axes.fill_between(table["x"], low, high, alpha=0.2, color=drawn[0].get_color(), linewidth=0)
        if panel.share and len({value for key in panel.figures for value in table["y"].get(key, ())}) == 1:
            axes.set_ylim(-2, 102)  # a level line has no range of its own
        axes.set_title(panel.title + (" (%)" if panel.share else ""), fontsize="medium")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    with rc_context({"svg.fonttype": "none"}):  # words stay words
        figure.savefig(buffer, format=kind, dpi=120)
    return buffer.getvalue()


def _scaled(values: Sequence[float | None], scale: float) -> list[float]:
    return [math.nan if value is None else scale * value for value in values]
