"""Whether a few samples taken before the first step speak against the run, and what to change. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codea1_cli.recipe.schema import Recipe


@dataclass(frozen=True)
class Tried:
    """What one rank saw. `clipped` replies have no end within the limit; `usable` suites hold an assert of the asked
    form, `usable` programs are not empty; `longest_prompt` in tokens."""

    replies: int = 0
    clipped: int = 0
    usable: int = 0
    prompts: int = 0
    too_long: int = 0
    longest_prompt: int = 0

    def __add__(self, other: Tried) -> Tried:
        return Tried(
            self.replies + other.replies,
            self.clipped + other.clipped,
            self.usable + other.usable,
            self.prompts + other.prompts,
            self.too_long + other.too_long,
            max(self.longest_prompt, other.longest_prompt),
        )


@dataclass(frozen=True)
class Finding:
    """A reason not to begin, and which keys to change."""

    what: str
    advice: str


def problem_choice(ids: Sequence[str], count: int, rank: int, ranks: int) -> list[str]:
    """The problems that a rank tries: `count` of all, evenly spaced, shared by the ranks; at least one for each rank,
    because they synchronise weights together."""
    step = max(len(ids) // count, 1)
    chosen = list(ids)[::step][:count]
    return [chosen[place % len(chosen)] for place in range(rank, max(len(chosen), ranks), ranks)]


def findings(recipe: Recipe, code: Tried, test: Tried) -> list[Finding]:
    """Why the run would teach nothing; empty when nothing speaks against it."""
    found = []
    for role, tried in (("code", code), ("test", test)):
        limit = recipe.role(role).max_completion_tokens
        if 2 * tried.clipped > tried.replies:
            found.append(
                Finding(
                    f"{tried.clipped} of {tried.replies} {role} replies do not end within {role}.max_completion_tokens={limit}",
                    f"raise {role}.max_completion_tokens, or take a model that was taught to end its replies",
                )
            )
    if 2 * test.too_long > test.prompts:
        found.append(
            Finding(
                f"{test.too_long} of {test.prompts} test prompts exceed test.max_prompt_tokens={recipe.test.max_prompt_tokens}",
                f"raise test.max_prompt_tokens to {test.longest_prompt} or more, lower code.max_completion_tokens, "
                "or set game.white_box=false",
            )
        )
    if test.replies and not test.usable:
        found.append(
            Finding(
                f"no suite parses: none of {test.replies} replies holds an assert of the asked form",
                "take a model that follows the format (model, test.model), or raise test.max_completion_tokens",
            )
        )
    return found
