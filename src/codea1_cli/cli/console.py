"""What every command shares: two themed consoles, `--json` output, errors with hints, exit codes.

Data goes to stdout, everything else (tables' notes, warnings, errors, what libraries print) to stderr: `streams`. With
`--json` stdout carries one JSON document and nothing more. Rich is imported on the first line printed, so that
`codea1 --help` stays quick.
"""

import errno
import json
import math
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from codea1_cli.cli import streams
from codea1_cli.cli.shell import usage_fault
from codea1_cli.errors import CodeA1Error, EnvironmentFault, UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from codea1_cli.cli.layout import Table

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_BELOW, EXIT_INTERRUPTED = 0, 1, 2, 3, 4, 130
EXIT_NO_READER = 141  # as a shell shows a program that SIGPIPE ended

THEME = {
    "error": "bold red",
    "hint": "cyan",
    "warn": "yellow",
    "ok": "green",
    "bad": "red",
    "muted": "dim",
    "title": "bold",
    "name": "cyan",
    "code": "none",
}

# A pipe has no width: wide enough that no table cell is cut for a `grep` behind it.
PIPE_WIDTH = 240

_ENVIRONMENT_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENOMEM}

# A path that a user gave and that is not what was wanted.
_PATH_ERRNOS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST, errno.ENXIO}

_verbose = False


def _set_verbose(value: bool) -> bool:
    global _verbose
    _verbose = _verbose or bool(value)
    return value


def begin(value: bool) -> bool:
    """Callback of every command's `--json`: called once the command line is read, and help was not asked for."""
    streams.divert()
    return value


JsonOption = Annotated[
    bool, Option("--json", help="Put the data alone on stdout, as one JSON document.", callback=begin)
]
VerboseOption = Annotated[
    bool, Option("--verbose", "-v", help="Show tracebacks.", callback=_set_verbose, is_eager=True)
]
WaitOption = Annotated[
    bool, Option("--wait", help="Wait for another process that writes the same output, rather than be refused.")
]
RunsOption = Annotated[
    Path | None, Option(metavar="DIR", help="The folder of runs; CODEA1_RUNS or ./runs when left out.")
]


@cache
def _console(stderr: bool) -> "Console":
    from rich.console import Console
    from rich.theme import Theme

    stream: Any = streams.Stderr() if stderr else streams.DataStream()
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=stream, theme=Theme(THEME), highlight=False, emoji=False, width=width)


def out() -> "Console":
    """The console on stdout: data for people."""
    return _console(False)


def err() -> "Console":
    """The console on stderr: progress, warnings, errors."""
    return _console(True)


def show(*parts: Any) -> None:
    """Prints tables, texts in styles and the like on stdout, one below the other. What fits no line is not cut."""
    from rich.text import Text

    for part in parts:
        if isinstance(part, Text):
            _print(out(), part)
        else:
            out().print(part, crop=False)


def say(text: "str | Text", style: str = "", *, indent: int = 0) -> None:
    """A line of data on stdout, folded between words where it is longer than the terminal: further lines have `indent`
    spaces before them. A command in backquotes stays whole."""
    _print(out(), text, style, indent)


def note(text: "str | Text", style: str = "muted") -> None:
    """A line beside the data; what follows `next: ` stays whole."""
    _print(err(), text, style)


def warn(text: str) -> None:
    """A warning beside the data."""
    note(f"warning: {text}", style="warn")


def _print(console: "Console", text: Any, style: str = "", indent: int = 0) -> None:
    from rich.text import Text

    from codea1_cli.cli.layout import folded, room

    shown = text if isinstance(text, Text) else Text(printable(text), style=style)
    for line in folded(shown, room(console, messages=console is err()), indent):
        console.print(line, crop=False, no_wrap=True, overflow="ignore")


def cell(text: object, style: str = "", *, whole: bool = False) -> "Text":
    """A table's cell in one of the theme's styles; control sequences in `text` are shown, not sent. A `whole` one, such
    as a command to paste, is never folded."""
    from rich.text import Text

    from codea1_cli.cli import layout

    shown = Text(printable(str(text)), style=style)
    return layout.whole(shown) if whole else shown


def table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]], *, framed: bool = False
) -> "Table":
    """A table to print, see `layout.Table`: with lines around its cells where `framed` and it fits, without a heading
    where no column has one. A row holds what `cell` gives, or anything else, which is shown as plain text."""
    from rich.text import Text

    from codea1_cli.cli.layout import Table

    cells = ([item if isinstance(item, Text) else cell(item) for item in row] for row in rows)
    return Table(cell(title, "title") if title else None, columns, cells, framed)


