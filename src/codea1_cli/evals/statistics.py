"""From verdicts to figures: unbiased pass@k, avg@n, bootstrap intervals, paired differences of two results, and of two
sides with several seeds each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from codea1_cli.errors import UserError, counted
from codea1_cli.evals.benchmark import COUNTED, ReferenceReport, Scored, Status

KS = (1, 2, 4, 5, 8, 10, 16, 32, 64, 100, 200)


def task_rows(scored: Iterable[Scored], columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By task: `n` samples that were scored, how many passed each column (and all columns before), and what kept the
    others out."""
    rows: dict[str, dict[str, Any]] = {}
    for sample in scored:
        row = rows.setdefault(
            sample.task_id, {"n": 0, "unscored": 0, "not_run": 0, "timeouts": 0, **dict.fromkeys(columns, 0)}
        )
        statuses = [sample.verdicts[column] for column in columns]
        if not all(status in COUNTED for status in statuses):
            row["not_run" if Status.NOT_RUN in statuses else "unscored"] += 1
            continue
        row["n"] += 1
        row["timeouts"] += Status.TIMEOUT in statuses
        for place, column in enumerate(columns):
            row[column] += all(status is Status.PASS for status in statuses[: place + 1])
    return rows


def figures(
    rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str], references: ReferenceReport | None = None
) -> dict[str, dict[str, Any]]:
    """By column: `pass@k` for every k that all tasks have samples for, `avg@n`, and `interval` (95 %) of pass@1.

    Where references fail, `valid` holds pass@1 over the tasks whose reference passes. A task without a
    scored sample is in no figure.
    """
    counted = {task: row for task, row in rows.items() if row["n"]}
    result: dict[str, dict[str, Any]] = {}
    for column in columns:
        if not counted:
            result[column] = {"tasks": 0}
            continue
        n = min(row["n"] for row in counted.values())
        single = [row[column] / row["n"] for row in counted.values()]
        spread = share_interval(single)
        found: dict[str, Any] = {"tasks": len(counted), "n": n}
        for k in sorted({k for k in KS if k <= n} | {n}):
            found[f"pass@{k}"] = mean([pass_at_k(row["n"], row[column], k) for row in counted.values()])
        found[f"avg@{n}"] = spread.mean
        found["interval"] = [spread.low, spread.high]
        if references is not None and references.failing:
            kept = [row[column] / row["n"] for task, row in counted.items() if task not in references.failing]
            found["valid"] = {"tasks": len(kept), "pass@1": mean(kept) if kept else None}
        result[column] = found
    return result


