"""Choosing one of several programs by tests that nobody has checked, and what the choice is worth. Pure.

What is chosen by is a `Matrix`: what programs answer, and which asserts of suites they pass. Neither a reference nor a
benchmark's own tests can enter: there is no place for them. They only come in `gains`, once all is chosen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from codea1_cli.evals.statistics import Interval, levels, mean, paired_bootstrap, share_interval


@dataclass(frozen=True)
class Assert:
    """One assert of a task's suites: how many `suites` hold it, and which candidates pass it."""

    text: str
    suites: int
    passed: tuple[bool, ...]


@dataclass(frozen=True)
class Matrix:
    """One task: the `candidates` by their numbers, the asserts, and each candidate's answer to each call.

    Of an answer only a number is kept, by call: equal answers have the same one, None is no answer (it raised, was
    late, or the program does not load).
    """

    candidates: int
    asserts: tuple[Assert, ...] = ()
    answers: tuple[tuple[int | None, ...], ...] = ()


Scores = list[float]
"""By candidate; more is better."""


def passes(matrix: Matrix) -> Scores:
    """How many asserts a candidate passes; one that several suites hold counts as often."""
    return [float(sum(one.suites for one in matrix.asserts if one.passed[at])) for at in range(matrix.candidates)]


def agreement(matrix: Matrix) -> Scores:
    """How many other candidates give the same answer, summed over the calls: consensus, which no assert enters.

    MBR-exec with one point for an equal answer (Shi et al. 2022, "Natural language to code translation with
    execution").
    """
    scores = [0.0] * matrix.candidates
    for answers in matrix.answers:
        counts = Counter(answers)
        for at, answer in enumerate(answers):
            scores[at] += counts[answer] - 1 if answer is not None else 0
    return scores


def dual_agreement(matrix: Matrix) -> Scores:
    """The score of a candidate's consensus set: the candidates that pass the very same asserts, times these asserts.

    CodeT (Chen et al. 2023, "CodeT: code generation with generated tests"), section 2.2. An assert counts once, however
    many suites hold it.
    """
    passed = [tuple(one.passed[at] for one in matrix.asserts) for at in range(matrix.candidates)]
    sizes = Counter(passed)
    return [float(sizes[mine] * sum(mine)) for mine in passed]


SELECTORS: Mapping[str, tuple[Callable[[Matrix], Scores], ...]] = {
    "tests": (passes, agreement),
    "codet": (dual_agreement, agreement),
    "consensus": (agreement, passes),
}
"""By name: what decides, then what decides between equals."""


def choose(matrix: Matrix, selector: str) -> int:
    """The number of the candidate that a selector takes; of equals the first."""
    scores = list(zip(*(score(matrix) for score in SELECTORS[selector]), strict=True))
    return max(range(matrix.candidates), key=lambda at: (scores[at], -at))


def gains(passed: Mapping[str, Sequence[bool]], chosen: Mapping[str, int]) -> dict[str, Any]:
    """What choosing is worth, over the tasks that have both verdicts and a choice.

    passed: by task, which candidates pass. `pass@1` is that of all candidates, which is what a random choice gives;
    `selected` of the chosen ones; `oracle` of a choice that knows the verdicts: pass@n. `gain` is selected - pass@1,
    `gap_closed` that gain over oracle - pass@1, None where there is no gap. Each with its 95 % interval over tasks.
    """
    tasks = [task for task in chosen if passed.get(task)]
    if not tasks:
        return {"tasks": 0}
    random = [sum(passed[task]) / len(passed[task]) for task in tasks]
    picked = [float(passed[task][chosen[task]]) for task in tasks]
    oracle = [float(any(passed[task])) for task in tasks]
    return {
        "tasks": len(tasks),
        "pass@1": asdict(share_interval(random)),
        "selected": asdict(share_interval(picked)),
        "oracle": asdict(share_interval(oracle)),
        "gain": asdict(paired_bootstrap(random, picked)),
        "gap_closed": _gap_closed(random, picked, oracle),
    }


def _gap_closed(random: Sequence[float], picked: Sequence[float], oracle: Sequence[float]) -> dict[str, float] | None:
    import numpy as np

    gap = mean(oracle) - mean(random)
    if gap <= 0:
        return None
    cells = np.array([[(b - a, c - a) for a, b, c in zip(random, picked, oracle, strict=True)]])
    low, high = levels(cells)[0]
    return None if math.isnan(low) else asdict(Interval((mean(picked) - mean(random)) / gap, low, high, 0.95))