def jsonable(value: Any) -> Any:
    """`value` in JSON's types: paths and enums as text, NaN and infinities as null, sets sorted."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if hasattr(value, "model_dump"):
        return jsonable(value.model_dump())
    if hasattr(value, "__dataclass_fields__"):
        return {name: jsonable(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, set | frozenset):
        return sorted((jsonable(item) for item in value), key=repr)
    if isinstance(value, Iterable):
        return [jsonable(item) for item in value]
    return str(value)


def emit(data: Any) -> None:
    """Writes `data` as the one JSON document of stdout; lone surrogates and odd terminals cannot break it."""
    write(json.dumps(jsonable(data), ensure_ascii=not unicode(), allow_nan=False, indent=2) + "\n")


def write(text: str) -> None:
    """Puts text that is data (JSON, YAML, Python) on stdout as it is; what stdout cannot take becomes an escape."""
    streams.write(text)


def unicode() -> bool:
    """Whether stdout takes every character."""
    return streams.encoding().lower().replace("-", "") in {"utf8", "utf16", "utf32"}


def printable(text: str) -> str:
    """`text` without control sequences, which must not steer the reader's terminal, and in characters that it shows."""
    cleaned = "".join(c if c == "\n" or c == "\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    encoding = streams.encoding()
    return cleaned.encode(encoding, "codea1").decode(encoding)


def confirm(question: str, yes: bool) -> bool:
    """Asks on the terminal; without one, `--yes` must have been given.

    Raises UserError when nobody can answer.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UserError(f"{question} needs a yes, and nobody is there to ask", hint="add --yes")
    err().print(f"{question} [y/N] ", end="", markup=False)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def show_error(error: BaseException) -> int:
    """Prints `error: what` and `hint: how` on stderr and returns the exit code it stands for."""
    what, hint, code = _describe(error)
    if _verbose:
        err().print("".join(traceback.format_exception(error)), markup=False, end="", soft_wrap=True)
    _labelled("error", what)
    if hint:
        _labelled("hint", hint)
    return code


def _labelled(label: str, text: str) -> None:
    from rich.text import Text

    _print(err(), Text.assemble((f"{label}: ", label), printable(text)))


def _describe(error: BaseException) -> tuple[str, str | None, int]:
    if isinstance(error, CodeA1Error):
        return error.what, error.hint, error.exit_code
    if isinstance(error, typer.TyperException):
        return (*usage_fault(error), error.exit_code)
    if isinstance(error, OSError) and error.errno in _ENVIRONMENT_ERRNOS:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{where}", None, EnvironmentFault.exit_code
    if isinstance(error, OSError) and error.errno in _PATH_ERRNOS and error.filename:
        return f"{error.strerror}: {error.filename}"[:500], None, UserError.exit_code
    text = str(error).strip().splitlines()
    named = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return f"unexpected {named}", None if _verbose else "run with -v for the traceback", EXIT_FAILED


def run_app(app: Any, argv: Sequence[str] | None = None, prog_name: str = "codea1", *, last: bool = False) -> int:
    """Runs a Typer app or a command of it and returns the exit code; nothing is raised for a user to see.

    argv: without the program's name; None takes the process's own. last: the process ends with this, and what its
    libraries print at their exit is not to follow the data on stdout.
    """
    global _verbose
    _verbose = False
    streams.prepare()
    try:
        code = _run(app, argv, prog_name)
        if sys.stdout is not None:
            streams.write("")
    except streams.NoReader:
        code = EXIT_NO_READER
    except EnvironmentFault as error:
        code = show_error(error)
    finally:
        if not last:
            streams.restore()
    return code


def _run(app: Any, argv: Sequence[str] | None, prog_name: str) -> int:
    try:
        result = app(args=None if argv is None else list(argv), prog_name=prog_name, standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except SystemExit as error:
        if error.__context__ is None:  # --show-completion and the like
            return error.code if isinstance(error.code, int) else EXIT_OK
        if not streams.working():  # Typer's answer to any broken pipe
            raise streams.NoReader from None
        return show_error(error.__context__)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            return EXIT_USAGE
        return show_error(error)
    except streams.NoReader:
        raise
    except Exception as error:
        if isinstance(error, OSError) and not (error.filename or streams.working() or isinstance(error, CodeA1Error)):
            streams.abandon(sys.stdout)  # which help, or the version, could not write
            return show_error(EnvironmentFault(f"stdout cannot be written: {error.strerror}"))
        return show_error(error)
    return result if isinstance(result, int) and not isinstance(result, bool) else EXIT_OK
