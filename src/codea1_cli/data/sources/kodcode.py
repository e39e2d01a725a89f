"""Published sets with rows of their own kind: KodCode, MBPP, and the tasks of benchmarks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codea1_cli.data.sources import build
from codea1_cli.data.sources.rows import HubRows, file_identity, local_rows
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.evals.registry import ROWS, task_sources
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import Row, Skipped, no_text, read_rows

DATASET_KODCODE = "KodCode/KodCode-V1"  # 2.6 GB in 15 files; its commit is read when it is first asked for
DIFFICULTIES = ("easy", "medium", "hard")
_KEPT = ("style", "subset", "version", "gpt_difficulty", "gpt_pass_percentage", "gpt_pass_trial_num")
_COLUMNS = ("question_id", "question", "solution", "test", "test_code", "test_info", *_KEPT)


class KodCode:
    """The hub's dataset, or a downloaded file of it or folder of files.

    Newer revisions have their tests in the column `test`, older ones in `test_code`. `difficulty` keeps the rows of one
    `gpt_difficulty`; `hard` is the paper's rule.
    """

    title = "KodCode-V1"

    def __init__(
        self,
        data: Path | None = None,
        difficulty: str | None = None,
        split: str | None = None,
        revision: str | None = None,
        license: str | None = None,
    ) -> None:
        self.difficulty = difficulty
        self.license = license or "CC-BY-NC-4.0"
        self.rows = local_rows(data) if data else HubRows(DATASET_KODCODE, split or "train", revision)

    def records(self) -> Iterator[tuple[str, Row | Skipped]]:
        """The dataset's or the file's rows, without the trials that most of its bytes are."""
        return self.rows.rows(_COLUMNS)

    def identity(self) -> dict[str, Any]:
        """The rows' own identity, and the difficulty kept."""
        return {"source": "kodcode", "difficulty": self.difficulty, "license": self.license, **self.rows.identity()}

    def convert(self, row: Row) -> Problem | Skipped:
        """One row. Reasons besides those of `build`: difficulty, missing_field, bad_field."""
        difficulty = row.get("gpt_difficulty")
        if self.difficulty is not None and difficulty != self.difficulty:
            return Skipped("difficulty", str(difficulty))
        number = row.get("question_id")
        tests = row.get("test") if row.get("test") is not None else row.get("test_code")
        for name, value in (("question_id", number), ("test or test_code", tests)):
            if (why := no_text(name, value)) is not None:
                return why
        functions = _functions(row.get("test_info"))
        meta = {name: row[name] for name in _KEPT if row.get(name) is not None}
        return build(
            id=f"kodcode/{number}",
            question=row.get("question"),
            reference=row.get("solution"),
            tests=tests,
            entry_point=functions[0] if len(functions) == 1 else None,
            one_function=True,
            source=self.title,
            license=self.license,
            meta=meta,
        )


def _functions(info: Any) -> list[str]:
    """The functions that `test_info` names; parquet copies hold it as JSON text."""
    if isinstance(info, str):
        try:
            info = json.loads(info)
        except ValueError:
            return []
    if not isinstance(info, list):
        return []
    names = (entry.get("function_name") for entry in info if isinstance(entry, dict))
    return [name for name in names if isinstance(name, str) and name]


MBPP_ROWS = {"train": 374, "validation": 90, "test": 500, "prompt": 10}
DATASET_MBPP = "google-research-datasets/mbpp"
_COMMIT_MBPP = "4bb6404fdc6cacfda99d4ac4205087b89d32030c"


class Mbpp:
    """The hub's dataset (all splits by default) or its published `mbpp.jsonl`, or a folder of such files."""

    title = "MBPP"

    def __init__(
        self,
        data: Path | None = None,
        split: str | None = None,
        revision: str | None = None,
        license: str | None = None,
    ) -> None:
        self.license = license or "CC-BY-4.0"
        splits = split or "+".join(MBPP_ROWS)
        unknown = [name for name in splits.split("+") if name not in MBPP_ROWS]
        if unknown and data is None and revision is None:  # of another commit its card tells
            raise UserError(f"mbpp has no split {unknown[0]!r}", hint=f"choose with --split: {', '.join(MBPP_ROWS)}")
        self.rows = local_rows(data) if data else HubRows(DATASET_MBPP, splits, revision or _COMMIT_MBPP, "full")

    def records(self) -> Iterator[tuple[str, Row | Skipped]]:
        """The dataset's or the file's rows."""
        return self.rows.rows()

    def identity(self) -> dict[str, Any]:
        """The rows' own identity."""
        return {"source": "mbpp", "license": self.license, **self.rows.identity()}

    def convert(self, row: Row) -> Problem | Skipped:
        """One row. Reasons besides those of `build`: setup_code (its tests need a program of their own), bad_field."""
        number = row.get("task_id")
        if number is None:
            return Skipped("missing_field", "task_id")
        if row.get("test_setup_code"):
            return Skipped("setup_code", "its tests need test_setup_code")
        tests = row.get("test_list")
        if not tests:
            return Skipped("missing_field", "test_list")
        if not isinstance(tests, list):
            return Skipped("bad_field", "test_list is no list")
        more = row.get("challenge_test_list") or []
        if not isinstance(more, list):
            return Skipped("bad_field", "challenge_test_list is no list")
        return build(
            id=f"mbpp/{number}",
            question=row.get("text"),
            reference=row.get("code"),
            tests=tests,
            extra_tests=[str(test) for test in more],
            keep_test_code=False,
            source=self.title,
            license=self.license,
        )


class BenchmarkTasks:
    """The tasks of the benchmarks of one `TaskSource`, by its name: one file with --data, else those of their files
    that are found.

    A task's further calls go to `meta.calls`, which verification answers with the reference and turns into
    `extra_tests`.
    """

    def __init__(
        self, name: str, data: Path | None = None, benchmarks: Path | None = None, license: str | None = None
    ) -> None:
        about = task_sources()[name]
        self.name, self.title, self.license = name, about.title, license or about.license
        self.benchmarks = [row for row in ROWS.values() if row.source == about]
        self._opened = {row.name: row.open("full") for row in self.benchmarks}
        if data is not None and data.is_file():
            self.files = [data]
            return
        self.files, faults = [], []
        for row in self.benchmarks:
            try:
                self.files.append(row.file(data or benchmarks))
            except (UserError, EnvironmentFault) as fault:
                faults.append(fault)
        if not self.files:
            raise faults[0]

    def records(self) -> Iterator[tuple[str, Row | Skipped]]:
        """The rows of the files, one file after the other."""
        for file in self.files:
            yield from read_rows(file)

    def identity(self) -> dict[str, Any]:
        """The files by their hashes."""
        return {"source": self.name, "license": self.license, "files": [file_identity(file) for file in self.files]}

    def convert(self, row: Row) -> Problem | Skipped:
        """One task of any of the benchmarks; a row whose id has no benchmark's prefix is taken for the last one's."""
        task_id = str(row.get("task_id"))
        about = next((one for one in self.benchmarks if task_id.startswith(one.prefix)), self.benchmarks[-1])
        parts = self._opened[about.name].problem(row)
        if isinstance(parts, Skipped):
            return parts
        calls = parts.pop("calls")
        made = build(**parts, keep_test_code=False, source=f"{self.title} ({about.title})", license=self.license)
        if isinstance(made, Skipped) or not calls:
            return made
        return made.model_copy(update={"meta": {**made.meta, "calls": calls}})
