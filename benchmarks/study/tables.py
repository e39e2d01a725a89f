"""Figures of a study's runs before and after, compared over the same problems, with a bootstrap over seeds and problems."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from protocol import Aim, Study

from codea1_cli.evals.statistics import Change
from codea1_cli.runs import spent
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import Measured, compared, measured

Sets = dict[str, Measured]
"""One moment of a run: what each evaluation set (`heldout`, `humaneval`, ...) gave."""
NUMBERS = ("asserts per suite",)  # all other figures are shares
UNKNOWN = Change(*[math.nan] * 4)


@dataclass(frozen=True)
class Run:
    """One run of an arm: what it was measured at before its first step, where it was, and at the step that counts."""

    folder: Path
    step: int
    before: Sets
    after: Sets


Arms = Mapping[str, Mapping[int, Run]]
"""The runs of each arm by seed."""


def read_run(folder: Path, step: int | None = None) -> Run:
    """A run at a step; None: at its last evaluation of the held-out problems.

    Raises:
        ValueError: it has no evaluation there.
    """
    found = measured(RunDir(folder))
    last = max(found.get("heldout", {0: None})) if step is None else step
    after = {kind: steps[last] for kind, steps in found.items() if last in steps}
    if not last or "heldout" not in after:
        raise ValueError(f"{folder}: no evaluation after step {last or 1}")
    before = {kind: steps[0] for kind, steps in found.items() if 0 in steps}
    if "heldout" in before and before["heldout"].problems != after["heldout"].problems:
        raise ValueError(f"{folder}: no evaluation of the same problems before and after")
    return Run(folder, last, before, after)


def changes(before: Sequence[Sets], after: Sequence[Sets]) -> dict[str, Change]:
    """Every figure that two sides have, a moment per seed each: the mean over the seeds of each seed's figure over all problems. Shares are in percent. A held-out figure goes by
    its own name, a benchmark's by `humaneval/plus pass@1`."""
    found: dict[str, Change] = {}
    for kind in dict.fromkeys(kind for moment in after for kind in moment):
        if all(kind in moment for moment in (*before, *after)):
            sides = [moment[kind] for moment in before], [moment[kind] for moment in after]
            for name, change in compared(*sides, kind).items():
                found[name if kind == "heldout" else f"{kind}/{name}"] = _percent(name, change)
    return found


def gains(runs: Sequence[Run]) -> dict[str, Change]:
    """An arm before and after."""
    return changes([run.before for run in runs], [run.after for run in runs])


def contrast(arm: Sequence[Run], other: Sequence[Run]) -> dict[str, Change]:
    """`arm` after training, and `other` (as `before`); runs of the same seeds in the same order."""
    return changes([run.after for run in other], [run.after for run in arm])


def with_base(arms: Arms, base: str) -> Arms:
    """The arms, where a run without an evaluation before its first step has that of the base arm's run of its seed, or of the base arm's first run."""
    known = {seed: run for seed, run in arms.get(base, {}).items() if run.before}
    if not known:
        return arms
    first = next(iter(known.values()))
    return {
        arm: {
            seed: run if run.before else replace(run, before=known.get(seed, first).before)
            for seed, run in runs.items()
        }
        for arm, runs in arms.items()
    }


def _percent(name: str, change: Change) -> Change:
    return change if name in NUMBERS else change.scaled(100)


# -- the tables --------------------------------------------------------------------------------------------------------
def tables(study: Study, arms: Arms) -> str:
    """Markdown: every arm before and after, the first arm against each other, its seeds one by one, what runs cost, and what was to be shown."""
    first, *others = arms
    found = {arm: gains(list(runs.values())) for arm, runs in arms.items()}
    shown = study.figures or list(dict.fromkeys(name for figures in found.values() for name in figures))
    shown = [name for name in shown if any(name in figures for figures in found.values())]
    rows = [
        [arm, str(len(arms[arm])), *(before_after(figures.get(name)) for name in shown)]
        for arm, figures in found.items()
    ]
    parts = ["## Before and after\n", grid(["arm", "seeds", *shown], rows)]
    rows = []
    for other in others:
        mine, theirs = paired(arms, first, other)
        if mine:
            apart = contrast(mine, theirs)
            rows.append([f"{first} - {other}", str(len(mine)), *(difference(apart.get(name)) for name in shown)])
    if rows:
        parts += [f"\n## `{first}` against the others, after training\n", grid(["contrast", "seeds", *shown], rows)]
    rows = [[str(seed), *(before_after(gains([run]).get(name)) for name in shown)] for seed, run in arms[first].items()]
    parts += [f"\n## `{first}`, seed by seed\n", grid(["seed", *shown], rows)]
    head = [
        "arm",
        "steps",
        "minutes",
        "GPU hours",
        "idle",
        "tokens sampled",
        "reply tokens, code / test",
        "clipped, code / test",
    ]
    parts += ["\n## What a run took\n", grid(head, [[arm, *costs(list(runs.values()))] for arm, runs in arms.items()])]
    if study.aims:
        told = "\n".join(f"- {sentence}: {'yes' if met else 'no'}" for sentence, met in aims(study, arms))
        parts += ["\n## What was to be shown\n", told]
    return "\n".join([*parts, ""])


