"""Figures of runs before and after, compared over the same held-out problems, with a bootstrap over seeds and problems."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
LEVEL = 0.95

Row = Mapping[str, Any]
Cells = npt.NDArray[np.float64]
"""[problems, figures, 2]: what each problem adds to a figure's numerator and to its denominator."""


def _scored(row: Row) -> int:
    return len(row["passed"]) - row["unscored"]


FIGURES: dict[str, tuple[str, Callable[[Row], float], Callable[[Row], float]]] = {
    "pass@1": ("code", lambda row: sum(row["passed"]) / max(_scored(row), 1), lambda row: _scored(row) > 0),
    "pass@8": ("code", lambda row: any(row["passed"]), lambda row: _scored(row) > 0),
    "exposed": ("test", lambda row: row["exposed"], lambda row: 1),
    "near-miss exposed": ("near-miss", lambda row: row["exposed"], lambda row: 1),
    "false alarm": ("test", lambda row: row["misstated"] > 0, lambda row: 1),
    "suite validity": ("test", lambda row: row["validity"], lambda row: 1),
    "stated rightly": ("test", lambda row: row["correct"], lambda row: row["valid"]),
    "asserts per suite": ("test", lambda row: row["asserts"], lambda row: 1),
}
"""name -> the evaluation's file, and what one of its rows adds to the numerator and the denominator."""


@dataclass(frozen=True)
class Run:
    """One finished run: its held-out problems, their cells before the first and after the last step, its wall time."""

    problems: tuple[str, ...]
    before: Cells
    after: Cells
    seconds: float = math.nan


@dataclass(frozen=True)
class Change:
    """A figure before and after (or of two arms); `low` and `high` bound the difference at 95 %. Shares are percent."""

    before: float
    after: float
    low: float
    high: float

    @property
    def gain(self) -> float:
        return self.after - self.before

    @property
    def known(self) -> bool:
        """Whether any row gives this figure."""
        return not math.isnan(self.gain)


def read_run(folder: Path) -> Run:
    """The first and the last evaluation of a run.

    Raises:
        ValueError: there are not two of them, or they are of different problems.
    """
    steps = sorted({file.name.split("-")[1] for file in (folder / "evaluation").glob("step-*-code.json")})
    rows = [{role: _rows(folder, step, role) for role in ("code", "test", "near-miss")} for step in steps]
    problems = [tuple(sorted(row["problem_id"] for row in part["code"])) for part in rows]
    if len(steps) < 2 or problems[0] != problems[-1]:
        raise ValueError(f"{folder}: no evaluation of the same problems before and after")
    seconds = float((folder / "seconds").read_text()) if (folder / "seconds").is_file() else math.nan
    return Run(problems[0], *(_cells(part, problems[0]) for part in (rows[0], rows[-1])), seconds)


def _rows(folder: Path, step: str, role: str) -> list[Row]:
    file = folder / "evaluation" / f"step-{step}-{role}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []


def _cells(rows: Mapping[str, Sequence[Row]], problems: Sequence[str]) -> Cells:
    """A suite that the sandbox could not judge is left out. A figure without a row is 0 / 0 everywhere."""
    place = {problem: number for number, problem in enumerate(problems)}
    cells = np.zeros((len(problems), len(FIGURES), 2))
    for number, (role, top, bottom) in enumerate(FIGURES.values()):
        for row in rows[role]:
            if role == "code" or not row["unscored"]:
                cells[place[row["problem_id"]], number] += float(top(row)), float(bottom(row))
    return cells


# -- the bootstrap -----------------------------------------------------------------------------------------------------
def changes(runs: Sequence[Run]) -> dict[str, Change]:
    """Every figure of one arm before and after: the mean over its seeds of each seed's figure over all problems."""
    return _compare([run.before for run in runs], [run.after for run in runs], runs)


def contrast(arm: Sequence[Run], other: Sequence[Run]) -> dict[str, Change]:
    """Every figure after training, of `other` (as `before`) and of `arm`; runs of the same seeds in the same order."""
    return _compare([run.after for run in other], [run.after for run in arm], [*arm, *other])


def _compare(before: Sequence[Cells], after: Sequence[Cells], runs: Sequence[Run]) -> dict[str, Change]:
    if len(before) != len(after) or any(run.problems != runs[0].problems for run in runs):
        raise ValueError("runs of other seeds or other held-out problems cannot be paired")
    seeds, problems = len(before), len(runs[0].problems)
    once = np.ones((1, seeds)), np.ones((1, problems))
    drawn = draws(seeds, problems)
    first, last = (_figures(np.stack(cells), *once)[0] for cells in (before, after))
    gains = _figures(np.stack(after), *drawn) - _figures(np.stack(before), *drawn)
    low, high = np.quantile(gains, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    scale = [1 if name == "asserts per suite" else 100 for name in FIGURES]
    found = (np.stack([first, last, low, high], axis=1) * np.array(scale)[:, None]).tolist()
    return {name: Change(*values) for name, values in zip(FIGURES, found, strict=True)}


def draws(seeds: int, problems: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How often each resample draws each seed, [resamples, seeds], and each problem, [resamples, problems].

    Seeds and problems are crossed: all seeds are measured on the same problems. So a resample draws problems once, for all
    of its seeds; drawing them anew for each seed would average away the choice of problems. The draws are the same at
    every call, so everything that is compared is paired.
    """
    rng = np.random.default_rng(0)
    return (
        rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES),
        rng.multinomial(problems, np.full(problems, 1 / problems), size=RESAMPLES),
    )


def _figures(cells: npt.NDArray[np.float64], seeds: npt.NDArray[Any], problems: npt.NDArray[Any]) -> Any:
    """[resamples, figures] from cells [seeds, problems, figures, 2] and how often each is drawn; nan for 0 / 0."""
    sums = np.tensordot(problems.astype(float), cells, axes=(1, 1))  # [resamples, seeds, figures, 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = sums[..., 0] / sums[..., 1]
    return np.einsum("rs,rsf->rf", seeds / cells.shape[0], shares)


# -- the tables --------------------------------------------------------------------------------------------------------
Arms = Mapping[str, Mapping[int, Run]]
"""The finished runs of each arm by seed; the first arm is the one that the others are compared with."""


def tables(arms: Arms) -> str:
    """Markdown: every arm before and after, the first arm against each other, and each seed of the first arm."""
    first, *others = arms
    found = {arm: changes(list(runs.values())) for arm, runs in arms.items()}
    shown = [name for name in FIGURES if any(figures[name].known for figures in found.values())]
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
