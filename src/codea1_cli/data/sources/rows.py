"""The rows of a file, of a folder of files, or of a dataset on the hub, read without stopping at a broken one."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import EnvironmentFault, UserError, first_line, some
from codea1_cli.problems.benchmark_files import hub_rows
from codea1_cli.problems.row_files import FORMATS, Row, Skipped, format_of, read_rows

log = logging.getLogger(__name__)

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


def file_identity(path: Path) -> dict[str, Any]:
    """Name, size and SHA-256 of a file.

    Raises:
        UserError: there is no such file, or it is none that can be read twice: a device, a pipe.
    """
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind) and path.resolve() != Path("/dev/null"):
            what = "a folder" if stat.S_ISDIR(kind) else "a device or a pipe"
            raise UserError(f"cannot read {path}: it is {what}", hint="give a file")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint="give the path of a file that is there") from None
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest}
