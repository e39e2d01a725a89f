"""The pre-training corpus: chats of both roles over the training split's families, parameters and wordings alone.

The suites in it have the manners that the embedded model picks up: careful or sloppy, aimed or bland.

A suite is aimed when its calls are chosen to break the candidate shown, bland when any typical call will do; a comment
on its first line says which. A sloppy suite has asserts that a reference does not bear out. The mixture is what makes
the model a weak student with room to learn: whole suites of a group differ in what the game pays for.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import Message, code_messages, test_messages
from world.family import ENTRY_POINT, bland, edge
from world.problems import Instance, call_source, draw, families_in_turn
from world.variants import Arguments, Variant, answer

AIMED_COMMENT = "# edge cases"
BLAND_COMMENT = "# simple cases"
TESTS_PER_SUITE = 4


@dataclass(frozen=True)
class Manners:
    """Shares (0 to 1) of the corpus's suites and asserts."""

    aimed: float = 0.3  # suites whose calls are chosen to break the candidate
    kill: float = 0.85  # asserts of an aimed suite that do break a wrong candidate
    sloppy: float = 0.3  # suites written without care
    slip: float = 0.6  # asserts of a sloppy suite that are broken


def suite(variant: Variant, candidate: str, manners: Manners, rng: random.Random, size: int = TESTS_PER_SUITE) -> str:
    """The lines of one suite of `size` asserts against a candidate, with the comment that names its aim."""
    aimed = rng.random() < manners.aimed
    slip = manners.slip if rng.random() < manners.sloppy else 0.0
    killers = (
        [call for call in variant.edge_calls if answer(candidate, call) != variant.expected(call)] if aimed else []
    )
    lines: list[str] = []
    used: set[str] = set()
    while len(lines) < size:
        call = _call(variant, aimed, killers, manners, rng)
        if repr(call) in used and len(used) < len(variant.edge_calls) - size:
            continue
        used.add(repr(call))
        lines.append(_slip(variant, call, lines, rng) if rng.random() < slip else _line(call, variant.expected(call)))
    return "\n".join([AIMED_COMMENT if aimed else BLAND_COMMENT, *lines])


def _call(variant: Variant, aimed: bool, killers: list[Arguments], manners: Manners, rng: random.Random) -> Arguments:
    if not aimed:
        return tuple(bland(kind, variant.parameters, rng) for kind in variant.family.arguments)
    if killers and rng.random() < manners.kill:
        return rng.choice(killers)
    return tuple(edge(kind, variant.parameters, rng) for kind in variant.family.arguments)


def _line(call: Arguments, value: str) -> str:
    return f"assert {call_source(call)} == {value}"


def _slip(variant: Variant, call: Arguments, lines: list[str], rng: random.Random) -> str:
    """An assert gone wrong: a repeat, a wrong answer, arguments that do not fit, or a line that does not parse."""
    value = variant.expected(call)
    match rng.randrange(6):
        case 0 if lines:
            return rng.choice(lines)
        case 1:
            other = variant.expected(rng.choice(variant.bland_calls))
            return _line(call, other if other != value else "None")
        case 2:
            return _line((*call, rng.randint(1, 9)), value)
        case 3:
            return f"assert {ENTRY_POINT}() == {value}"
        case 4:
            return f"assert {call_source(call)[:-1]} == {value}"
        case _:
            return f"assert {ENTRY_POINT}({', '.join(['None'] * len(call))}) == {value}"


@dataclass(frozen=True)
class Mixture:
    """Shares (0 to 1) of the corpus. The wrong solutions are there on purpose: they make the weak student."""

    code: float = 0.45  # documents of the Code role, the others are the Test role's
    right: float = 0.4  # Code documents whose solution is right
    right_candidate: float = 0.35  # Test documents that show a right solution
    blind: float = 0.05  # Test documents that show the declaration in place of a candidate
    manners: Manners = field(default_factory=Manners)


@dataclass(frozen=True)
class Document:
    """A prompt and the reply that the model learns to give."""

    messages: list[Message]
    reply: str
    family: str


def documents(count: int, seed: int, mixture: Mixture | None = None) -> Iterator[Document]:
    """`count` documents, the same ones for the same seed."""
    mixture = mixture or Mixture()
    rng = random.Random(f"corpus {seed}")
    names = families_in_turn(rng)
    for _ in range(count):
        instance = draw(next(names), "train", rng)
        yield (
            _code_document(instance, mixture, rng)
            if rng.random() < mixture.code
            else _test_document(instance, mixture, rng)
        )


def _code_document(instance: Instance, mixture: Mixture, rng: random.Random) -> Document:
    reply = rng.choice(instance.variant.right if rng.random() < mixture.right else instance.variant.wrong)
    return Document(code_messages(_asked(instance)), fenced(reply), instance.variant.family.name)


def _test_document(instance: Instance, mixture: Mixture, rng: random.Random) -> Document:
    variant = instance.variant
    candidate = rng.choice(variant.right if rng.random() < mixture.right_candidate else variant.wrong)
    reply = suite(variant, candidate, mixture.manners, rng)
    shown = None if rng.random() < mixture.blind else candidate
    return Document(test_messages(_asked(instance), shown, TESTS_PER_SUITE), fenced(reply), variant.family.name)


def fenced(source: str) -> str:
    """A reply that is one block of Python."""
    return f"```python\n{source}\n```"


def _asked(instance: Instance) -> Problem:
    return Problem(
        id="corpus",
        question=instance.question,
        declaration=instance.variant.family.declaration,
        entry_point=ENTRY_POINT,
        reference=instance.variant.right[0],
    )
