"""The tiny world's problem rows and their splits: training, tuning (dev) and the reported one (held out).

A family keeps one group of wordings and about a sixth of its parameters for each of dev and heldout: a problem of those
splits shows a wording and, where the family has parameters, parameters that training never saw with it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from codea1_cli.problems.problem import Problem
from world.family import ENTRY_POINT, Family, fill
from world.variants import Arguments, Variant, answer, families, variant

Split = Literal["train", "dev", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "dev", "heldout")
WORDING_GROUPS = 5
SIZES: dict[Split, int] = {"train": 128, "dev": 96, "heldout": 96}
TESTS = 10
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
    """Family names without end, each once per round, in a new random order every round."""
    names = list(families())
    while True:
        rng.shuffle(names)
        yield from names


def problems(split: Split, size: int | None = None) -> list[Problem]:
    """The problems of a split, always the same ones: as many families as there are rows, or all of them in turn."""
    rng = random.Random(f"problems {split}")
    names = families_in_turn(rng)
    rows: dict[str, Problem] = {}
    for _ in range(size or SIZES[split]):
        name = next(names)
        instance = draw(name, split, rng)
        label = f"tiny/{split}-{len(rows) + 1:03d}"
        rows[label] = problem(label, instance, rng)
    return list(rows.values())


def problem(label: str, instance: Instance, rng: random.Random) -> Problem:
    """One row; its tests reject every wrong solution that it lists."""
    variant = instance.variant
    return Problem(
        id=label,
        question=instance.question,
        declaration=variant.family.declaration,
        entry_point=ENTRY_POINT,
        reference=variant.right[0],
        tests=[assertion(variant, call) for call in _telling_calls(variant, rng)],
        source="tiny",
        license="Apache-2.0",
        meta={"family": variant.family.name, "parameters": dict(variant.parameters), "wrong": list(variant.wrong)},
    )


def assertion(variant: Variant, call: Arguments) -> str:
    """The assert that states the reference's answer on a call."""
    return f"assert {call_source(call)} == {variant.expected(call)}"


def call_source(call: Arguments) -> str:
    """A call of the function, as source text."""
    return f"{ENTRY_POINT}({', '.join(map(repr, call))})"


def _telling_calls(variant: Variant, rng: random.Random) -> list[Arguments]:
    """Three bland calls, one that breaks each wrong solution still unbroken, then edge calls up to TESTS."""
    chosen = {repr(call): call for call in variant.bland_calls[:3]}
    for source in variant.wrong:
        if all(answer(source, call) == variant.expected(call) for call in chosen.values()):
            killer = rng.choice(variant.killers(source))
            chosen[repr(killer)] = killer
    for call in rng.sample(variant.edge_calls, len(variant.edge_calls)):
        if len(chosen) >= TESTS:
            break
        chosen[repr(call)] = call
    return list(chosen.values())
