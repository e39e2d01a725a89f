"""The tasks of HumanEval+ and MBPP+ from EvalPlus' release files or the hub."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.evalplus.inputs import arguments_of

FILES = {"humaneval": "humaneval_plus.jsonl.gz", "mbpp": "mbpp_plus.jsonl.gz"}
TITLES = {"humaneval": "HumanEval+", "mbpp": "MBPP+"}
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
    """The tasks from a file, a folder of release files, CODEA1_SHARED, or the hub.

    Raises:
        UserError: there is no such file, or it holds no tasks of this benchmark.
        EnvironmentFault: the hub cannot be reached.
    """
    file = data_file(benchmark, data)
    if file is None:
        from codea1_cli.evals.evalplus.hub import hub_rows

        rows, origin = hub_rows(benchmark)
    else:
        rows, origin = _rows(file), str(file)
    prefix = {"humaneval": "HumanEval/", "mbpp": "Mbpp/"}[benchmark]
    if not rows or not all(str(row.get("task_id", "")).startswith(prefix) for row in rows):
        raise UserError(f"{origin} holds no tasks of {TITLES[benchmark]}", hint=f"give {FILES[benchmark]} with --data")
    tasks = [_task(row, origin) for row in rows]
    text = json.dumps(rows, sort_keys=True, default=repr)
    return Loaded(tasks, hashlib.sha256(text.encode()).hexdigest()[:16], origin)


def data_file(benchmark: str, data: Path | None) -> Path | None:
    """The local file that is meant; None where only the hub is left.

    Raises:
        UserError: `data` is given and holds none.
    """
    name = FILES[benchmark]
    if data is not None:
        data = data.expanduser()
        if data.is_file():
            return data
        for file in (data / name, data / "data" / "bench" / name):
            if file.is_file():
                return file
        raise UserError(f"there is no {name} in {data}", hint="--data takes the release file or its folder")
    shared = os.environ.get("CODEA1_SHARED")
    file = Path(shared or "") / "data" / "bench" / name
    return file if shared and file.is_file() else None


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, EOFError) as fault:
        raise UserError(f"cannot read {file}: {fault}", hint="it should be a release file of EvalPlus") from None


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
