"""Bytes that a run leaves on disk, by part. Formulas: docs/plan.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from codea1_cli.planning import constants as c
from codea1_cli.planning.memory import sampled, trainable
from codea1_cli.planning.shapes import ModelShape
from codea1_cli.planning.timing import Lengths
from codea1_cli.recipe.schema import Recipe


def checkpoint_bytes(recipe: Recipe, shapes: Mapping[str, ModelShape]) -> int:
    """One checkpoint of both policies: fp32 weights (with adapters: those alone) and Adam's two moments."""
    return sum(12 * trainable(recipe, shape) for shape in shapes.values()) + c.OTHER_FILES


def run_bytes(
    recipe: Recipe, shapes: Mapping[str, ModelShape], steps: int, lengths: Mapping[str, Lengths]
) -> dict[str, int]:
    """The whole run. One checkpoint more than `checkpoint.keep` lies there while the newest is written."""
    one = checkpoint_bytes(recipe, shapes)
    kept = min(recipe.checkpoint.keep, max(1, -(-steps // recipe.checkpoint.every)))
    candidates, suites = sampled(recipe, "code"), sampled(recipe, "test")
    text = c.BYTES_PER_TOKEN_OF_TEXT * sum(sampled(recipe, role) * lengths[role].completion for role in lengths)
    text += candidates * c.BYTES_PER_TOKEN_OF_TEXT * lengths["code"].completion  # the program beside its reply
    asserts = suites * recipe.game.tests_per_suite * c.ROLLOUT_BYTES_PER_ASSERT
    events = candidates * c.BOOK_EVENTS_PER_CANDIDATE * c.BOOK_BYTES_PER_EVENT if recipe.game.book else 0
    return {
        "checkpoints": kept * one,
        "one being written": one,
        "rollouts": int(steps * c.ROLLOUT_COMPRESSION * (text + asserts)),
        "Mistake Book": int(steps * events),
    }
