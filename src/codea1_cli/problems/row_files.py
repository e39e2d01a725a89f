"""The reader of every file of rows that a user gives: JSON lines, a JSON list, parquet or CSV."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from codea1_cli.errors import UserError, counted
from codea1_cli.files import AGAIN, BROKEN_GZIP, UTF16, Broken, decode_json, name_of, no_file, opened

FORMATS = (".jsonl", ".jsonl.gz", ".parquet", ".csv")
_LIST = re.compile(rb"\s*\[\s*\{")
_MAX_CELL = 1 << 27  # characters of a field of a CSV file
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Skipped:
    """A row that does not become a problem: a named reason, and what exactly was wrong."""

    reason: str
    detail: str = ""


def no_text(name: str, value: Any) -> Skipped | None:
    """Why a field is not text: nothing there or only blanks (missing_field), or of another type (bad_field)."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return Skipped("missing_field", name)
    return None if isinstance(value, str) else Skipped("bad_field", f"{name} is not text: {name_of(value)}")


def format_of(path: Path) -> str | None:
    """The suffix of a file of rows, None for another file."""
    return next((suffix for suffix in FORMATS if path.name.lower().endswith(suffix)), None)


def read_rows(path: Path, columns: Collection[str] | None = None) -> Iterator[tuple[str, Row | Skipped]]:
    """(`file:line`, row) of JSON lines, of a JSON list of objects, of a parquet file (its values as JSON has them; the
    number is the row's) or of a .csv file. A broken row is a Skipped in its place. Of parquet only `columns` are read,
    where they are given.

    Raises:
        UserError: the file is missing or unreadable as a whole.
    """
    name = path.name.lower()
    with opened(path) as file:
        head = file.peek(64) if isinstance(file, io.BufferedReader) else b""
        if not head.startswith(b"PAR1") and not name.endswith(".parquet"):
            yield from (_csv if name.endswith((".csv", ".csv.gz")) else _json)(path, file)
            return
    yield from _parquet(path, columns)


def whole_rows(
    path: Path, hint: str = "each line holds one JSON object in UTF-8"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """As `read_rows`; a broken row ends it.

    Raises:
        UserError: as `read_rows`, or a row is broken (file and line are named).
    """
    for place, row in read_rows(path):
        if isinstance(row, Skipped):
            raise UserError(f"{place}: {row.detail}", hint=hint)
        yield place, dict(row)


def _row(value: Any) -> Row | Skipped:
    if isinstance(value, dict):
        return value
    why = value.why if isinstance(value, Broken) else f"{name_of(value)}, not an object with fields"
    return Skipped("broken_row", why)


def _json(path: Path, file: IO[bytes]) -> Iterator[tuple[str, Row | Skipped]]:
    head = file.peek(4096)  # type: ignore[attr-defined]
    if head.startswith(UTF16) or _LIST.match(head.removeprefix(codecs.BOM_UTF8)):
        yield from _document(path, file.read())
        return
    number = 0
    try:
        for number, line in enumerate(file, start=1):
            if line.strip(b" \t\r\n\xef\xbb\xbf\f\v"):
                text = line if number > 1 else line.removeprefix(codecs.BOM_UTF8)
                yield f"{path}:{number}", _row(decode_json(text))
    except BROKEN_GZIP as error:
        raise UserError(f"{path}:{number + 1}: broken gzip file: {error}", hint=AGAIN) from None


def _document(path: Path, raw: bytes) -> Iterator[tuple[str, Row | Skipped]]:
    """The rows of a JSON list, or of lines in UTF-16."""
    try:
        text = raw.decode("utf-16" if raw.startswith(UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not {error.encoding}: {error.reason}", hint="save it as UTF-8") from None
    if text.lstrip().startswith("["):
        rows = decode_json(text)
        if isinstance(rows, Broken):
            raise UserError(f"{path}: {rows.why}", hint=AGAIN)
        yield from ((f"{path}:{number}", _row(row)) for number, row in enumerate(rows, start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", _row(decode_json(line))


def _parquet(path: Path, columns: Collection[str] | None) -> Iterator[tuple[str, Row | Skipped]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise UserError(f"cannot read {path}: {no_file(path)}", hint="give a file")
    try:
        number = 0
        file = pq.ParquetFile(path.absolute())  # pyarrow takes `a:b/c` for an address
        _distinct(file.schema_arrow.names, str(path))
        wanted = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
        for batch in file.iter_batches(batch_size=256, columns=wanted or None):
            texts = [_temporal_as_text(column) for column in batch.columns]
            for values in zip(*(column.to_pylist() for column in texts), strict=True):
                number += 1
                yield f"{path}:{number}", dict(zip(batch.schema.names, map(_plain, values), strict=True))
    except (pa.ArrowException, OSError, ValueError, OverflowError, NotImplementedError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a parquet file that can be read: {str(error)[:200]}", hint=AGAIN) from None


def _temporal_as_text(column: Any) -> Any:
    """Times and dates as text, which has room for nanoseconds and for years that Python's own types lack."""
    import pyarrow as pa

    if pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.string()) if pa.types.is_temporal(column.type) else column


def _plain(value: Any) -> Any:
    """A value as JSON has it: bytes and times as text, decimals as numbers, maps as objects."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _csv(path: Path, raw: IO[bytes]) -> Iterator[tuple[str, Row | Skipped]]:
    csv.field_size_limit(_MAX_CELL)
    # Bytes that are not UTF-8 become lone surrogates, so that they cost their row and not the file.
    utf16 = raw.peek(2)[:2] in UTF16  # type: ignore[attr-defined]
    encoding = "utf-16" if utf16 else "utf-8-sig"
    errors = "strict" if utf16 else "surrogateescape"
    with io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="") as file:
        yield from _csv_rows(path, file)


def _csv_rows(path: Path, file: IO[str]) -> Iterator[tuple[str, Row | Skipped]]:
    reader = csv.DictReader(file)
    try:
        names = list(reader.fieldnames or ())
        if not _is_text("".join(names)):
            raise UserError(f"{path}:1: the names of the columns are not UTF-8", hint="write it again in UTF-8")
        _distinct(names, f"{path}:1")
        for row in reader:
            place = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                yield place, Skipped("broken_row", f"not {counted(len(names), 'field')}")
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