def costs(runs: Sequence[Run]) -> list[str]:
    """Of a run, in the mean over seeds; lengths and clipped replies are of the last ten steps. Idle is a GPU whose policies wait for
    the judge or for a policy elsewhere."""
    each = [spent(RunDir(run.folder)) for run in runs]
    mean = {
        key: sum(one[key] for one in each) / len(each)
        for key in ("steps", "seconds", "tokens", "gpu_hours", "idle_gpu_hours")
    }
    last = [
        line for run in runs for line in [line for line in RunDir(run.folder).metrics() if "eval" not in line][-10:]
    ]

    def both(key: str, scale: float, end: str) -> str:
        values = {role: [line[role][key] for line in last if key in line.get(role, {})] for role in ("code", "test")}
        return " / ".join(f"{scale * sum(own) / len(own):.0f}{end}" if own else "-" for own in values.values())

    hours = f"{mean['gpu_hours']:.2f}" if mean["gpu_hours"] else "-"
    idle = f"{100 * mean['idle_gpu_hours'] / mean['gpu_hours']:.0f} %" if mean["gpu_hours"] else "-"
    return [
        f"{mean['steps']:.0f}", f"{mean['seconds'] / 60:.1f}", hours, idle, f"{mean['tokens']:,.0f}",
        both("completion_tokens", 1, ""), both("clipped_share", 100, " %"),
    ]  # fmt: skip


def paired(arms: Arms, one: str, other: str) -> tuple[list[Run], list[Run]]:
    """The runs of two arms under the seeds that both have."""
    seeds = [seed for seed in arms.get(one, {}) if seed in arms.get(other, {})]
    return [arms[one][seed] for seed in seeds], [arms[other][seed] for seed in seeds]


# -- what was to be shown ----------------------------------------------------------------------------------------------
def aims(study: Study, arms: Arms) -> list[tuple[str, bool]]:
    """Each aim of the study as a sentence with its figures, and whether it is met; one without runs or figures is not."""
    found = [(aim, _change(aim, arms)) for aim in study.aims]
    tests = {id(aim): change.p_above(aim.above) for aim, change in found if aim.above is not None and change.known}
    corrected = holm(list(tests.values()))
    adjusted = dict(zip(tests, corrected, strict=True))
    return [_judged(aim, change, adjusted.get(id(aim)), arms) for aim, change in found]


def holm(values: Sequence[float]) -> list[float]:
    """The p-values corrected for being several (Holm 1979), in their order."""
    order, floor, found = sorted(range(len(values)), key=lambda i: values[i]), 0.0, [0.0] * len(values)
    for rank, place in enumerate(order):
        floor = max(floor, min(1.0, (len(values) - rank) * values[place]))
        found[place] = floor
    return found


def _change(aim: Aim, arms: Arms) -> Change:
    if aim.over == "before":
        runs = [run for run in arms.get(aim.arm, {}).values() if run.before]
        return gains(runs).get(aim.figure, UNKNOWN) if runs else UNKNOWN
    mine, theirs = paired(arms, aim.arm, aim.over)
    return contrast(mine, theirs).get(aim.figure, UNKNOWN) if mine else UNKNOWN


def _judged(aim: Aim, change: Change, p: float | None, arms: Arms) -> tuple[str, bool]:
    what = f"`{aim.arm}`: {aim.figure} over {'its start' if aim.over == 'before' else f'`{aim.over}`'}"
    if not change.known:
        return f"{what}: not measured", False
    told = difference(change)
    if aim.above is not None:
        assert p is not None
        return f"{what} is more than {aim.above:+g} ({told}, p {p:.4f} after Holm's correction)", p < 0.025
    if aim.gain is not None:
        return f"{what} is {aim.gain:+g} or more ({told})", change.gain >= aim.gain
    if aim.at_most is not None:
        return f"{what} is {aim.at_most:+g} or less ({told})", change.gain <= aim.at_most
    seeds = [gains([run]).get(aim.figure, UNKNOWN) for run in arms[aim.arm].values() if run.before]
    met = sum(one.after >= aim.times * one.before for one in seeds)
    return (
        f"`{aim.arm}`: {aim.figure} ends {aim.times:g} times as high in every seed ({met} of {len(seeds)})",
        met == len(seeds),
    )


# -- text --------------------------------------------------------------------------------------------------------------
def before_after(change: Change | None) -> str:
    """`12.1 → 26.4 (+11.0 to +17.2)`; a figure that no row gives is a dash."""
    if change is None or not change.known:
        return "-"
    return f"{change.before:.1f} → {change.after:.1f} ({change.low:+.1f} to {change.high:+.1f})"


def difference(change: Change | None) -> str:
    """`+14.3 (+11.0 to +17.2)`; a figure that no row gives is a dash."""
    return (
        "-" if change is None or not change.known else f"{change.gain:+.1f} ({change.low:+.1f} to {change.high:+.1f})"
    )


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])
