"""Where problems come from: one module per kind of source, each from what somebody published to `Problem`; and which
one SOURCE names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from codea1_cli.data.sources.base import Source
from codea1_cli.data.sources.kodcode import DIFFICULTIES, MBPP_ROWS, EvalPlus, KodCode, Mbpp
from codea1_cli.data.sources.python_folder import PythonFolder
from codea1_cli.data.sources.rows import FileRows, FolderRows, HubRows, named, visible_files
from codea1_cli.data.sources.table import Table, read_mapping
from codea1_cli.errors import UserError, did_you_mean
from codea1_cli.files import user_path
from codea1_cli.problems.row_files import FORMATS, format_of
from codea1_cli.recipe.data_options import SourceOptions

BUILT_IN = ("kodcode", "mbpp", "evalplus")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_NO_OPTIONS = SourceOptions()


def make_source(spec: str, options: SourceOptions = _NO_OPTIONS, benchmarks: Path | None = None) -> Source:
    """The source behind a built-in name, a file, a folder or a hub dataset's id.

    Raises:
        UserError: there is no such source, an option that it does not have, or a mapping that cannot be read.
    """
    o, path = options, user_path(spec)
    mapping = read_mapping(o.maps or [], o.mapping)
    _refuse(spec != "kodcode" and o.difficulty is not None, "--difficulty", "kodcode")
    _refuse(spec not in BUILT_IN and o.data is not None, "--data", ", ".join(BUILT_IN))
    _refuse(spec in BUILT_IN and bool(mapping), "--map and --mapping", "a file or a hub dataset")
    if spec not in BUILT_IN and path.exists():
        for option, given in (("--split", o.split), ("--revision", o.revision), ("--config", o.config)):
            _refuse(given is not None, option, "a hub dataset; a local file or folder is read whole")
    if o.difficulty is not None and o.difficulty not in DIFFICULTIES:
        raise UserError(f"no difficulty {o.difficulty!r}", hint=f"one of {', '.join(DIFFICULTIES)}")
    if spec == "kodcode":
        return KodCode(o.data, o.difficulty, o.split, o.revision, o.license)
    if spec == "mbpp":
        return Mbpp(o.data, o.split, o.revision, o.license)
    if spec == "evalplus":
        return EvalPlus(o.data, benchmarks, o.license)
    if path.is_file() and path.suffix == ".py":
        return PythonFolder(path, o.license)
    if path.is_file():
        return Table(FileRows(path), mapping, o.license)
    if path.is_dir():
        return _folder(path, mapping, o.license)
    if format_of(path) or spec.startswith((".", "/", "~")) or path.suffix == ".py":
        raise UserError(f"no such file: {spec}", hint=f"a {', '.join(FORMATS)} or .py file, or a folder")
    if _HUB_ID.fullmatch(spec):
        hint = f"no file or folder is called {spec}, so it was taken for a dataset of the hub"
        return Table(HubRows(spec, o.split or "train", o.revision, o.config, hint), mapping, o.license)
    known = f"{', '.join(BUILT_IN)}, a file, a folder of Python files, or a hub id OWNER/NAME"
    raise UserError(f"no source {spec!r}", hint=did_you_mean(spec, BUILT_IN) or known)


def expected(spec: str, options: SourceOptions) -> tuple[float, int, int]:
    """About how many bytes a published source has, its rows, and the most problems they make; zeros of others."""
    if spec == "kodcode" and options.data is None:
        return 2.64e9, 447_000, 9688 if options.difficulty == "hard" else 447_000
    if spec == "mbpp" and options.data is None:
        rows = sum(MBPP_ROWS.get(split, 0) for split in (options.split or "+".join(MBPP_ROWS)).split("+"))
        return 350.0 * rows, rows, rows
    return 0.0, 0, 0


def _folder(path: Path, mapping: Mapping[str, str] | None, license: str | None) -> Source:
    """Tables at a folder's top make it a folder of tables, else Python files below it one of those."""
    top = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    tables = [file for file in top if format_of(file)]
    python = [file for file in top if file.suffix == ".py"]
    if tables and python:
        raise UserError(
            f"{path} holds tables ({named(path, tables)}) and Python files ({named(path, python)})",
            hint="give one of the files, or a folder that holds files of one kind",
        )
    below = [] if tables else list(visible_files(path))
    if not tables and (any(file.suffix == ".py" for file in below) or not any(map(format_of, below))):
        _refuse(bool(mapping), "--map and --mapping", "a file, a folder of tables or a hub dataset")
        return PythonFolder(path, license)
    return Table(FolderRows(path), mapping, license)


def _refuse(wrong: bool, option: str, sources: str) -> None:
    if wrong:
        raise UserError(f"{option} does not go with this source", hint=f"it belongs to {sources}")
