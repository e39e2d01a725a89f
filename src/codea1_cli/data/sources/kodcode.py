"""KodCode-V1: questions with a solution and pytest tests over `from solution import NAME`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codea1_cli.data.sources.base import build, no_text
from codea1_cli.data.sources.rows import HubRows, local_rows
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import Row, Skipped

DATASET = "KodCode/KodCode-V1"
DIFFICULTIES = ("easy", "medium", "hard")
_KEPT = ("style", "subset", "version", "gpt_difficulty", "gpt_pass_percentage", "gpt_pass_trial_num")


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
        self.rows = local_rows(data) if data else HubRows(DATASET, split or "train", revision)

    def records(self) -> Iterator[tuple[str, Row | Skipped]]:
        """The dataset's or the file's rows."""
        return self.rows.rows()

    def identity(self) -> dict[str, Any]:
        """The rows' own identity, and the difficulty kept."""
        return {"source": "kodcode", "difficulty": self.difficulty, "license": self.license, **self.rows.identity()}

    def convert(self, place: str, row: Row) -> Problem | Skipped:
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
