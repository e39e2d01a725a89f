"""The problems of a run: from a built-in set, a file, or a folder with `train.jsonl`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from codea1_cli.errors import UserError
from codea1_cli.problems.problem import Problem, read_problems
from codea1_cli.recipe.schema import Recipe

BUILTIN = "builtin:tiny/"


def problems_file(source: str) -> Path:
    """The file behind `data.train` or `data.heldout`.

    Raises:
        UserError: it does not exist.
    """
    if source.startswith(BUILTIN):
        from codea1_cli.tiny import problems_path

        return problems_path(source.removeprefix(BUILTIN))
    path = Path(source).expanduser()
    if path.is_dir():
        path = path / "train.jsonl"
    if not path.is_file():
        raise UserError(
            f"no problems at {source}", hint="give a .jsonl, .jsonl.gz or .parquet file, or builtin:tiny/train"
        )
    return path


def training_problems(recipe: Recipe) -> list[Problem]:
    """The recipe's training problems, in file order.

    Raises:
        UserError: no source is named, the file is missing or broken, or it holds no problem.
    """
    if recipe.data.train is None:
        expects = f"; this recipe expects {recipe.data.expects}" if recipe.data.expects else ""
        raise UserError(f"the recipe names no training data{expects}", hint="add data.train=FILE.jsonl")
    problems = read_problems(problems_file(recipe.data.train), recipe.data.limit)
    if not problems:
        raise UserError(f"{recipe.data.train} holds no problem")
    return problems


def heldout_problems(recipe: Recipe) -> list[Problem]:
    """The held-out problems that have tests; an empty list when the recipe names none.

    Raises:
        UserError: the file is missing or broken, or none of its problems has a test.
    """
    if recipe.data.heldout is None:
        return []
    problems = [p for p in read_problems(problems_file(recipe.data.heldout)) if p.tests]
    if not problems:
        raise UserError(
            f"no problem of {recipe.data.heldout} has tests, so nothing can be evaluated",
            hint="give held-out problems with tests, or data.heldout=null",
        )
    return problems[: recipe.eval.limit]


def file_hash(source: str) -> str:
    """SHA-256 of the problems file."""
    return hashlib.sha256(problems_file(source).read_bytes()).hexdigest()
