"""The pre-training corpus: chats of both roles over the training split's families, parameters and wordings alone."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import Message, code_messages, test_messages
from codea1_cli.tiny.family import ENTRY_POINT
from codea1_cli.tiny.splits import Instance, draw, families_in_turn
from codea1_cli.tiny.suites import TESTS_PER_SUITE, Manners, suite


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
    return f"```python\n{source}\n```"


def _asked(instance: Instance) -> Problem:
    return Problem(
        id="corpus",
        question=instance.question,
        declaration=instance.variant.family.declaration,
        entry_point=ENTRY_POINT,
        reference=instance.variant.right[0],
    )
