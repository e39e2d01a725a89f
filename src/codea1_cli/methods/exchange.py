"""What a rank's rollouts and the arena say to each other within a step: the messages, and one typed call for each.

Every call names the method of `engine.arena.Arena` that answers it; a test holds their signatures together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CandidateView:
    """A candidate as the Test LLM sees it; `attack` is False when no suite is wanted for it."""

    code: str
    attack: bool


@dataclass(frozen=True)
class SuiteResults:
    """One problem's outcome for the Test LLM: `rewards[candidate][suite]`, and the candidates to learn from."""

    rewards: Sequence[Sequence[float | None]]
    selected: Sequence[int]


class Exchange:
    """Calls to the arena, an actor of Ray. All block until it answers, except `post_suites` and `skip_suites`."""

    def __init__(self, arena: Any) -> None:
        self._arena = arena

    @staticmethod
    def _wait(answer: Any) -> Any:
        import ray

        return ray.get(answer)

    def post_candidates(self, step: int, texts: dict[str, list[str]]) -> dict[str, list[float | None]]:
        """Posts a rank's candidates by problem id; returns their rewards when the step is scored."""
        return self._wait(self._arena.post_candidates.remote(step, texts))

    def get_candidates(self, step: int, ids: Sequence[str]) -> dict[str, list[CandidateView]]:
        """The candidates of these problems, when they have been posted."""
        return self._wait(self._arena.get_candidates.remote(step, ids))

    def post_suites(self, step: int, groups: Sequence[tuple[str, int, list[str]]]) -> None:
        """Posts (problem id, candidate, suites); judging starts at once, and nobody waits."""
        self._arena.post_suites.remote(step, groups)

    def skip_suites(self, step: int, keys: Sequence[tuple[str, int]]) -> None:
        """Names the (problem id, candidate) pairs that get no suites, because the prompt is too long."""
        self._arena.skip_suites.remote(step, keys)

    def finish_suites(self, step: int, ids: Sequence[str]) -> dict[str, SuiteResults]:
        """After a rank's last suite: the outcome of these problems, when the whole step is scored."""
        return self._wait(self._arena.finish_suites.remote(step, ids))
