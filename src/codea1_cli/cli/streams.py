"""The two ways out of a command: stdout for its data and nothing else, stderr for everything else.

Libraries print where they like, to `sys.stdout` and to descriptor 1. While a command works (`divert`) both lead to
stderr, and only `stdout()` is the real one.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

from codea1_cli.engine.shutdown import writing
from codea1_cli.errors import EnvironmentFault

_PLAIN = {"█": "#", "❱": ">", "…": "~", "─": "-", "│": "|", "–": "-", "—": "-", "‘": "'", "’": "'", "“": '"', "”": '"'}
_PLAIN |= dict(zip("▁▂▃▄▅▆▇", "_.-=+*%", strict=True))

_TERMINAL = "CODEA1_TERMINAL"  # the encoding that the terminal had, for `in_utf8`
_before: tuple[TextIO, TextIO] | None = None  # sys.stdout and sys.stderr, while they are prepared
_real: TextIO | None = None  # the real stdout, while a command works


class NoReader(Exception):
    """Whoever read stdout has left, as `head` does."""


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """A codec's error handler: a like character, else an escape as Python and (up to U+FFFF) JSON read it."""
    assert isinstance(error, UnicodeEncodeError)
    shown = (_PLAIN.get(c) or (f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else f"\\U{ord(c):08x}") for c in _text(error))
    return "".join(shown), error.end


def _text(error: UnicodeEncodeError) -> str:
    return error.object[error.start : error.end]


codecs.register_error("codea1", _replaced)


def in_utf8() -> None:
    """Starts the process again in Python's UTF-8 mode where the locale has another encoding: names of files and their
    texts are UTF-8 then, here and in every process below. What the terminal takes stays what it was."""
    if sys.getfilesystemencoding() == "utf-8" or _TERMINAL in os.environ:
        return
    os.environ |= {"PYTHONUTF8": "1", _TERMINAL: encoding()}
    os.execv(sys.executable, sys.orig_argv)


def prepare() -> None:
    """Makes the process's streams take every character, and gives descriptors that are closed a place to lead to."""
    global _before
    with contextlib.suppress(OSError):
        while (free := os.open(os.devnull, os.O_RDWR)) <= 2:  # else the next file opened would be stdout or stderr
            pass
        os.close(free)
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    terminal = os.environ.pop(_TERMINAL, None)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=terminal, errors="codea1")
    _before = sys.stdout, sys.stderr
    sys.stderr = Messages(_unbuffered(sys.stderr))
    if os.environ.get("COLUMNS", "").strip("0") == "":  # of a terminal without a size: no width at all
        os.environ.pop("COLUMNS", None)


def _unbuffered(stream: TextIO) -> TextIO:
    """stderr without a buffer, which would refuse what a signal's handler writes while another write waits."""
    if type(stream) is not io.TextIOWrapper or _descriptor(stream) != 2:
        return stream
    raw = open(2, "wb", buffering=0, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


def divert() -> None:
    """From here on, what is printed to stdout goes to stderr: the command's own work begins. Nothing where the streams
    are not prepared, as where somebody only reads a command line."""
    global _real
    if _before is None or _real is not None or sys.stdout is None:
        return
    _real = sys.stdout
    if _descriptor(sys.stdout) == 1:
        sys.stdout.flush()
        _real = open(os.dup(1), "w", encoding=sys.stdout.encoding, errors="codea1")  # noqa: SIM115
        os.dup2(2, 1)
    sys.stdout = sys.stderr


def restore() -> None:
    """Undoes `prepare` and `divert`."""
    global _before, _real
    assert _before is not None
    if _real is not None and _real is not _before[0]:
        with contextlib.suppress(OSError):
            _real.flush()
        os.dup2(_real.fileno(), 1)
        abandon(_real)
        _real.close()
    sys.stdout, sys.stderr = _before
    _before = _real = None


def _descriptor(stream: Any) -> int | None:
    try:
        return int(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return None


def working() -> bool:
    """Whether the command line has been read and the command works."""
    return _real is not None


def stdout() -> TextIO:
    """The real stdout.

    Raises:
        EnvironmentFault: it was closed before the command began.
    """
    stream = _real or sys.stdout
    if stream is None:
        raise EnvironmentFault("stdout is closed: the data has nowhere to go")
    return stream


def encoding() -> str:
    """What stdout takes."""
    return getattr(_real or sys.stdout, "encoding", None) or "utf-8"


def write(text: str) -> None:
    """Puts data on stdout.

    Raises:
        NoReader: whoever read it has left.
        EnvironmentFault: it is full, or closed.
    """
    stream = DataStream()
    stream.write(text)
    stream.flush()


def abandon(stream: Any) -> None:
    """Lets what a stream still holds, and whatever comes, vanish: its reader left, or it is full."""
    number = _descriptor(stream)
    if number is not None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)


class DataStream:
    """stdout, whatever it is at the time; its faults are raised as `write` says."""

    def write(self, text: str) -> int:
        """As of a text stream."""
        return int(self._tried("write", text))

    def flush(self) -> None:
        """As of a text stream."""
        self._tried("flush")

    def _tried(self, what: str, *values: str) -> Any:
        stream = stdout()
        try:
            return getattr(stream, what)(*values)
        except BrokenPipeError:
            abandon(stream)
            raise NoReader from None
        except OSError as error:
            abandon(stream)
            raise EnvironmentFault(f"stdout cannot be written: {error.strerror}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(stdout(), name)


class Messages:
    """stderr, where writing goes on without a word when the reader has left or the file is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of a text stream."""
        return self._tried("write", text) or 0

    def flush(self) -> None:
        """As of a text stream."""
        self._tried("flush")

    def _tried(self, what: str, *values: str) -> Any:
        try:
            with writing():
                return getattr(self._stream, what)(*values)
        except OSError:
            abandon(self._stream)
            if _real is not None and _descriptor(_real) != 1:  # descriptor 1 leads there too
                os.dup2(2, 1)
            return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Stderr:
    """`sys.stderr`, whatever it is at the time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


# -- how far a command is ----------------------------------------------------------------------------------------------
class Bar:
    """Progress on stderr; where that is not a terminal, a line every `every_s` seconds and at a stage's end, or none.

    `names`: what people read for a stage's name.
    """

    def __init__(self, every_s: float | None = 15.0, names: Mapping[str, str] | None = None) -> None:
        self._every_s, self._names = every_s, names or {}
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}
        self._last = 0.0
        self._said = "", 0  # stage and count of the last line

    def __enter__(self) -> Bar:
        from codea1_cli.cli import console

        if console.err().is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self._progress = Progress(*columns, console=console.err())
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Shows that `done` of `total` are finished; calls may come at any rate."""
        from codea1_cli.cli import console

        now = time.monotonic()
        if self._progress is None:
            news = (stage, done) != self._said and (done == total or now - self._last > (self._every_s or 0.0))
            if self._every_s is not None and total and news:
                self._last, self._said = now, (stage, done)
                console.note(f"{self._names.get(stage, stage)}: {done} of {total}")
            return
        if done != total and now - self._last < 0.1:
            return
        self._last = now
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(self._names.get(stage, stage), total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)


def interruptible(said: str) -> contextlib.AbstractContextManager[None]:
    """Inside the block the first SIGINT or SIGTERM says "interrupted; SAID" on stderr and raises KeyboardInterrupt, a
    second one ends the process at once. The main thread only."""
    from codea1_cli.engine.shutdown import stoppable

    return stoppable(lambda: f"interrupted; {said}")
