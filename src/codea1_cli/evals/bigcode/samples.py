"""BigCodeBench's sample files: jsonl of `task_id` and `solution` (or `completion`), or folders of programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.bigcode.tasks import BigCodeTask


@dataclass(frozen=True)
class Sample:
    """One solution; `raw` is the model's text where the file has it, `where` names its place for messages."""

    task_id: str
    solution: str
    raw: str | None = None
    where: str = ""


def read_samples(path: Path, tasks: Mapping[str, BigCodeTask]) -> list[Sample]:
    """The samples of known tasks, in the file's order; samples of other tasks are left out, as the checker does.

    A folder holds one folder a task (`BigCodeBench_0`) with programs `0.py`, `1.py`, ... A `completion` continues the
    task's complete prompt.

    Raises:
        UserError: no such file, a line that is no sample, or no sample of any task.
    """
    rows = _folder(path) if path.is_dir() else _lines(path)
    samples = [_sample(where, row, tasks) for where, row in rows if row.get("task_id") in tasks]
    if not samples:
        raise UserError(f"{path} holds no sample of these tasks", hint='lines are {"task_id": ..., "solution": ...}')
    return samples


def _sample(where: str, row: Mapping[str, Any], tasks: Mapping[str, BigCodeTask]) -> Sample:
    task_id = str(row["task_id"])
    solution = row.get("solution")
    if solution is None and isinstance(row.get("completion"), str):
        solution = tasks[task_id].complete_prompt + row["completion"]
    if not isinstance(solution, str):
        raise UserError(f"{where}: neither solution nor completion", hint="each must be one text; repeat the task_id")
    raw = row.get("raw_solution")
    return Sample(task_id, solution, raw if isinstance(raw, str) else None, where)


def _lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict) or "task_id" not in row:
                    raise UserError(f"{path}:{number}: no sample: it has no task_id")
                yield f"{path}:{number}", row
    except FileNotFoundError:
        raise UserError(f"no file {path}", hint="--samples takes a jsonl file or a folder of programs") from None
    except ValueError as fault:
        if isinstance(fault, UserError):
            raise
        raise UserError(f"{path} is not jsonl: {fault}") from None


def _folder(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for folder in sorted(path.iterdir()):
        files = [file for file in folder.glob("*.py") if file.is_file()] if folder.is_dir() else []
        for file in sorted(files, key=lambda f: (len(f.stem), f.stem)):
            text = file.read_text(encoding="utf-8")
            yield str(file), {"task_id": folder.name.replace("_", "/"), "solution": text}


def sample_line(sample: Sample) -> str:
    """The sample as a line of the benchmark's own files."""
    row = {"task_id": sample.task_id, "solution": sample.solution}
    if sample.raw is not None:
        row["raw_solution"] = sample.raw
    return json.dumps(row) + "\n"


def write_samples(path: Path, samples: Iterable[Sample]) -> int:
    """Writes a sample file that the benchmark's checker accepts; how many samples it holds."""
    from codea1_cli.run_dir import write_atomic

    lines = [sample_line(sample) for sample in samples]
    write_atomic(path, "".join(lines))
    return len(lines)
