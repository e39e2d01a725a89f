"""MBPP: one-sentence tasks with three asserts each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codea1_cli.data.sources.base import build
from codea1_cli.data.sources.rows import HubRows, local_rows
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import Row, Skipped

DATASET = "google-research-datasets/mbpp"


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
        splits = split or "train+validation+test+prompt"
        self.rows = local_rows(data) if data else HubRows(DATASET, splits, revision, "full")

    def records(self) -> Iterator[tuple[str, Row | Skipped]]:
        """The dataset's or the file's rows."""
        return self.rows.rows()

    def identity(self) -> dict[str, Any]:
        """The rows' own identity."""
        return {"source": "mbpp", "license": self.license, **self.rows.identity()}

    def convert(self, place: str, row: Row) -> Problem | Skipped:
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
