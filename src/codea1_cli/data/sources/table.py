"""Your own rows: a file or a dataset whatever its columns, with a mapping from a problem's fields to them."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from codea1_cli.data.sources import build
from codea1_cli.data.sources.rows import FileRows, FolderRows, HubRows
from codea1_cli.errors import UserError, did_you_mean, first_line
from codea1_cli.files import read_text
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import Row, Skipped

TARGETS = (
    "id", "question", "reference", "tests", "extra_tests", "test_code", "entry_point", "source", "license",
)  # fmt: skip
NEEDED = ("question", "reference")
Rows = FileRows | FolderRows | HubRows
_LINES = "FIELD: COLUMN, a line each, such as question: prompt"
_ENTRY = "--map FIELD=COLUMN, such as --map question=prompt"
_SAMPLE = 100  # rows looked at for the names of the columns: one row may leave some out


class MappedRows:
    """Rows of a .jsonl, .jsonl.gz, .parquet or .csv file, of a folder of them, or of a hub dataset.

    `mapping` gives a column for each field of TARGETS; a field that it leaves out is looked for under its own name.
    `tests` may be a list, JSON text of one, or Python source; `test_code` is a pytest file, read for tests where there
    is no column of them. Rows without an id get one from their text.

    Raises:
        UserError: a mapping names an unknown field or a column that is not there.
    """

    def __init__(self, data: Rows, mapping: Mapping[str, str] | None = None, license: str | None = None) -> None:
        self.data, self.given, self.license = data, dict(mapping or {}), license or ""
        self.title = data.name
        unknown = [name for name in self.given if name not in TARGETS]
        if unknown:
            hint = did_you_mean(unknown[0], TARGETS) or f"fields to map: {', '.join(TARGETS)}"
            raise UserError(f"no field {unknown[0]!r} in a problem", hint=hint)
        self.columns = self._columns()

    def _columns(self) -> dict[str, str]:
        """The column of each field; checked against the first rows of each file.

        Every file must have the columns of NEEDED; another column that the mapping names may be in some files only.
        """
        columns = {name: self.given.get(name, name) for name in TARGETS}
        parts = self.data.files if isinstance(self.data, FolderRows) else [self.data]
        everywhere: dict[str, None] = {}
        for part in parts:
            seen = _names(part)
            everywhere.update(dict.fromkeys(seen))
            if seen:
                self._check(columns, NEEDED, seen, part)
        if everywhere:
            self._check(columns, tuple(self.given), list(everywhere), self.data)
        return columns

    def _check(self, columns: dict[str, str], fields: tuple[str, ...], seen: list[str], data: Rows) -> None:
        for name in fields:
            if columns[name] not in seen:
                file = data.name if isinstance(data, HubRows) else data.path.name
                if isinstance(self.data, FolderRows) and isinstance(data, FileRows):
                    file = data.path.relative_to(self.data.path.parent).as_posix()
                raise UserError(
                    f"{file}: no column {columns[name]!r} for the field {name}",
                    hint=f"its columns are {', '.join(seen)}; choose one with --map {name}=COLUMN",
                )

    def records(self) -> Iterator[tuple[str, Row | Skipped]]:
        """The rows of the file, the folder or the dataset."""
        return self.data.rows()

    def identity(self) -> dict[str, Any]:
        """The rows' own identity, and the mapping."""
        return {"source": "table", "mapping": self.given, "license": self.license, **self.data.identity()}

    def convert(self, row: Row) -> Problem | Skipped:
        """One row. Reasons besides those of `build`: missing_field, tests_form."""
        value = {name: row.get(column) for name, column in self.columns.items()}
        tests = _asserts(value.get("tests"))
        extra = _asserts(value.get("extra_tests"))
        if tests is None or extra is None:
            return Skipped("tests_form", "tests are no list of asserts and no Python source")
        test_code = value.get("test_code")
        keep = isinstance(test_code, str) and bool(test_code.strip())
        used = set(self.columns.values())
        meta = dict(row["meta"]) if "meta" not in used and isinstance(row.get("meta"), dict) else {}
        made = build(
            id=str(value.get("id") or self._id(value)),
            question=value.get("question"),
            reference=value.get("reference"),
            tests=tests or (test_code if keep else ""),
            extra_tests=extra.splitlines() if isinstance(extra, str) else extra,
            entry_point=str(value["entry_point"]) if value.get("entry_point") else None,
            keep_test_code=False,
            source=str(value.get("source") or self.title),
            license=str(value.get("license") or self.license),
            meta=meta,
        )
        if isinstance(made, Skipped) or not keep:
            return made
        return made.model_copy(update={"test_code": test_code})

    def _id(self, value: Mapping[str, Any]) -> str:
        """An id that stays when rows are added before this one."""
        text = json.dumps([value.get("question"), value.get("reference")], ensure_ascii=True)
        return f"{self.title}/{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _names(data: Rows) -> list[str]:
    """The names of the columns, as far as the first rows have them."""
    seen: dict[str, None] = {}
    rows = data.first_rows() if isinstance(data, HubRows) else data.rows()
    for _, row in islice(rows, _SAMPLE):
        if not isinstance(row, Skipped):
            seen.update(dict.fromkeys(row))
    return list(seen)


def _asserts(value: Any) -> str | list[str] | None:
    """Tests as one source or a list of statements; JSON and Python lists in text are read; None: no form of tests."""
    if value is None:
        return []
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            for read in (json.loads, ast.literal_eval):
                try:
                    found = read(value)
                except (ValueError, SyntaxError, RecursionError, MemoryError):
                    continue
                return _asserts(found) if isinstance(found, list) else None
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return None


def read_mapping(entries: Sequence[str], file: Path | None) -> dict[str, str]:
    """The columns by field; an entry `FIELD=COLUMN` stands above a line of the YAML file.

    Raises:
        UserError: the file cannot be read or holds no mapping, an entry is not one, or a field is mapped twice.
    """
    found: dict[str, str] = {} if file is None else _read_file(file)
    given: set[str] = set()
    for entry in entries:
        name, equals, column = entry.partition("=")
        if not equals or not name or not column:
            raise UserError(f"{entry!r} is not a mapping", hint=_ENTRY)
        if name in given:
            raise UserError(f"--map gives the field {name} twice", hint="name one column for it")
        given.add(name)
        found[name] = column
    return found


def _read_file(file: Path) -> dict[str, str]:
    import yaml

    try:
        tree = yaml.compose(read_text(file), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}" if mark else str(file)
        raise UserError(f"{place}: not YAML: {error.problem or error.context}", hint=_LINES) from None
    except yaml.YAMLError as error:
        raise UserError(f"{file}: not YAML: {first_line(error)}", hint=_LINES) from None
    except RecursionError:
        raise UserError(f"{file}: nested too deep", hint=_LINES) from None
    if not isinstance(tree, yaml.MappingNode):
        raise UserError(f"{file} holds no mapping", hint=_LINES)
    found: dict[str, str] = {}
    for name, column in tree.value:  # the tree, not the loaded values: those keep the last of two lines for one field
        place = f"{file}:{name.start_mark.line + 1}"
        if not isinstance(name, yaml.ScalarNode) or column.tag != "tag:yaml.org,2002:str":
            raise UserError(f"{place}: the column is not text", hint=_LINES)
        if name.value in found:
            raise UserError(f"{place}: the field {name.value} is mapped twice", hint="name one column for it")
        found[name.value] = column.value
    return found
