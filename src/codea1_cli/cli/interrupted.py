"""One line when a command is interrupted, and exit code 130."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from codea1_cli.cli.console import EXIT_INTERRUPTED


@contextlib.contextmanager
def interruptible(said: str) -> Iterator[None]:
    """Inside the block the first SIGINT or SIGTERM says "interrupted; SAID" on stderr and raises KeyboardInterrupt, a
    second one ends the process at once. The main thread only."""
    from codea1_cli.engine.interrupts import interrupts

    def first() -> None:
        os.write(2, f"\ninterrupted; {said}\n".encode())  # a handler may stand amid a print of the same stream
        raise KeyboardInterrupt

    with interrupts(first, lambda: os._exit(EXIT_INTERRUPTED)):
        yield
