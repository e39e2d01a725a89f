"""Problems: where they come from and which of them a run can use. Here is what a preparation keeps.

The card says what the prepared folder holds: README.md to read, card.json for programs. The work folder holds one
append-only file per stage and a manifest, so that an interrupted preparation goes on: lines are flushed to disk in
batches; a torn last line, which a crash may leave, is cut off and made again. A stage is kept as long as its key (its
options and everything before it) is the same, else it starts anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from codea1_cli.durable import locked_folder, write_atomic
from codea1_cli.errors import UserError, counted
from codea1_cli.files import kept_json
from codea1_cli.problems.problem import Problem

_FLUSH_LINES = 256
_FLUSH_SECONDS = 2.0


@dataclass
class Card:
    """Everything but measured times, so that the same input gives the same bytes.

    removed: rows by stage and reason. tests: problems by their number of tests, prompt_tokens: by tokens.
    """

    title: str
    command: str
    version: str
    seed: int
    source: dict[str, Any]
    options: dict[str, Any]
    read: int = 0
    removed: dict[str, Counter[str]] = field(default_factory=dict)
    kept: int = 0
    splits: dict[str, int] = field(default_factory=dict)
    licenses: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    tests: Counter[int] = field(default_factory=Counter)
    prompt_tokens: Counter[int] = field(default_factory=Counter)
    solve_rates: Counter[float] = field(default_factory=Counter)
    extra_tests_dropped: int = 0
    benchmarks: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """The card in JSON's types."""
        plain = dict(vars(self))
        plain["removed"] = {stage: dict(sorted(counts.items())) for stage, counts in self.removed.items() if counts}
        for name in ("licenses", "sources", "tests", "prompt_tokens", "solve_rates"):
            plain[name] = {str(key): count for key, count in sorted(plain[name].items())}
        return plain

    def json(self) -> str:
        """`card.json`."""
        return json.dumps(self.data(), indent=1, ensure_ascii=False) + "\n"

    def markdown(self) -> str:
        """`README.md`, the data card."""
        licenses = ", ".join(f"{name or 'not stated'}: {count}" for name, count in sorted(self.licenses.items()))
        parts = [
            f"# {self.title}: {counted(self.kept, 'problem')}",
            f"Made by codea1 {self.version} with\n\n    {self.command}",
            f"Of {counted(self.read, 'row')} read, this holds {self.kept}. "
            f"The licence of each row is in its field `license` "
            f"({licenses or 'no rows'}).",
            *([] if not self.notes else ["\n".join(f"- {note}" for note in self.notes)]),
            "## Files",
            table(
                ("file", "rows", "bytes", "SHA-256"),
                [(name, f.get("rows", ""), f["bytes"], f["sha256"]) for name, f in self.files.items()],
            ),
            "## Source",
            table(("", ""), list(_flat(self.source))),
            table(("source", "rows kept"), sorted(self.sources.items())),
            "## Rows removed",
            table(
                ("stage", "reason", "rows"),
                [(stage, reason, n) for stage, counts in self.removed.items() for reason, n in sorted(counts.items())],
            ),
            "`removed.jsonl` lists each of them, with the row that it collides with.",
            "## Tests a problem",
            table(("tests", "problems"), buckets(self.tests)),
        ]
        if self.prompt_tokens:
            parts += ["## Tokens of the prompt", table(("tokens", "problems"), buckets(self.prompt_tokens))]
        if self.solve_rates:
            parts += ["## Solve rate", table(("rate", "problems"), sorted(self.solve_rates.items()))]
        if self.benchmarks:
            parts += ["## Decontaminated against", table(("benchmark", "tasks"), list(self.benchmarks.items()))]
        parts += ["## Options", table(("", ""), list(_flat(self.options)))]
        return "\n\n".join(parts) + "\n"


