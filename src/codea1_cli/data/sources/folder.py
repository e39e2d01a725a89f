"""The rows of a local folder of tables, file by file, with the readers of single files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codea1_cli.data.sources.base import FORMATS, FileRows, Row, Skipped, format_of
from codea1_cli.errors import UserError, some

log = logging.getLogger(__name__)

_DATA_LIKE = (".json", ".tsv", ".txt", ".xlsx", ".arrow", ".gz", ".zst", ".bz2", ".xz", ".zip", ".py")


class FolderRows:
    """The rows of every .jsonl, .jsonl.gz, .parquet and .csv file below a folder, in the order of their paths.

    Hidden files and folders, and folders that prepare-data made, are not looked into. Other files that may hold data are
    named in a warning.

    Raises:
        UserError: no such file is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        files = sorted(visible_files(path))
        self.files = [FileRows(file) for file in files if format_of(file)]
        if not self.files:
            raise UserError(f"no table in {path}", hint=f"a folder with {', '.join(FORMATS)} files in it")
        other = [file for file in files if not format_of(file) and file.name.lower().endswith(_DATA_LIKE)]
        if other:
            log.warning("%s: not read: %s", path, named(path, other))

    @property
    def name(self) -> str:
        return self.path.resolve().name or "folder"

    def rows(self) -> Iterator[tuple[str, Row | Skipped]]:
        for file in self.files:
            yield from file.rows()

    def identity(self) -> dict[str, Any]:
        files = [
            {**file.identity(), "file": file.path.relative_to(self.path).as_posix()} for file in self.files
        ]  # fmt: skip
        return {"folder": self.name, "files": files}


def local_rows(path: Path) -> FileRows | FolderRows:
    """The rows of a file, or of a folder of files."""
    return FolderRows(path) if path.is_dir() else FileRows(path)


def visible_files(folder: Path) -> Iterator[Path]:
    """The files below `folder` but for hidden ones and what prepare-data wrote, which is known by its work folder."""
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            yield entry
        elif entry.is_dir() and not entry.is_symlink() and not (entry / ".work").is_dir():
            yield from visible_files(entry)


def named(folder: Path, files: list[Path]) -> str:
    """The files' paths below `folder`, the first few of them."""
    return some([file.relative_to(folder).as_posix() for file in files])
