"""Which parameters and wordings of a family belong to training, to tuning (dev) and to the reported split (held out).

A family keeps one group of wordings and about a sixth of its parameters for each of dev and heldout: a problem of those
splits shows a wording and, where the family has parameters, parameters that training never saw with it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from codea1_cli.tiny.families import families
from codea1_cli.tiny.family import Family, fill
from codea1_cli.tiny.variants import Variant, variant

Split = Literal["train", "dev", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "dev", "heldout")
WORDING_GROUPS = 5
KEPT_SHARE = 6  # one in six parameter values goes to each of dev and heldout

Values = tuple[tuple[str, int | str], ...]


@dataclass(frozen=True)
class Share:
    """What one split has of a family."""

    wordings: tuple[str, ...]
    values: tuple[Values, ...]


@dataclass(frozen=True)
class Instance:
    """One problem: a variant of a family, asked in one wording."""

    variant: Variant
    question: str


@cache
def share(name: str, split: Split) -> Share:
    """The part of a family's wordings and parameters that a split may use."""
    family = families()[name]
    rng = random.Random(f"split {name}")
    return Share(_wordings(family, split, rng), _values(family, split, rng))


def _wordings(family: Family, split: Split, rng: random.Random) -> tuple[str, ...]:
    size = len(family.wordings) // WORDING_GROUPS
    groups = [family.wordings[start : start + size] for start in range(0, len(family.wordings), size)]
    rng.shuffle(groups)
    kept = {"dev": groups[:1], "heldout": groups[1:2], "train": groups[2:]}[split]
    return tuple(wording for group in kept for wording in group)


def _values(family: Family, split: Split, rng: random.Random) -> tuple[Values, ...]:
    grid = [tuple(parameters.items()) for parameters in family.grid()]
    if len(grid) == 1:
        return tuple(grid)
    rng.shuffle(grid)
    kept = max(len(grid) // KEPT_SHARE, 1)
    return tuple({"dev": grid[:kept], "heldout": grid[kept : 2 * kept], "train": grid[2 * kept :]}[split])


def draw(name: str, split: Split, rng: random.Random) -> Instance:
    """A random problem of a family within a split."""
    part = share(name, split)
    found = variant(name, rng.choice(part.values))
    return Instance(found, fill(rng.choice(part.wordings), found.parameters))


def families_in_turn(rng: random.Random) -> Iterator[str]:
    """Family names without end, each once a round, in a new random order every round."""
    names = list(families())
    while True:
        rng.shuffle(names)
        yield from names
