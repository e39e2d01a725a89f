"""Sample files: EvalPlus' and BigCodeBench's jsonl, read and written; sampling that goes on where it stopped.

Beside `NAME.jsonl`, the sanitised solutions that are scored, lies `NAME.raw.jsonl` with what came before sanitising:
the two files that `evalplus.codegen` writes. A line is added to both when a prompt's samples are there.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.errors import EnvironmentFault, UserError, some
from codea1_cli.evals.benchmark import CodeBenchmark, CodeTask, Sample
from codea1_cli.files import kept_json, read_source
from codea1_cli.problems.row_files import whole_rows


def raw_file(file: Path) -> Path:
    """The raw file beside a sample file."""
    return file.with_name(file.name.removesuffix(".jsonl") + ".raw.jsonl")


def read_samples(
    path: Path, benchmark: CodeBenchmark, tasks: Sequence[CodeTask], strangers: list[str] | None = None
) -> list[Sample]:
    """The samples of a file of rows (`row_files.read_rows`), or of a folder with a `TASK_ID/NUMBER.py` a sample.

    `strangers` receives place and id of each row of another task.

    Raises:
        UserError: there is no such file, a row of it is not a sample, or none is of these tasks.
    """
    known = {task.id: task for task in tasks}
    numbers: Counter[str] = Counter()
    samples: list[Sample] = []
    strangers = [] if strangers is None else strangers
    for where, row in _folder(path) if path.is_dir() else whole_rows(path, "it needs task_id and solution"):
        if not isinstance(row.get("task_id"), str):
            raise UserError(
                f"{where} has no task_id", hint=f"each line needs task_id and solution; an id is {tasks[0].id}"
            )
        task = known.get(row["task_id"])
        if task is None:
            strangers.append(f"{where} {row['task_id']}")
            continue
        try:
            samples.append(benchmark.read(row, task, numbers[task.id]))
        except UserError as fault:
            raise UserError(f"{where}: {fault.what}", hint=fault.hint) from None
        numbers[task.id] += 1
    if not samples:
        raise UserError(
            f"{path} holds no sample of {benchmark.title}",
            hint=f"rows of other tasks: {some(strangers)}" if strangers else "each line needs task_id and solution",
        )
    return samples


def missing_tasks(samples: Iterable[Sample], tasks: Iterable[CodeTask]) -> list[str]:
    """Tasks without a sample."""
    there = {sample.task_id for sample in samples}
    return [task.id for task in tasks if task.id not in there]


def _folder(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for folder in sorted(part for part in path.iterdir() if part.is_dir()):
        files = [file for file in folder.glob("*.py") if file.stem.isdigit()]
        for file in sorted(files, key=lambda file: int(file.stem)):
            yield str(file), {"task_id": folder.name.replace("_", "/"), "solution": read_source(file)}


class SampleFile:
    """The sample file of a job that may be interrupted: what is in it need not be sampled again.

    `settings` are kept in `NAME.settings.json`; a file of other settings is refused.

    Raises:
        UserError: the file was made with other settings.
        EnvironmentFault: it cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.raw = path, raw_file(path)
        self.counts: Counter[str] = Counter()
        note = path.with_name(path.name.removesuffix(".jsonl") + ".settings.json")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                self._check(note, settings)
                self._repair()
            else:
                from codea1_cli.durable import write_atomic

                write_atomic(note, json.dumps(settings, indent=1, sort_keys=True) + "\n")
        except OSError as fault:
            if isinstance(fault, EnvironmentFault):
                raise
            raise EnvironmentFault(f"cannot write {path}: {fault.strerror}", hint="choose another --out") from None

    def _check(self, note: Path, settings: Mapping[str, Any]) -> None:
        before = kept_json(note)
        now = json.loads(json.dumps(settings))
        differing = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        if differing:
            shown = ", ".join(f"{key} {before.get(key)!r} there, {now.get(key)!r} now" for key in differing[:3])
            raise UserError(
                f"{self.path} was sampled with other settings: {shown}",
                hint="choose another --out, or score it with --samples",
            )

    def _repair(self) -> None:
        """Cuts off what a crash left: a torn line, or a sample that is in one file only. The raw file is written first,
        so it is the longer one."""
        whole = list(_whole_lines(self.path))
        raws = list(_whole_lines(self.raw))[: len(whole)]
        whole = whole[: len(raws)]
        for path, lines in ((self.path, whole), (self.raw, raws)):
            with open(path, "r+b") as file:
                file.truncate(sum(map(len, lines)))
        for line in whole:
            self.counts[json.loads(line)["task_id"]] += 1

    def append(self, samples: Sequence[Sample]) -> None:
        """Adds a task's samples, flushed to disk."""
        for path, solutions in ((self.raw, [s.raw for s in samples]), (self.path, [s.solution for s in samples])):
            rows = zip(samples, solutions, strict=True)
            text = "".join(json.dumps({"task_id": s.task_id, "solution": solution}) + "\n" for s, solution in rows)
            with open(path, "ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        for sample in samples:
            self.counts[sample.task_id] += 1


def _whole_lines(path: Path) -> Iterator[bytes]:
    if not path.exists():
        path.touch()
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                json.loads(line)["task_id"]
            except (ValueError, KeyError, TypeError):
                return
            yield line
