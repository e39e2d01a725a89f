"""The readers of every file that a user gives: text, Python source, JSON; `row_files` reads rows.

A file may be gzipped, begin with a byte order mark (UTF-8 or UTF-16) and end its lines as Windows does; what it is, is
told by its content. Every fault is a `UserError` that names the file, and the line where there is one.
"""

from __future__ import annotations

import ast
import codecs
import gzip
import io
import json
import re
import stat
import tokenize
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import fstat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from codea1_cli.errors import UserError
from codea1_cli.extract.source import PARSER, normal_newlines

if TYPE_CHECKING:
    from pydantic import BaseModel

Model = TypeVar("Model", bound="BaseModel")
AGAIN = "fetch or write the file again"
BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)
_FOREIGN = {
    b"PK\x03\x04": "a zip archive (or a spreadsheet)",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"ARROW1": "an Arrow file",
    b"%PDF": "a PDF",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite database",
}
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_COOKIE = re.compile(r"^([ \t\f]*#.*?coding[:=][ \t]*)([-\w.]+)")


@dataclass(frozen=True)
class Broken:
    """Stands for a row that cannot be read; `why` says what is wrong with it."""

    why: str


def user_path(text: str | Path) -> Path:
    """A path that a user gave, `~` and `~name` expanded.

    Raises:
        UserError: there is no such user, or it is no path at all: an empty one would be the current folder.
    """
    try:
        if not str(text).strip():
            raise UserError(f"{str(text)!r} is not a path", hint='the current folder is "."')
        if "\0" in str(text):
            raise UserError(f"{str(text)!r} is not a path", hint="a path holds no NUL character")
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"cannot read {text}: no such user", hint="give the path without `~`") from None


def no_file(path: Path) -> str:
    """What stands at a place where there is no file: for the message that refuses it."""
    if path.is_dir():
        return "it is a folder"
    return "it is a pipe or a device, and is read more than once" if path.exists() else "no such file"


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unzipped where it is gzipped, as a stream; a pipe will do.

    Raises:
        UserError: it cannot be opened or read, is a Git LFS pointer, a device or a broken gzip file.
    """
    try:
        with path.open("rb") as file:
            mode = fstat(file.fileno()).st_mode
            if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not file.isatty() and path.resolve() != Path("/dev/null")):
                raise UserError(f"cannot read {path}: it is a device", hint="give a file")
            head = file.peek(len(LFS_POINTER))
            if head.startswith(LFS_POINTER):
                raise UserError(f"{path} is a Git LFS pointer, not the file that it stands for", hint="git lfs pull")
            if foreign := next((what for magic, what in _FOREIGN.items() if head.startswith(magic)), None):
                raise UserError(f"cannot read {path}: it is {foreign}", hint="give it as text, gzipped or not")
            if head[:2] == b"\x1f\x8b":
                with gzip.open(file) as unzipped, io.BufferedReader(unzipped) as stream:
                    yield stream
            else:
                yield file
    except BROKEN_GZIP as error:
        raise UserError(f"{path}: broken gzip file: {error}", hint=AGAIN) from None
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot read {path}: {_reason(error)}", hint="give the path of a file that is there") from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def read_bytes(path: Path) -> bytes:
    """The whole file, unzipped. Raises UserError as `opened`."""
    with opened(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """The file's text without its byte order mark, each line ended by a newline alone.

    Raises:
        UserError: as `opened`, or it is not UTF-8 (the line is named).
    """
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-16" if raw.startswith(UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8: {error.reason}", hint="save it as UTF-8") from None
    return normal_newlines(text)


def read_source(path: Path) -> str:
    """Python source as the interpreter reads it: by its byte order mark or its coding cookie, else as UTF-8. The cookie
    is made to say utf-8, which is true of the text from now on.

    Raises:
        UserError: as `opened`, or the text is not in the encoding that it names.
    """
    raw = read_bytes(path)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not {error.encoding}: {error.reason}", hint="save it as UTF-8") from None
    except (SyntaxError, LookupError, ValueError) as error:  # an unknown codec, two that contradict each other
        raise UserError(f"{path}: {error}", hint="save it as UTF-8") from None
    lines = normal_newlines(text.removeprefix("\ufeff")).split("\n", 2)
    return "\n".join([*(_COOKIE.sub(r"\1utf-8", line) for line in lines[:2]), *lines[2:]])


def parse_source(path: Path) -> tuple[str, ast.Module]:
    """The source of a Python file and its syntax tree.

    Raises:
        UserError: as `read_source`, or it does not parse (the line is named).
    """
    source = read_source(path)
    try:
        with PARSER:
            return source, ast.parse(source, str(path))
    except SyntaxError as error:
        place = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise UserError(f"{place}: does not parse: {error.msg}", hint="a Python file is wanted") from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise UserError(
            f"{path}: does not parse: {error or 'nested too deeply'}", hint="a Python file is wanted"
        ) from None


def read_json(path: Path, kind: type = object) -> Any:
    """The one JSON document of a file, which is a `kind` (dict, list).

    Raises:
        UserError: as `read_text`, it is not JSON (line and column are named), or another kind of document.
    """
    found = decode_json(read_text(path))
    if isinstance(found, Broken):
        raise UserError(f"{path}: {found.why}", hint=AGAIN)
    if not isinstance(found, kind):
        raise UserError(f"{path}: {name_of(found)}, not {_KINDS.get(kind, 'that')}", hint=AGAIN)
    return found


def read_model(path: Path, kind: type[Model], hint: str = AGAIN) -> Model:
    """The JSON document of a file that codea1 wrote, as a pydantic model of what its readers rest on.

    Raises:
        UserError: as `read_json`, or a value is none that codea1 writes (its field is named).
    """
    from pydantic import ValidationError

    found = read_json(path)
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        wrong = error.errors()[0]
        field = "".join(f"{part}." for part in wrong["loc"]).rstrip(".") or "it"
        what = "missing" if wrong["type"] == "missing" else f"{name_of(wrong['input'])}, which no run writes"
        raise UserError(f"{path}: {field} is {what}", hint=hint) from None


def kept_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file that a program keeps for itself; empty where that is missing or broken."""
    try:
        return dict(read_json(path, dict))
    except UserError:
        return {}


