"""What the ranks and the arena say to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CandidateView:
    """A candidate as the test side sees it; `attack` is False when no suite is wanted for it."""

    code: str
    attack: bool


@dataclass(frozen=True)
class SuiteResults:
    """One problem's outcome for the test side: `rewards[candidate][suite]` and the candidates to learn from."""

    rewards: Sequence[Sequence[float | None]]
    selected: Sequence[int]


@dataclass(frozen=True)
class RankReport:
    """One rank's step: what TRL logged and where the seconds went."""

    label: str
    step: int
    logs: dict[str, float]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Decision:
    """What to do at the end of a step; the same for every rank of both sides."""

    save: bool
    stop: bool
