"""The tiny world's problem rows: what `codea1 train --recipe tiny` trains and evaluates on."""

import random

from codea1_cli.problems.problem import Problem
from codea1_cli.tiny.family import ENTRY_POINT
from codea1_cli.tiny.splits import Instance, Split, draw, families_in_turn
from codea1_cli.tiny.variants import Arguments, Variant, answer

SIZES: dict[Split, int] = {"train": 128, "dev": 96, "heldout": 96}
TESTS = 10


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
    return f"assert {call_source(call)} == {variant.expected(call)}"


def call_source(call: Arguments) -> str:
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
