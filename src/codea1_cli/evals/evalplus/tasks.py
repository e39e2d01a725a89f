"""The tasks of HumanEval+ and MBPP+ from EvalPlus' release files or the hub."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.evalplus.inputs import arguments_of
from codea1_cli.evals.registry import BenchmarkRow, benchmark_row
from codea1_cli.problems.benchmark_files import Task, docstring_of, find_file, read_rows

NAMES = ("humaneval", "mbpp")
_FIELDS = ("task_id", "prompt", "canonical_solution", "entry_point", "base_input", "plus_input")


@dataclass(frozen=True)
class PlusTask:
    """One task. `inputs` holds the arguments of each call, by "base" and "plus"; `atol` is the task's own tolerance."""

    id: str
    prompt: str
    canonical: str
    entry_point: str
    inputs: dict[str, list[Any]]
    atol: float

    @property
    def reference(self) -> str:
        """The canonical solution as the whole program that EvalPlus runs."""
        return self.prompt + self.canonical


@dataclass(frozen=True)
class Loaded:
    """The tasks of one benchmark in their order, and the hash of their text."""

    tasks: list[PlusTask]
    hash: str
    origin: str


def load(benchmark: str, data: Path | None) -> Loaded:
    """The tasks from a release file, a folder that holds it, CODEA1_SHARED, or the hub.

    Raises:
        UserError: there is no such file, or it holds no tasks of this benchmark.
        EnvironmentFault: the hub cannot be reached.
    """
    about = benchmark_row(benchmark)
    file = find_file(about.title, about.files, data)
    if file is None:
        from codea1_cli.evals.evalplus.hub import release_rows

        rows, origin = release_rows(about)
    else:
        rows, origin = [row for _, row in read_rows(file)], str(file)
    if not rows or not all(
        isinstance(row, dict) and str(row.get("task_id", "")).startswith(about.prefix) for row in rows
    ):
        raise UserError(f"{origin} holds no tasks of {about.title}", hint=f"give {about.files[0]} with --data")
    tasks = [_task(row, origin) for row in rows]
    text = json.dumps(rows, sort_keys=True, default=repr)
    return Loaded(tasks, hashlib.sha256(text.encode()).hexdigest()[:16], origin)


def public_task(about: BenchmarkRow, row: Mapping[str, Any]) -> Task:
    """A row of a release file as training data is compared with it; HumanEval's programs are split over two fields."""
    prompt, program, entry = row["prompt"], row["canonical_solution"], row["entry_point"]
    if about.name == "humaneval":
        program, tests = prompt + program, re.sub(r"\bcandidate\b", entry, row["test"])
    else:
        tests = row["assertion"]
    return Task(about.title, row["task_id"], docstring_of(prompt), program, entry, tests)


def _task(row: dict[str, Any], origin: str) -> PlusTask:
    missing = [name for name in _FIELDS if name not in row]
    if missing:
        raise UserError(f"a task of {origin} lacks {', '.join(missing)}", hint="give a release file of EvalPlus")
    inputs = {}
    for name in ("base", "plus"):
        stored = row[f"{name}_input"]
        stored = stored if isinstance(stored, list) else []  # a task without plus inputs stores {}
        try:
            inputs[name] = stored if row.get("decoded") else arguments_of(row["task_id"], stored)
        except (TypeError, ValueError, LookupError, AttributeError) as fault:
            raise UserError(f"{row['task_id']} of {origin} has unreadable inputs: {fault}") from None
    return PlusTask(
        row["task_id"],
        row["prompt"],
        row["canonical_solution"],
        row["entry_point"],
        inputs,
        float(row.get("atol") or 0),
    )