def kept_rows(path: Path) -> list[dict[str, Any]]:
    """The JSON objects, one per line, of a file that a program keeps for itself; none where it is missing. A line that
    is not one, as a crash leaves, is passed over."""
    try:
        with open(path, "rb") as file:
            return [row for row in map(decode_json, file) if isinstance(row, dict)]
    except (FileNotFoundError, IsADirectoryError):
        return []


_KINDS: dict[type, str] = {dict: "an object", list: "a list"}


def name_of(value: object) -> str:
    """What a value is called in JSON, with its article, for a message."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", **_KINDS}
    return names.get(type(value), "null")


def decode_json(text: str | bytes) -> Any:
    """What a JSON text holds, or `Broken`; whatever the text, nothing is raised."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_once)
    except _Twice as error:
        return Broken(f"the key {error} stands twice in one object{_begins(str(text))}")
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        return Broken(f"not JSON: {error.msg} at {line}column {error.colno}")
    except UnicodeDecodeError as error:
        return Broken(f"not UTF-8: {error.reason}")
    except RecursionError:
        return Broken("not JSON that can be read: nested too deeply")
    except ValueError:  # what is left: Python refuses to read integers of thousands of digits
        return Broken("not JSON that can be read: a number too long to read")


class _Twice(ValueError):
    """A key that an object has twice: Python would take the last one. `start`: where in the text the object begins."""

    start = 0


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _Twice(repr(next(key for key in found if keys.count(key) > 1)))
    return found


def _begins(text: str) -> str:
    """Where the object with a key twice begins, in a text of several lines: C's scanner does not say, Python's does."""

    def placed(place: tuple[str, int], *arguments: Any) -> Any:
        try:
            return json.decoder.JSONObject(place, *arguments)  # type: ignore[attr-defined]
        except _Twice as error:
            error.start = error.start or place[1]
            raise

    decoder: Any = json.JSONDecoder(object_pairs_hook=_once)
    decoder.parse_object = placed
    decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    try:
        decoder.decode(text)
    except RecursionError:  # sooner than C's
        return ""
    except _Twice as error:
        if "\n" in text.strip():
            return f", which begins at line {text.count(chr(10), 0, error.start) + 1}"
    return ""
