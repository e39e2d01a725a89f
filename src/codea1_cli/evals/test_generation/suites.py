"""Files of suites: one JSON line a function, written by a model here, by another tool or by a person."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.errors import UserError
from codea1_cli.evals.test_generation.split_tests import cut_reply, cut_suite


@dataclass(frozen=True)
class Suite:
    """A function's suite: `tests` one by one (None where a reply holds none), and as one `text`."""

    id: str
    tests: tuple[str | None, ...]
    text: str


def suite_of_replies(task_id: str, replies: Iterable[str]) -> Suite:
    """A suite written in rounds: each reply is cut to its first assert."""
    tests = tuple(cut_reply(reply) for reply in replies)
    return Suite(task_id, tests, "\n".join(test for test in tests if test is not None))


def suite_of_text(task_id: str, text: str) -> Suite:
    """A suite written at once."""
    return Suite(task_id, tuple(cut_suite(text)), text)


def read_suites(file: Path) -> dict[str, Suite]:
    """The suites of a file by task id. A row holds `task_id` and one of `suite` (text), `asserts` (a list of statements)
    or `replies` (a list of a model's replies, a test each); other fields are ignored.

    Raises:
        UserError: it cannot be read, or a line is no such row or repeats an id (file and line named).
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}: {error}") from None
    found: dict[str, Suite] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            suite = _suite(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{file}:{number}: no suite: {_what(error)}",
                hint='{"task_id": "7", "suite": "assert f(1) == 2"}, or "asserts": [...], or "replies": [...]',
            ) from None
        if suite.id in found:
            raise UserError(f"{file}:{number}: a second suite for {suite.id}")
        found[suite.id] = suite
    if not found:
        raise UserError(f"{file} holds no suite")
    return found


def _suite(row: dict[str, Any]) -> Suite:
    task_id = str(row["task_id"])
    for field in ("replies", "asserts"):
        if field in row:
            if not isinstance(row[field], list):
                raise TypeError(f"{field} is no list")
            return suite_of_replies(task_id, [part if isinstance(part, str) else "" for part in row[field]])
    if not isinstance(row["suite"], str):
        raise TypeError("suite is no text")
    return suite_of_text(task_id, row["suite"])


def _what(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of ours; a last line that was cut off is dropped."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines, whole or not at all."""
    write_atomic(file, "".join(json.dumps(row) + "\n" for row in rows))
