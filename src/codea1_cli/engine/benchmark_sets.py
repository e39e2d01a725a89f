"""The benchmarks of a recipe's `eval:` as the arena keeps them: loaded once, scored as often as the policies are sampled.

No policy's process scores anything, and no scoring shares a process with a policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.recipe.schema import Recipe

_FUNCTIONS = 64  # of ult, where the recipe sets no limit
Texts = Mapping[str, Sequence[str]]


class BenchmarkSet(Protocol):
    """`role` is the policy that is sampled, `items` its tasks."""

    @property
    def role(self) -> str: ...

    @property
    def items(self) -> Sequence[Any]: ...

    def score(self, texts: Texts) -> tuple[dict[str, float | None], dict[str, Any]]:
        """Texts by task id to the figures of a metrics line and rows by task. Blocking."""
        ...

    def close(self) -> None: ...


class CodeSet:
    """HumanEval+, MBPP+ or BigCodeBench, under the default prompt style of `codea1 eval-code`."""

    role = "code"

    def __init__(self, name: str, recipe: Recipe, workers: int) -> None:
        from codea1_cli.evals.benchmark import ScoreOptions
        from codea1_cli.evals.evalplus.benchmark import default_cache
        from codea1_cli.evals.registry import open_benchmark

        self.name = name
        self.benchmark = open_benchmark(name)
        self.items = self.benchmark.load(_data(recipe))[: recipe.eval.benchmark_limit]
        self.options = ScoreOptions(
            workers, recipe.eval.benchmark_python, tuple(recipe.sandbox.require), default_cache()
        )

    def score(self, texts: Texts) -> tuple[dict[str, float | None], dict[str, Any]]:
        from codea1_cli.evals.scoring import score_texts

        style = self.benchmark.styles[0]
        told, rows = score_texts(self.benchmark, dict(texts), self.items, style=style, options=self.options)
        return {key.removeprefix(f"{self.name}/"): value for key, value in told.items()}, rows

    def close(self) -> None:
        self.benchmark.close()


class TestSet:
    """`ult` under the one-shot protocol, with the training's own white-box prompt."""

    __test__ = False
    role = "test"

    def __init__(self, recipe: Recipe, workers: int) -> None:
        from codea1_cli.evals.test_generation.in_training import fixed_set

        self.recipe, self.workers = recipe, workers
        self.items = fixed_set(_data(recipe), recipe.eval.benchmark_limit or _FUNCTIONS)
        self.sandbox: Any = None

    def score(self, texts: Texts) -> tuple[dict[str, float | None], dict[str, Any]]:
        from codea1_cli.evals.test_generation.evaluation import WARM
        from codea1_cli.evals.test_generation.in_training import figures
        from codea1_cli.sandbox.local import LocalSandbox

        if self.sandbox is None:
            wish = self.recipe
            self.sandbox = LocalSandbox(
                self.workers, python=wish.eval.benchmark_python, require=tuple(wish.sandbox.require), warm=WARM
            )
        replies = [texts[function.id][0] for function in self.items]
        asked = self.recipe.game.tests_per_suite
        return figures(self.sandbox, self.items, replies, asked, self.workers), {}

    def close(self) -> None:
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None


def role_of(name: str) -> str:
    """The policy that a benchmark measures."""
    return "test" if name == "ult" else "code"


def open_sets(recipe: Recipe, workers: int) -> dict[str, BenchmarkSet]:
    """The sets that the recipe names, loaded.

    Raises:
        UserError, EnvironmentFault: the data of one is not there.
    """
    return {
        name: TestSet(recipe, workers) if role_of(name) == "test" else CodeSet(name, recipe, workers)
        for name in recipe.eval.benchmarks
    }


def check_sets(recipe: Recipe) -> None:
    """Raises UserError or EnvironmentFault where the data of a set that the recipe names is not there."""
    try:
        sets = open_sets(recipe, workers=1)
    except (UserError, EnvironmentFault) as fault:
        where = "eval.benchmark_data=FILE names the release file, or the folder that holds it"
        raise type(fault)(f"eval.benchmarks: {fault.what}", hint=where) from None
    for opened in sets.values():
        opened.close()


def _data(recipe: Recipe) -> Path | None:
    return Path(recipe.eval.benchmark_data).expanduser() if recipe.eval.benchmark_data else None
