"""All families, and a family at given parameters: its solutions, checked against each other, and the calls
that tell them apart.

Only sources written in this package are run here, in this process; what a model writes goes to the sandbox.
"""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from world.family import ENTRY_POINT, Family, Parameters, Value, bland, edge
from world.folds import fold_families
from world.singles import single_families

Arguments = tuple[Value, ...]
BLAND_CALLS, EDGE_CALLS = 16, 64
SUBTLE = 0.5  # a wrong solution that most bland calls reveal is left out while enough others remain
MIN_WRONG, MAX_WRONG = 3, 6


@cache
def families() -> dict[str, Family]:
    """Every family by name, in a fixed order."""
    return {family.name: family for family in [*fold_families(), *single_families()]}


@dataclass(frozen=True)
class Variant:
    """`right[0]` is the reference; each of `wrong` differs from it on one of `edge_calls` or `bland_calls`."""

    family: Family
    parameters: Parameters
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    bland_calls: tuple[Arguments, ...]
    edge_calls: tuple[Arguments, ...]

    def killers(self, source: str) -> list[Arguments]:
        """The calls on which a solution answers otherwise than the reference; edge calls first."""
        return [call for call in (*self.edge_calls, *self.bland_calls) if answer(source, call) != self.expected(call)]

    def expected(self, call: Arguments) -> str:
        """The reference's answer, as source text."""
        return answer(self.right[0], call)


@cache
def variant(name: str, values: tuple[tuple[str, int | str], ...]) -> Variant:
    """The variant of a family at `values`, its parameters as ordered pairs (hashable, so that it is built once)."""
    family, parameters = families()[name], dict(values)
    rng = random.Random(f"variant {name} {values}")
    filled = dict(parameters)
    if "k" in parameters:
        filled["near"] = int(parameters["k"]) + rng.choice((-1, 1))
    right = tuple(family.source(body, filled) for body in family.right)
    bland_calls = _distinct(lambda kind: bland(kind, parameters, rng), family, BLAND_CALLS)
    edge_calls = _distinct(lambda kind: edge(kind, parameters, rng), family, EDGE_CALLS)
    found = Variant(family, parameters, right, (), bland_calls, edge_calls)
    sources = dict.fromkeys(family.source(body, filled) for body in family.wrong)
    revealed = {
        source: sum(answer(source, call) != found.expected(call) for call in bland_calls) / len(bland_calls)
        for source in sources
        if found.killers(source)
    }
    ranked = sorted(revealed, key=lambda source: revealed[source])
    subtle = [source for source in ranked if revealed[source] <= SUBTLE]
    wrong = (subtle if len(subtle) >= MIN_WRONG else ranked[:MIN_WRONG])[:MAX_WRONG]
    return Variant(family, parameters, right, tuple(wrong), bland_calls, edge_calls)


def _distinct(draw: Callable[[str], Value], family: Family, tries: int) -> tuple[Arguments, ...]:
    calls = [tuple(draw(kind) for kind in family.arguments) for _ in range(tries)]
    return tuple({repr(call): call for call in calls}.values())


def answer(source: str, call: Arguments) -> str:
    """What a solution of this package returns on a call, as source text; an exception gives its name in angles."""
    try:
        return repr(_function(source)(*copy.deepcopy(call)))
    except Exception as error:
        return f"<{type(error).__name__}>"


@cache
def _function(source: str) -> Callable[..., object]:
    namespace: dict[str, Callable[..., object]] = {}
    exec(compile(source, "<tiny>", "exec"), namespace)
    return namespace[ENTRY_POINT]
