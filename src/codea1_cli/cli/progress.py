"""How far a long command is, and one line when it is interrupted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from codea1_cli.cli import console


class Bar:
    """Progress on stderr; where that is not a terminal, a line every `every_s` seconds and at a stage's end, or none.

    `names`: what people read for a stage's name.
    """

    def __init__(self, every_s: float | None = 15.0, names: Mapping[str, str] | None = None) -> None:
        self._every_s, self._names = every_s, names or {}
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}
        self._last = 0.0

    def __enter__(self) -> Bar:
        if console.err().is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description:<18}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console.err(),
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Shows that `done` of `total` are finished; calls may come at any rate."""
        now = time.monotonic()
        if self._progress is None:
            if self._every_s is not None and total and (done == total or now - self._last > self._every_s):
                self._last = now
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
