"""Figures of runs before and after, compared over the same held-out problems, with a bootstrap over seeds and problems."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from codea1_cli.evals.statistics import Change
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import FIGURES, Measured, compared, measured

NAMES = tuple("pass@8" if name == "pass@n" else name for name in FIGURES)


@dataclass(frozen=True)
class Run:
    """One finished run: what it was measured at before the first and after the last step, its wall time."""

    before: Measured
    after: Measured
    seconds: float = math.nan


def read_run(folder: Path) -> Run:
    """The first and the last evaluation of a run.

    Raises:
        ValueError: there are not two of them, or they are of different problems.
    """
    steps = sorted(measured(RunDir(folder)).get("heldout", {}).items())
    if len(steps) < 2 or steps[0][1].problems != steps[-1][1].problems:
        raise ValueError(f"{folder}: no evaluation of the same problems before and after")
    seconds = float((folder / "seconds").read_text()) if (folder / "seconds").is_file() else math.nan
    return Run(steps[0][1], steps[-1][1], seconds)


def changes(runs: Sequence[Run]) -> dict[str, Change]:
    """Every figure of one arm before and after: the mean over its seeds of each seed's figure over all problems. Shares
    are in percent."""
    return _percent(compared([run.before for run in runs], [run.after for run in runs], "an arm"))


def contrast(arm: Sequence[Run], other: Sequence[Run]) -> dict[str, Change]:
    """Every figure after training, of `other` (as `before`) and of `arm`; runs of the same seeds in the same order."""
    return _percent(compared([run.after for run in other], [run.after for run in arm], "two arms"))


def _percent(found: Mapping[str, Change]) -> dict[str, Change]:
    scaled = {}
    for name in NAMES:
        change, scale = found.get(name, Change(*[math.nan] * 4)), 1 if name == "asserts per suite" else 100
        scaled[name] = Change(*(scale * value for value in astuple(change)))
    return scaled


# -- the tables --------------------------------------------------------------------------------------------------------
Arms = Mapping[str, Mapping[int, Run]]
"""The finished runs of each arm by seed; the first arm is the one that the others are compared with."""


def tables(arms: Arms) -> str:
    """Markdown: every arm before and after, the first arm against each other, and each seed of the first arm."""
    first, *others = arms
    found = {arm: changes(list(runs.values())) for arm, runs in arms.items()}
    shown = [name for name in NAMES if any(figures[name].known for figures in found.values())]
    rows = [
        [arm, str(len(arms[arm])), *(before_after(figures[name]) for name in shown)] for arm, figures in found.items()
    ]
    parts = ["## Before and after\n", grid(["arm", "seeds", *shown], rows)]
    rows = []
    for other in others:
        mine, theirs, seeds = paired(arms, first, other)
        if seeds:
            compared = contrast(mine, theirs)
            rows.append([f"{first} - {other}", str(seeds), *(difference(compared[name]) for name in shown)])
    if rows:
        parts += [f"\n## `{first}` against the others, after training\n", grid(["contrast", "seeds", *shown], rows)]
    rows = [[str(seed), *(before_after(changes([run])[name]) for name in shown)] for seed, run in arms[first].items()]
    parts += [f"\n## `{first}`, seed by seed\n", grid(["seed", *shown], rows)]
    met = "\n".join(f"- {sentence}: {'yes' if yes else 'no'}" for sentence, yes in targets(arms))
    return "\n".join([*parts, "\n## What was to be shown\n", met, ""])


def targets(arms: Arms) -> list[tuple[str, bool]]:
    """What the first arm is asked to reach, with its figures, and whether it does."""
    first, runs = next(iter(arms.items()))
    figures, seeds = changes(list(runs.values())), [changes([run])["exposed"] for run in runs.values()]
    exposed, alarm = figures["exposed"], figures["false alarm"]
    doubled = sum(change.after >= 2 * change.before for change in seeds)
    found = [
        (f"exposed at least doubles in every seed ({doubled} of {len(seeds)})", doubled == len(seeds)),
        (f"exposed rises, its interval above 0 ({difference(exposed)})", exposed.low > 0),
    ]
    found += [
        (f"{name} rises by 5 points or more ({difference(figures[name])})", figures[name].gain >= 5)
        for name in ("suite validity", "stated rightly")
    ]
    found.append((f"false alarm ends no higher than it starts ({difference(alarm)})", alarm.gain <= 0))
    mine, theirs, common = paired(arms, first, "own")
    if common and first != "own":
        solved = contrast(mine, theirs)["pass@1"]
        found.append((f"pass@1 is at most 1 point below `own` ({difference(solved)})", solved.gain >= -1))
    return found


def paired(arms: Arms, one: str, other: str) -> tuple[list[Run], list[Run], int]:
    """The runs of two arms under the seeds that both have, and how many there are."""
    seeds = [seed for seed in arms[one] if seed in arms.get(other, {})]
    return [arms[one][seed] for seed in seeds], [arms[other][seed] for seed in seeds], len(seeds)


def before_after(change: Change) -> str:
    """`12.1 → 26.4 (+11.0 to +17.2)`; a figure that no row gives is a dash."""
    found = f"{change.before:.1f} → {change.after:.1f} ({change.low:+.1f} to {change.high:+.1f})"
    return found if change.known else "-"


def difference(change: Change) -> str:
    """`+14.3 (+11.0 to +17.2)`; a figure that no row gives is a dash."""
    return f"{change.gain:+.1f} ({change.low:+.1f} to {change.high:+.1f})" if change.known else "-"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])
