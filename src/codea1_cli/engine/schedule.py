"""Which problems a step holds: the whole run's order, expanded before it starts.

TRL's own shuffle is lost on a resume past the first epoch, so the trainers get the order as their dataset and shuffle
nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from codea1_cli.errors import UserError


@dataclass(frozen=True)
class Schedule:
    """`steps[t]` holds the problem ids of step t + 1, all different."""

    steps: tuple[tuple[str, ...], ...]
    steps_per_epoch: int

    def __len__(self) -> int:
        return len(self.steps)

    def problem_ids(self) -> list[str]:
        """Every id that the run meets, in order of first appearance."""
        return list(dict.fromkeys(pid for step in self.steps for pid in step))


def check_enough(count: int, problems_per_step: int, what: str) -> None:
    """Raises UserError when `count` problems, named `what`, do not fill one step."""
    if count < problems_per_step:
        raise UserError(
            f"{count} {what} do not fill a step of {problems_per_step}",
            hint=f"add problems, or set train.problems_per_step={max(count, 1)} or less",
        )


def make_schedule(
    ids: Sequence[str], *, problems_per_step: int, epochs: int, seed: int, max_steps: int | None = None
) -> Schedule:
    """Shuffles each epoch with its own seed and cuts it into whole steps; what does not fill a step is left to later
    epochs' shuffles. With `max_steps` the run is exactly that long, whatever `epochs` says.

    Raises:
        UserError: fewer problems than a step needs.
    """
    check_enough(len(ids), problems_per_step, "usable problems")
    per_epoch = len(ids) // problems_per_step
    total = max_steps if max_steps is not None else per_epoch * epochs
    steps: list[tuple[str, ...]] = []
    epoch = 0
    while len(steps) < total:
        order = list(ids)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        steps += [tuple(order[i * problems_per_step : (i + 1) * problems_per_step]) for i in range(per_epoch)]
        epoch += 1
    return Schedule(tuple(steps[:total]), per_epoch)
