"""Paired figures of one run: before and after on the same held-out problems, with a bootstrap over problems."""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESAMPLES = 10_000
TAIL = 0.025  # a 95 % interval

Row = dict[str, Any]
Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Change:
    """One figure before and after a run, in percentage points; `low` and `high` bound the change at 95 %."""

    before: float
    after: float
    low: float
    high: float

    @property
    def gain(self) -> float:
        return self.after - self.before


def changes(run: Path, tests_per_suite: int) -> dict[str, Change]:
    """The held-out figures of a finished run's first and last evaluation.

    pass@1, pass@8: over problems. suite validity: the game's, min(valid / K, 1 - invalid / K), a wrongly stated assert
    being invalid. valid asserts: those whose call the reference answers, of the K asked. kill rate: share of wrong
    candidates that their suite exposes. kills per valid assert, and the share of valid asserts that state the right
    answer.
    """
    code, test = paired(run, "code"), paired(run, "test")
    return {
        "pass@1": change(code, lambda rows: _mean(sum(row["passed"]) / len(row["passed"]) for row in rows)),
        "pass@8": change(code, lambda rows: _mean(any(row["passed"]) for row in rows)),
        "suite validity": change(test, lambda rows: _mean(row["validity"] for row in _flat(rows))),
        "valid asserts": change(test, lambda rows: _ratio(_all(rows, "valid"), [tests_per_suite for _ in _flat(rows)])),
        "kill rate": change(test, lambda rows: _mean(row["kills"] > 0 for row in _flat(rows))),
        "kills per valid assert": change(test, lambda rows: _ratio(_all(rows, "kills"), _all(rows, "valid"))),
        "stated rightly": change(test, lambda rows: _ratio(_all(rows, "correct"), _all(rows, "valid"))),
    }


def paired(run: Path, role: str) -> list[Pair]:
    """(before, after) of each problem: a row of the Code role, or the list of rows of the problem's wrong candidates.

    Raises:
        ValueError: the two evaluations are not of the same problems.
    """
    files = sorted((run / "evaluation").glob(f"step-*-{role}.json"))
    before, after = (_by_problem(json.loads(file.read_text()), role) for file in (files[0], files[-1]))
    if len(files) < 2 or before.keys() != after.keys():
        raise ValueError(f"{run}: no evaluation of the same problems before and after")
    return [(before[problem], after[problem]) for problem in before]


def change(pairs: Sequence[Pair], figure: Callable[[Sequence[Any]], float]) -> Change:
    """A figure of all problems before and after; the interval resamples problems, both evaluations together."""
    before, after = figure([b for b, _ in pairs]), figure([a for _, a in pairs])
    rng = random.Random(0)
    gains = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(pairs, k=len(pairs))
        gains.append(figure([a for _, a in drawn]) - figure([b for b, _ in drawn]))
    gains.sort()
    low, high = gains[int(TAIL * RESAMPLES)], gains[int((1 - TAIL) * RESAMPLES) - 1]
    return Change(*(100 * value for value in (before, after, low, high)))


def _by_problem(rows: Sequence[Row], role: str) -> dict[str, Any]:
    if role == "code":
        return {row["problem_id"]: row for row in rows}
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["problem_id"]].append(row)
    return dict(groups)


def _flat(groups: Sequence[Sequence[Row]]) -> list[Row]:
    return [row for rows in groups for row in rows if not row["unscored"]]


def _all(groups: Sequence[Sequence[Row]], key: str) -> list[int]:
    return [row[key] for row in _flat(groups)]


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def _ratio(over: Sequence[int], under: Sequence[int]) -> float:
    return sum(over) / sum(under) if sum(under) else 0.0