def flat(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The figures as one level, for a metrics line: `plus/pass@1` and so on."""
    return {
        f"{column}/{key}": float(value)
        for column, part in found.items()
        for key, value in part.items()
        if isinstance(value, int | float)
    }


@dataclass(frozen=True)
class Interval:
    """A mean and its interval; `level` is the interval's coverage."""

    mean: float
    low: float
    high: float
    level: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate of passing at least once in `k` samples, from `c` passes among `n`.

    1 - C(n - c, k) / C(n, k) (Chen et al. 2021, "Evaluating large language models trained on code"), in exact integers.
    Raises UserError unless 0 <= c <= n and 1 <= k <= n: fewer samples than k say nothing about k.
    """
    if not 0 <= c <= n:
        raise UserError(f"{c} passes among {counted(n, 'sample')}: c is from 0 to n")
    if not 1 <= k <= n:
        raise UserError(f"pass@{k} of {counted(n, 'sample')}: k is from 1 to n")
    whole = math.comb(n, k)
    return (whole - math.comb(n - c, k)) / whole


def mean(scores: Sequence[float]) -> float:
    """The mean over problems. Raises ValueError for no problem."""
    if not scores:
        raise ValueError("no problem was scored")
    return math.fsum(scores) / len(scores)


def bootstrap(scores: Sequence[float], *, resamples: int = 10_000, level: float = 0.95, seed: int = 0) -> Interval:
    """The mean of per-problem scores with its percentile bootstrap interval over problems."""
    import numpy as np

    centre = mean(scores)
    values = np.asarray(scores, dtype=np.float64)
    generator = np.random.default_rng(seed)
    chunk = max(1, 1_000_000 // len(values))  # about 8 MB of indices at a time
    means = np.concatenate(
        [
            values[generator.integers(0, len(values), size=(min(chunk, resamples - done), len(values)))].mean(axis=1)
            for done in range(0, resamples, chunk)
        ]
    )
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(centre, float(low), float(high), level)


def share_interval(scores: Sequence[float], *, level: float = 0.95) -> Interval:
    """The mean of shares in [0, 1] with its interval over problems: `bootstrap`, but where all of them are 0, or all 1.

    Resampling knows nothing but what it has seen, and would be sure of it after five problems. There the exact bound
    takes its place (Clopper and Pearson 1934): what makes `len(scores)` times the same as unlikely as (1 - level) / 2.
    """
    if len(set(scores)) > 1 or scores[0] not in (0.0, 1.0):
        return bootstrap(scores, level=level)
    bound = ((1 - level) / 2) ** (1 / len(scores))
    return Interval(0.0, 0.0, 1 - bound, level) if scores[0] == 0.0 else Interval(1.0, bound, 1.0, level)


def paired_bootstrap(
    before: Sequence[float], after: Sequence[float], *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The mean of `after - before` with its interval; both hold the scores of the same problems in the same order.

    Resampling differences keeps what the two share, the difficulty of a problem. Raises ValueError when lengths differ.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} scores against {len(after)}: not the same problems")
    differences = [b - a for a, b in zip(before, after, strict=True)]
    return bootstrap(differences, resamples=resamples, level=level, seed=seed)


# -- several seeds -----------------------------------------------------------------------------------------------------
RESAMPLES = 10_000
Cells = Any
"""An array [seeds, problems, figures, 2]: what each problem adds to a figure's numerator and to its denominator."""


@dataclass(frozen=True)
class Change:
    """A figure of two sides; `low` and `high` bound the difference at 95 %. All are nan where nothing gives it. `draws`
    are the resampled differences."""

    before: float
    after: float
    low: float
    high: float
    draws: Any = field(default=None, repr=False, compare=False)

    @property
    def gain(self) -> float:
        """`after - before`."""
        return self.after - self.before

    @property
    def known(self) -> bool:
        """Whether both sides have the figure."""
        return not math.isnan(self.gain)

    def p_above(self, margin: float) -> float:
        """The one-sided p-value of a difference above `margin`: the share of resamples in which it is not, as
        (b + 1) / (R + 1) (Davison and Hinkley 1997, "Bootstrap Methods and their Application")."""
        return (int((self.draws <= margin).sum()) + 1) / (len(self.draws) + 1)

    def scaled(self, scale: float) -> Change:
        """In another unit, such as percent."""
        before, after, low, high = (scale * value for value in (self.before, self.after, self.low, self.high))
        return Change(before, after, low, high, None if self.draws is None else scale * self.draws)


def changes(before: Cells, after: Cells, *, by_seed: bool = True) -> list[Change]:
    """Every figure of two sides that were measured on the same problems: the mean over a side's seeds of each seed's
    figure over all problems, and the difference with its percentile interval.

    Seeds and problems are crossed: all seeds are measured on the same problems. So a resample draws problems once, for
    all seeds of both sides; drawing them anew for each seed would average away the choice of problems. It draws seeds
    once for both sides where they have the same ones in the same order (`by_seed`), else for each side. The draws are
    the same at every call, so that everything that is compared is paired.

    Raises:
        ValueError: other problems, or `by_seed` other numbers of seeds.
    """
    import numpy as np

    if before.shape[1:] != after.shape[1:] or (by_seed and len(before) != len(after)):
        raise ValueError("runs of other seeds or other held-out problems cannot be paired")
    generator, problems = np.random.default_rng(0), before.shape[1]
    draws = [generator.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) for n in (len(before), problems, len(after))]
    seeds = draws[0], draws[0] if by_seed else draws[2]
    first, last = (_ratios(side, np.ones((1, len(side))), np.ones((1, problems)))[0] for side in (before, after))
    old, new = (_ratios(side, chosen, draws[1]) for side, chosen in zip((before, after), seeds, strict=True))
    draws = new - old
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    sides = np.stack([first, last, low, high], axis=1).tolist()
    return [replace(Change(*values), draws=draws[:, place]) for place, values in enumerate(sides)]


def levels(cells: Any) -> list[tuple[float, float]]:
    """The 95 % interval of one figure at several evaluations, from an array [evaluations, problems, 2]: what each
    problem adds to numerator and denominator. A percentile bootstrap over problems, with the same draws for all
    evaluations; nan where nothing gives the figure. Where all problems agree it is `share_interval`'s exact bound."""
    import numpy as np

    problems = cells.shape[1]
    draws = np.random.default_rng(0).multinomial(problems, np.full(problems, 1 / problems), size=RESAMPLES)
    sums = np.tensordot(draws.astype(float), cells, axes=(1, 1))  # [resamples, evaluations, 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = sums[..., 0] / sums[..., 1]
    found = []
    for one, resampled in zip(cells, shares.T, strict=True):
        known = one[one[:, 1] > 0]
        alike = set((known[:, 0] / known[:, 1]).tolist())
        if alike in ({0.0}, {1.0}):
            exact = share_interval([*alike] * len(known))
            found.append((exact.low, exact.high))
        elif alike:
            low, high = np.nanquantile(resampled, [0.025, 0.975]).tolist()
            found.append((low, high))
        else:
            found.append((math.nan, math.nan))
    return found


def _ratios(cells: Cells, seeds: Any, problems: Any) -> Any:
    """Figures [resamples, figures] from how often each resample draws each seed and each problem; nan for 0 / 0."""
    import numpy as np

    sums = np.tensordot(problems.astype(float), cells, axes=(1, 1))  # [resamples, seeds, figures, 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = sums[..., 0] / sums[..., 1]
    return np.einsum("rs,rsf->rf", seeds / cells.shape[0], shares)
