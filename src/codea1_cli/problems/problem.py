"""The Problem row that everything trains and evaluates on, and its files."""

import ast
import gzip
import io
import json
import logging
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from codea1_cli.durable import write_atomic
from codea1_cli.errors import UserError, plain_fault
from codea1_cli.extract.source import parse
from codea1_cli.files import Broken, decode_json
from codea1_cli.problems.row_files import format_of, whole_rows

log = logging.getLogger(__name__)


class Problem(BaseModel):
    """One function-level problem; the field names are the columns of its file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    declaration: str
    entry_point: str
    reference: str = ""
    tests: list[str] = Field(default_factory=list)
    extra_tests: list[str] = Field(default_factory=list)
    test_code: str | None = None
    source: str = ""
    license: str = ""
    meta: dict[str, Any] = Field(default_factory=dict)

    @field_validator("entry_point")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not name.isidentifier():
            raise ValueError("is not a Python name")
        return name


WRITTEN = (".jsonl", ".jsonl.gz", ".parquet")
"""What files of problems may be called that are written."""
FIELDS = tuple(Problem.model_fields)


def read_problems(path: Path | str, limit: int | None = None, *, references: bool = True) -> list[Problem]:
    """Read the first `limit` problems (all when None) of a file of rows (`row_files.read_rows`), in file order.

    Unknown fields move to `meta`, with one warning per file. Raises UserError naming file, line and field for a
    row that is not a problem, for one without a reference where `references` are needed, and for an id that repeats.
    """
    path = Path(path)
    problems: list[Problem] = []
    line_of: dict[str, str] = {}
    unknown: dict[str, None] = {}
    for place, row in islice(whole_rows(path, _ONE_A_LINE), limit):
        problem = _problem(row, place, unknown)
        if references and not problem.reference:
            raise UserError(f"{place}: lacks the field reference", hint=_NEEDS)
        if problem.id in line_of:
            raise UserError(
                f"{place}: id {problem.id!r} repeats line {line_of[problem.id]}",
                hint="give every problem its own id, or remove one of the two rows",
            )
        line_of[problem.id] = place.rpartition(":")[2]
        problems.append(problem)
    if unknown:
        log.warning("%s: unknown fields kept in meta: %s", path, ", ".join(unknown))
    return problems


def write_problems(path: Path | str, problems: Iterable[Problem]) -> None:
    """Write problems to a .jsonl, .jsonl.gz or .parquet file; a crash leaves the old file or the new one, whole.

    The bytes depend on the problems alone. Raises UserError for another suffix.
    """
    path = Path(path)
    kind, rows = format_of(path), [problem.model_dump() for problem in problems]
    if kind == ".parquet":
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(parquet_table(rows), buffer)
        data = buffer.getvalue()
    elif kind in WRITTEN:
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8")
        data = gzip.compress(data, mtime=0) if kind == ".jsonl.gz" else data
    else:
        raise UserError(f"cannot tell the format of {path}", hint=f"name it {' or '.join(WRITTEN)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data)


_NEEDS = "a problem needs id, question, declaration, entry_point and reference"
_ONE_A_LINE = "each line holds one problem as a JSON object in UTF-8"


def _problem(row: dict[str, Any], where: str, unknown: dict[str, None]) -> Problem:
    """Build one problem; names met outside the schema are added to `unknown`."""
    known = {name: row[name] for name in FIELDS if row.get(name) is not None}
    extra = {name: value for name, value in row.items() if name not in FIELDS}
    unknown.update(dict.fromkeys(extra))
    meta = known.get("meta", {})
    if isinstance(meta, str):  # parquet has no free-form column: ours holds JSON
        meta = decode_json(meta)
        if isinstance(meta, Broken):
            raise UserError(f"{where}: field meta: {meta.why}", hint="leave meta out, or write it as an object")
    if isinstance(meta, dict):
        meta = {**meta, **extra}
    try:
        return Problem.model_validate({**known, "meta": meta})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        what = (
            f"lacks the field {field}" if first["type"] == "missing" else f"field {field}: {plain_fault(first['msg'])}"
        )
        raise UserError(f"{where}: {what}", hint=_NEEDS) from None


def parquet_table(rows: list[dict[str, Any]]) -> Any:
    """The `pyarrow.Table` of dumped problems: one column per field, `meta` as JSON text."""
    import pyarrow as pa

    lists = ("tests", "extra_tests")
    schema = pa.schema([(name, pa.list_(pa.string()) if name in lists else pa.string()) for name in FIELDS])
    columns = [{**row, "meta": json.dumps(row["meta"], ensure_ascii=False)} for row in rows]
    return pa.Table.from_pylist(columns, schema=schema)


def public_problem(problem: Problem) -> Problem:
    """The problem without its reference and tests, for a policy's process, which has no use for them. What types of
    arguments it takes is told."""
    return Problem(
        id=problem.id,
        question=problem.question,
        declaration=problem.declaration,
        entry_point=problem.entry_point,
        reference="# kept by the arena",
        meta={_ARGUMENTS: argument_types(problem)},
    )


_ARGUMENTS = "argument_types"


def argument_types(problem: Problem) -> list[str]:
    """The types of the positional arguments in the first of the problem's own tests that passes literals alone; empty
    where there is none."""
    if isinstance(known := problem.meta.get(_ARGUMENTS), list):
        return known
    for test in problem.tests:
        for call in ast.walk(parse(test) or ast.Module([], [])):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", None) != problem.entry_point:
                continue
            if (types := literal_types(call)) is not None:
                return types
    return []


def literal_types(call: ast.Call) -> list[str] | None:
    """The types of a call's positional arguments; None where one is no literal."""
    try:
        return [type(ast.literal_eval(argument)).__name__ for argument in call.args]
    except (ValueError, TypeError, RecursionError):
        return None
