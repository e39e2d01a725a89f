"""The rows of .jsonl, .jsonl.gz, .parquet and .csv files; a broken row does not stop the reading of its file."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError

Row = Mapping[str, Any]
FORMATS = (".jsonl", ".jsonl.gz", ".parquet", ".csv")


@dataclass(frozen=True)
class Skipped:
    """A row that does not become a problem: a named reason, and what exactly was wrong."""

    reason: str
    detail: str = ""


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
        return Skipped("broken_row", "not JSON that can be read: nested too deeply")
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
