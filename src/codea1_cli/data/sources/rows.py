"""The rows of a file, of a folder of files, or of a dataset on the hub, read without stopping at a broken one."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.data.sources.base import Row, Skipped
from codea1_cli.errors import EnvironmentFault, UserError, first_line, some
from codea1_cli.problems.benchmark_files import hub_rows

log = logging.getLogger(__name__)

FORMATS = (".jsonl", ".jsonl.gz", ".parquet", ".csv")
_DATA_LIKE = (".json", ".tsv", ".txt", ".xlsx", ".arrow", ".gz", ".zst", ".bz2", ".xz", ".zip", ".py")


@dataclass(frozen=True)
class FileRows:
    """The rows of one file."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.path.name.split(".")[0]

    def rows(self) -> Iterator[tuple[str, Row | Skipped]]:
        """As `read_rows`."""
        return read_rows(self.path)

    def identity(self) -> dict[str, Any]:
        """As `file_identity`."""
        return file_identity(self.path)


class FolderRows:
    """The rows of every .jsonl, .jsonl.gz, .parquet and .csv file below a folder, in the order of their paths.

    Hidden files and folders, and folders that prepare-data made, are not looked into. Other files that may hold data
    are named in a warning.

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
        """The folder's own name."""
        return self.path.resolve().name or "folder"

    def rows(self) -> Iterator[tuple[str, Row | Skipped]]:
        """The files' rows, one file after the other."""
        for file in self.files:
            yield from file.rows()

    def identity(self) -> dict[str, Any]:
        """The files by their paths below the folder and their hashes."""
        files = [
            {**file.identity(), "file": file.path.relative_to(self.path).as_posix()} for file in self.files
        ]  # fmt: skip
        return {"folder": self.name, "files": files}


class HubRows:
    """One split of a dataset on the hub.

    Raises, when read:
        UserError: there is no such configuration or split.
        EnvironmentFault: there is no such dataset, or the hub cannot be reached.
    """

    def __init__(self, dataset: str, split: str, revision: str | None = None, config: str | None = None) -> None:
        self.dataset, self.split, self.revision, self.config = dataset, split, revision, config

    @property
    def name(self) -> str:
        """The dataset's id."""
        return self.dataset

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Streamed rows, each with its number in the split."""
        return hub_rows(self.dataset, self.split, revision=self.revision, config=self.config)

    def identity(self) -> dict[str, Any]:
        """The dataset, its configuration and split, and the commit that is read."""
        return {"dataset": self.dataset, "config": self.config, "split": self.split, "revision": self._pinned()}

    def _pinned(self) -> str | None:
        """The commit that the revision stands for, so that a resumed read cannot mix two; None for a local folder."""
        if os.path.isdir(self.dataset):
            return None
        from httpx import HTTPError
        from huggingface_hub import HfApi
        from huggingface_hub.errors import OfflineModeIsEnabled

        try:
            self.revision = HfApi().dataset_info(self.dataset, revision=self.revision, timeout=30).sha
        except (HTTPError, OfflineModeIsEnabled, OSError) as error:  # the hub's own errors are HTTPErrors
            raise EnvironmentFault(
                f"cannot reach the dataset {self.dataset}: {first_line(error)}",
                hint="check the name and the network; a downloaded file can be read in its place",
            ) from None
        return self.revision


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


def format_of(path: Path) -> str | None:
    """The suffix of a file of rows, None for another file."""
    return next((suffix for suffix in FORMATS if path.name.lower().endswith(suffix)), None)


def read_rows(path: Path) -> Iterator[tuple[str, Row | Skipped]]:
    """(`file:line`, row) of a .jsonl, .jsonl.gz, .parquet or .csv file; a broken line is a Skipped in its place.

    Raises:
        UserError: the file is missing, of another kind, or unreadable as a whole.
    """
    kind = format_of(path)
    if kind is None:
        raise UserError(f"cannot tell the format of {path}", hint=f"name it {', '.join(FORMATS)}")
    if not path.is_file():
        raise UserError(f"no such file: {path}", hint="give the path of a file that exists")
    if kind == ".parquet":
        yield from _parquet(path)
    elif kind == ".csv":
        yield from _csv(path)
    else:
        yield from _lines(path, gzipped=kind.endswith("gz"))


def _lines(path: Path, gzipped: bool) -> Iterator[tuple[str, Row | Skipped]]:
    number = 0
    with gzip.open(path) if gzipped else path.open("rb") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{path}:{number}", _decode(line, first=number == 1)
        except (EOFError, gzip.BadGzipFile) as error:
            raise UserError(f"{path}:{number + 1}: broken gzip file: {error}", hint="fetch it again") from None


def _decode(line: bytes, first: bool) -> Row | Skipped:
    try:
        row = json.loads(line.decode("utf-8-sig" if first else "utf-8"))
    except json.JSONDecodeError as error:
        return Skipped("broken_row", f"not JSON: {error.msg} at column {error.colno}")
    except UnicodeDecodeError as error:
        return Skipped("broken_row", f"not UTF-8: {error.reason}")
    except RecursionError:
        return Skipped("broken_row", "not JSON that can be read: nested too deep")
    except ValueError:  # what is left: Python refuses to read integers of thousands of digits
        return Skipped("broken_row", "not JSON that can be read: a number too long to read")
    return row if isinstance(row, dict) else Skipped("broken_row", f"a {type(row).__name__}, not an object")


def _parquet(path: Path) -> Iterator[tuple[str, Row | Skipped]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        number = 0
        file = pq.ParquetFile(path)
        _distinct(file.schema_arrow.names, str(path))
        for batch in file.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}:{number}", row
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a parquet file: {error}", hint="write it again") from None


def _csv(path: Path) -> Iterator[tuple[str, Row | Skipped]]:
    csv.field_size_limit(1 << 27)
    # Bytes that are not UTF-8 become lone surrogates, so that they cost their row and not the file.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.DictReader(file)
        try:
            names = list(reader.fieldnames or ())
            if not _is_text("".join(names)):
                raise UserError(f"{path}:1: the names of the columns are not UTF-8", hint="write it again in UTF-8")
            _distinct(names, f"{path}:1")
            for row in reader:
                place = f"{path}:{reader.line_num}"
                if None in row or None in row.values():
                    yield place, Skipped("broken_row", f"not {len(names)} fields")
                elif bad := [name for name, cell in row.items() if not _is_text(cell)]:
                    yield place, Skipped("broken_row", f"not UTF-8 in the column {bad[0]}")
                else:
                    yield place, row
        except csv.Error as error:
            raise UserError(f"{path}:{reader.line_num}: not CSV: {error}", hint="write it again") from None


def _is_text(cell: str) -> bool:
    """Whether no byte of it was anything but UTF-8."""
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def _distinct(names: list[str], place: str) -> None:
    """Refuses columns of one name, of which a row would keep the last; columns without a name may be many."""
    repeated = [name for name, count in Counter(names).items() if name and count > 1]
    if repeated:
        raise UserError(f"{place}: two columns are named {repeated[0]!r}", hint="rename or remove one of them")


def file_identity(path: Path) -> dict[str, Any]:
    """Name, size and SHA-256 of a file.

    Raises:
        UserError: there is no such file.
    """
    if not path.is_file():
        raise UserError(f"no such file: {path}", hint="give the path of a file that exists")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest}
