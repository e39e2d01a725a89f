"""The benchmarks of a recipe's `eval:`: loaded once in the arena, scored as often as the policies are sampled.

No policy's process scores anything, and no scoring shares a process with a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.evals.eval_set import EvalSet, SetOptions, open_set
from codea1_cli.evals.registry import benchmark_row
from codea1_cli.recipe.schema import Recipe


def set_of(name: str, recipe: Recipe, workers: int = 1) -> EvalSet:
    """A benchmark with the recipe's settings, not yet loaded."""
    wish = recipe.eval
    return open_set(
        name,
        SetOptions(
            data=Path(wish.benchmark_data).expanduser() if wish.benchmark_data else None,
            limit=wish.benchmark_limit,
            n=wish.benchmark_n,
            temperature=wish.benchmark_temperature,
            top_p=wish.benchmark_top_p,
            max_new_tokens=recipe.role(benchmark_row(name).role).max_completion_tokens,
            workers=workers,
            python=wish.benchmark_python,
            require=tuple(recipe.sandbox.require),
            tests_per_suite=recipe.game.tests_per_suite,
        ),
    )


def open_sets(recipe: Recipe, workers: int) -> dict[str, tuple[EvalSet, Sequence[Any]]]:
    """The sets that the recipe names and their items, by name.

    Raises:
        UserError, EnvironmentFault: the data of one is not there.
    """
    sets = {name: set_of(name, recipe, workers) for name in recipe.eval.benchmarks}
    return {name: (opened, opened.load()) for name, opened in sets.items()}


def check_sets(recipe: Recipe) -> None:
    """Raises UserError or EnvironmentFault where the data of a set that the recipe names is not there."""
    try:
        sets = open_sets(recipe, workers=1)
    except (UserError, EnvironmentFault) as fault:
        where = "eval.benchmark_data=FILE names the release file, or the folder that holds it"
        raise type(fault)(f"eval.benchmarks: {fault.what}", hint=where) from None
    for opened, _ in sets.values():
        opened.close()
