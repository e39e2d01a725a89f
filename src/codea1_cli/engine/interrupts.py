"""Ctrl-C and SIGTERM: the first one is a request, the second an order.

From a command's first line to its last one of these handlers is in place, and the command ends with 130. Whatever is
on disk survives an end at any moment, so that a handler may always end the process at once where going on is worse.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130
NUMBERS = (signal.SIGINT, signal.SIGTERM)
# One interrupt often arrives as several signals: `timeout` sends one to its child and one to the group, and `uv run`
# passes on what the group has got already.
ONE_INTERRUPT_S = 1.0
# A library may swallow an exception, and cleaning up may hang.
GRACE_S = 10.0

_since: float | None = None  # when the process was first interrupted


@contextlib.contextmanager
def interrupts(first: Callable[[], None], again: Callable[[], None]) -> Iterator[None]:
    """Inside the block, `first` is called at the process's first SIGINT or SIGTERM, and `again` at every one that comes
    more than `ONE_INTERRUPT_S` later. The main thread only."""
    old = {number: signal.signal(number, _handler(first, again)) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _handler(first: Callable[[], None], again: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        global _since
        if _since is None:
            _since = time.monotonic()
            first()
        elif time.monotonic() - _since > ONE_INTERRUPT_S:
            again()

    return handle


def stop_note(saved: int) -> str:
    """What the first interrupt of a running step is told; `saved` is the newest saved step, 0 for none."""
    lost = f"back to step {saved}, the newest saved one" if saved else "nothing is saved yet, all would be lost"
    return f"finishing the step and saving; once more stops at once ({lost})"


def end_at_once() -> NoReturn:
    """Ends the process with the documented code, whatever it is in the middle of."""
    os._exit(EXIT_INTERRUPTED)


def stoppable(said: Callable[[], str] = lambda: "interrupted") -> contextlib.AbstractContextManager[None]:
    """While there is nothing to save: the first interrupt shows `said()` on stderr and raises KeyboardInterrupt, one
    during the cleaning up ends the process, whose guard then does the cleaning.

    The process has `GRACE_S` to clean up and end. Amid an import or a call of Ray it ends at once: an exception there
    is swallowed, or breaks the library.
    """
    return interrupts(lambda: _raise(said), end_at_once)


def _raise(said: Callable[[], str]) -> NoReturn:
    with contextlib.suppress(Exception):  # of a file that it reads, or a stderr that is closed
        os.write(2, f"\n{said()}\n".encode(errors="replace"))  # a handler may stand amid a print of the same stream
    if _in_a_library():
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")  # a spinner has hidden the cursor
        end_at_once()
    _thread.start_new_thread(_end_later, ())  # threading's own lock may be held where the handler stands
    raise KeyboardInterrupt


def _end_later() -> None:
    time.sleep(GRACE_S)
    end_at_once()


def _in_a_library() -> bool:
    """Amid an import, or a call of Ray, whose processes the run's guard ends."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file == "<frozen importlib._bootstrap>" or "/site-packages/ray/" in file:
            return True
        frame = frame.f_back
    return False
