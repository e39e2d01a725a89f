"""Ctrl-C and SIGTERM: the first one is a request, the second an order."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

EXIT_INTERRUPTED = 130
NUMBERS = (signal.SIGINT, signal.SIGTERM)
# One interrupt often arrives as several signals: `timeout` sends one to its child and one to the group, and `uv run`
# passes on what the group has got already.
ONE_INTERRUPT_S = 1.0


@contextlib.contextmanager
def interrupts(first: Callable[[], None], again: Callable[[], None]) -> Iterator[None]:
    """Inside the block, `first` is called at the first SIGINT or SIGTERM, and `again` at every one that comes more than
    `ONE_INTERRUPT_S` later. The main thread only."""
    since: float | None = None

    def handle(number: int, frame: Any) -> None:
        nonlocal since
        if since is None:
            since = time.monotonic()
            first()
        elif time.monotonic() - since > ONE_INTERRUPT_S:
            again()

    old = {number: signal.signal(number, handle) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def stop_note(saved: int) -> str:
    """What the first interrupt of a running step is told; `saved` is the newest saved step, 0 for none."""
    lost = f"back to step {saved}, the newest saved one" if saved else "nothing is saved yet, all would be lost"
    return f"finishing the step and saving; once more stops at once ({lost})"


def stoppable() -> contextlib.AbstractContextManager[None]:
    """While there is nothing to save: the first interrupt ends the block, one during the cleaning up ends the process,
    whose guard then does the cleaning."""
    return interrupts(_raise, lambda: os._exit(EXIT_INTERRUPTED))


def _raise() -> NoReturn:
    raise KeyboardInterrupt