def buckets(counts: Mapping[int, int], most: int = 12) -> list[tuple[str, int]]:
    """Counts by range, each range as wide as the next of 1, 2, 5, 10, ... that needs no more than `most` of them."""
    if not counts:
        return []
    low, high = min(counts), max(counts)
    width = next(
        base * 10**power for power in range(12) for base in (1, 2, 5) if (high - low) // (base * 10**power) < most
    )
    first = low - low % width
    grouped: Counter[int] = Counter()
    for value, count in counts.items():
        grouped[(value - first) // width] += count
    return [
        (str(start) if width == 1 else f"{start}-{start + width - 1}", grouped[place])
        for place in range(max(grouped) + 1)
        for start in (first + place * width,)
    ]


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            rows += _flat(item, f"{prefix}{key}.")
        elif isinstance(item, list) and item and all(isinstance(part, Mapping) for part in item):
            for place, part in enumerate(item, start=1):
                rows += _flat(part, f"{prefix}{key}.{place}.")
        elif item not in (None, "", [], {}):
            rows.append((f"{prefix}{key}", str(item)))
    return rows


def table(head: tuple[str, ...], rows: list[Any]) -> str:
    """A table in Markdown; a cell is one line."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |" for row in rows
    ]
    return "\n".join(lines)


# -- the work folder ---------------------------------------------------------------------------------------------------
class WorkFolder:
    """The folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: dict[str, dict[str, Any]] = {}

    @contextlib.contextmanager
    def locked(self, wait: bool = False) -> Iterator[WorkFolder]:
        """Holds the folder, waiting for another process where asked.

        Raises:
            UserError: another process prepares data here.
            EnvironmentFault: it cannot be written.
        """

        def taken(holder: str) -> UserError:
            return UserError(
                f"process {holder} prepares data in {self.folder.parent}",
                hint="wait for it with --wait, or choose another --out",
            )

        with locked_folder(self.folder, str(self.folder), "choose another --out", taken, wait):
            self.manifest = kept_json(self.folder / "manifest.json")
            yield self

    def stage(self, name: str, key: str, resumable: bool) -> Stage:
        """A stage's file, emptied when its key changed or when it is unfinished and cannot be resumed."""
        known = self.manifest.get(name, {})
        keep = known.get("key") == key and (known.get("done") or resumable)
        stage = Stage(self, name, self.folder / f"{name}.jsonl", fresh=not keep, done=bool(keep and known.get("done")))
        if not keep:
            self.note(name, key=key, done=False)
        return stage

    def note(self, name: str, **facts: Any) -> None:
        """Adds facts about a stage to the manifest on disk."""
        self.manifest[name] = {**self.manifest.get(name, {}), **facts}
        write_atomic(self.folder / "manifest.json", json.dumps(self.manifest, indent=1) + "\n")


class Stage:
    """One stage's lines. `len(stage)` counts the whole lines there are; appending is for one thread."""

    def __init__(self, work: WorkFolder, name: str, path: Path, fresh: bool, done: bool) -> None:
        self.work, self.name, self.path, self.done = work, name, path, done
        if fresh:
            path.unlink(missing_ok=True)
        path.touch()
        self.offsets = _line_offsets(path)
        self._file: BinaryIO | None = None
        self._waiting = 0
        self._flushed = time.monotonic()

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, record: dict[str, Any]) -> None:
        """Adds a line, which reaches the disk with the next batch of them."""
        if self._file is None:
            self._file = self.path.open("ab")
        self.offsets.append(self._file.tell())
        self._file.write(json.dumps(record, ensure_ascii=True).encode() + b"\n")
        self._waiting += 1
        if self._waiting >= _FLUSH_LINES or time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Brings every line so far to the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._waiting, self._flushed = 0, time.monotonic()

    def finish(self) -> None:
        """Marks the stage as whole."""
        self.close()
        self.done = True
        self.work.note(self.name, done=True, lines=len(self))

    def close(self) -> None:
        """Flushes and closes the file; the stage may be appended to again."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.flush()
        with self.path.open("rb") as file:
            for line in file:
                yield json.loads(line)

    def at(self, number: int) -> dict[str, Any]:
        """Line `number`, from 0."""
        with self.path.open("rb") as file:
            file.seek(self.offsets[number])
            return json.loads(file.readline())


class Rows:
    """The problems that the read stage left, by their line's number; `alive` marks those not yet removed."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.alive = bytearray(len(stage))

    def get(self, number: int) -> Problem:
        """The problem of a row, alive or not."""
        return Problem.model_validate(self.stage.at(number)["problem"])

    def living(self) -> Iterator[tuple[int, Problem]]:
        """(number, problem) of the rows still there, in order."""
        with self.stage.path.open("rb") as file:
            for number, line in zip(range(len(self.alive)), file, strict=False):
                if self.alive[number]:
                    yield number, Problem.model_validate(json.loads(line)["problem"])

    def count(self) -> int:
        """How many rows are alive."""
        return self.alive.count(1)


def _line_offsets(path: Path) -> array[int]:
    """Where each whole line begins; what follows the last newline is cut off."""
    offsets, position = array("Q"), 0
    with path.open("r+b") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            offsets.append(position)
            position += len(line)
        file.truncate(position)
    return offsets
