"""pass@k and how far two results differ: estimates over problems with their uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean and its interval; `level` is the interval's coverage."""

    mean: float
    low: float
    high: float
    level: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate of passing at least once in `k` samples, from `c` passes among `n`.

    1 - C(n - c, k) / C(n, k) (Chen et al. 2021, "Evaluating large language models trained on code"), in exact integers.
    Raises ValueError unless 0 <= c <= n and 1 <= k <= n: fewer samples than k say nothing about k.
    """
    if not 0 <= c <= n:
        raise ValueError(f"{c} passes among {n} samples")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} samples, got {n}")
    whole = math.comb(n, k)
    return (whole - math.comb(n - c, k)) / whole


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """The mean of pass@k over problems, each given as (samples, passes). Raises ValueError for no problem."""
    return mean([pass_at_k(n, c, k) for n, c in counts])


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
