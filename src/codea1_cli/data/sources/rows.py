"""The rows of a file, of a folder of files, or of a dataset on the hub, read without stopping at a broken one."""

from __future__ import annotations

import hashlib
import logging
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from codea1_cli import hub
from codea1_cli.errors import CodeA1Error, UserError, some
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

    def rows(self, columns: Collection[str] | None = None) -> Iterator[tuple[str, Row | Skipped]]:
        """As `read_rows`."""
        return read_rows(self.path, columns)

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

    def rows(self, columns: Collection[str] | None = None) -> Iterator[tuple[str, Row | Skipped]]:
        """The files' rows, one file after the other."""
        for file in self.files:
            yield from file.rows(columns)

    def identity(self) -> dict[str, Any]:
        """The files by their paths below the folder and their hashes."""
        files = [
            {**file.identity(), "file": file.path.relative_to(self.path).as_posix()} for file in self.files
        ]  # fmt: skip
        return {"folder": self.name, "files": files}


class HubRows:
    """Splits of a dataset on the hub, joined by `+`: the files that its card names for them, else those whose names
    hold the split's. A file is fetched when its rows are wanted, and kept in the hub's cache.

    Raises, when read or asked for its identity:
        UserError: there is no such dataset, configuration or split.
        EnvironmentFault: the hub cannot be reached, or wants a token.
    """

    def __init__(
        self, dataset: str, split: str, revision: str | None = None, config: str | None = None, hint: str = ""
    ) -> None:
        """`hint`: what to add where it cannot be found."""
        self.dataset, self.split, self.revision, self.config, self.hint = dataset, split, revision, config, hint

    @property
    def name(self) -> str:
        """The dataset's id."""
        return self.dataset

    @cached_property
    def repo(self) -> hub.HubRepo:
        """The dataset at the commit that is read, so that a resumed read, or a second one, cannot mix two."""
        before = self.revision is None and hub.note_file("dataset", self.dataset).is_file()
        try:
            found = hub.find_repo("dataset", self.dataset, self.revision)
        except CodeA1Error as fault:
            fault.hint = "; ".join(hint for hint in (fault.hint, self.hint) if hint) or None
            raise
        if before:
            hub.tell(f"{self.dataset} as it was first read, at {found.commit[:8]}; --revision main takes the newest")
        return found

    @cached_property
    def files(self) -> list[tuple[str, str]]:
        """(split, file) in the order in which they are read."""
        tables = [file.name for file in self.repo.files if format_of(Path(file.name)) or file.name.endswith(".json")]
        named = {str(entry.get("config_name")): entry.get("data_files") for entry in self.repo.configs}
        config = self.config or next(iter(named), None)
        if self.config is not None and self.config not in named and not _below(tables, self.config):
            raise UserError(
                f"{self.dataset} has no configuration {self.config!r}",
                hint=f"choose one with --config: {', '.join(named) or 'it has none'}",
            )
        patterns = _patterns(named.get(str(config)))
        found: list[tuple[str, str]] = []
        for split in self.split.split("+"):
            if patterns:
                own = [name for name in tables if any(fnmatch(name, pattern) for pattern in patterns.get(split, ()))]
            else:
                own = [
                    name
                    for name in _below(tables, config)
                    if re.search(rf"(?<![a-z]){re.escape(split)}(?![a-z])", name)
                ]
                own = own or (_below(tables, config) if split == "train" else [])
            if not own:
                known = ", ".join(patterns) or some(tables) or "no table"
                raise UserError(f"{self.dataset} has no split {split!r}", hint=f"choose with --split: {known}")
            found += [(split, name) for name in sorted(own)]
        return found

    def rows(self, columns: Collection[str] | None = None) -> Iterator[tuple[str, Row | Skipped]]:
        """The files' rows, each with its number in the splits."""
        number, told = 0, False
        for place, (split, name) in enumerate(self.files, start=1):
            if hub.kept_file(self.repo, name) is None:  # what --limit did not reach before may never be wanted
                if not told:
                    hub.announce(self.repo, [name for _, name in self.files])
                told = True
                if len(self.files) > 1:
                    hub.tell(f"fetching {name}, file {place} of {len(self.files)}")
            for _, row in read_rows(hub.fetch(self.repo, name), columns):
                number += 1
                yield f"{self.dataset}[{split}]:{number}", row

    def first_rows(self) -> Iterator[tuple[str, Row | Skipped]]:
        """The rows of the first file."""
        if hub.kept_file(self.repo, self.files[0][1]) is None:
            hub.announce(self.repo, [name for _, name in self.files])
        return read_rows(hub.fetch(self.repo, self.files[0][1]))

    def identity(self) -> dict[str, Any]:
        """The dataset, its configuration and splits, and the commit that is read."""
        return {"dataset": self.dataset, "config": self.config, "split": self.split, "revision": self.repo.commit}


def _patterns(data_files: Any) -> dict[str, list[str]]:
    """The patterns of each split, as a dataset's card gives them."""
    if isinstance(data_files, str):
        return {"train": [data_files]}
    found: dict[str, list[str]] = {}
    for entry in data_files if isinstance(data_files, list) else []:
        split, path = (entry.get("split"), entry.get("path")) if isinstance(entry, dict) else ("train", entry)
        found.setdefault(str(split or "train"), []).extend(map(str, path if isinstance(path, list) else [path]))
    return found


def _below(names: list[str], folder: str | None) -> list[str]:
    """The names in a configuration's folder, all where it has none."""
    own = [name for name in names if folder and name.startswith(f"{folder}/")]
    return own or ([] if folder not in (None, "default") else names)


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
