"""The work folder of a preparation: one append-only file per stage and a manifest, so that an interrupted run goes on.

Lines are flushed to disk in batches; a torn last line, which a crash may leave, is cut off and made again. A stage is
kept as long as its key (its options and everything before it) is the same, else it starts anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from codea1_cli.durable import locked_folder, write_atomic
from codea1_cli.errors import UserError
from codea1_cli.files import kept_json
from codea1_cli.problems.problem import Problem

_FLUSH_LINES = 256
_FLUSH_SECONDS = 2.0


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
