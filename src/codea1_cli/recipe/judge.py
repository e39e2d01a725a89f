"""What a recipe says of the judge, as the judge takes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codea1_cli.judging.judge import Judge, ReferenceCache
from codea1_cli.judging.step import StepJudge
from codea1_cli.recipe.schema import Recipe
from codea1_cli.sandbox.base import Limits


def open_judge(recipe: Recipe, *, workers: int | None = None, cache: Path | None = None, spread: bool = False) -> Judge:
    """The judge that a recipe asks for, with its limits, on its sandbox. Whoever opens it closes `sandbox` and `cache`.

    Args:
        workers: programs at once; None: what the recipe says.
        cache: the folder of the reference's answers; None keeps them in memory.
        spread: judge on every node of the Ray cluster that this process is connected to.

    Raises:
        EnvironmentFault: the sandbox does not start, or lacks a required layer.
    """
    from codea1_cli.sandbox.make import SandboxOptions, make_sandbox

    section = recipe.judge
    sandbox = SandboxOptions(**recipe.sandbox.model_dump(), workers=workers or section.workers, spread=spread)
    return Judge(
        make_sandbox(sandbox),
        limits=Limits(time_s=section.time_limit_s, memory_mb=section.memory_mb),
        tolerance=section.float_tolerance,
        cache=ReferenceCache(cache),
    )


@contextmanager
def judge_of(recipe: Recipe) -> Iterator[Judge]:
    """The judge that a run of `recipe` uses, one program at once unless the recipe says otherwise, for one block.

    Raises:
        EnvironmentFault: as `open_judge`.
    """
    judge = open_judge(recipe, workers=recipe.judge.workers or 1)
    try:
        yield judge
    finally:
        judge.sandbox.close()
        judge.cache.close()


def open_step_judge(recipe: Recipe, run_path: Path, *, spread: bool = False) -> StepJudge:
    """The judge of a run's steps; the reference's answers are kept in the run directory.

    Raises:
        EnvironmentFault: as `open_judge`.
    """
    judge = open_judge(recipe, cache=run_path / "references", spread=spread)
    return StepJudge(recipe.game, judge)
