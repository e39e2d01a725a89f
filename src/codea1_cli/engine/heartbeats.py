"""Who does what since when: what the arena knows of every rank's progress. Pure, but for the clock."""

from __future__ import annotations

import time


class Heartbeats:
    def __init__(self) -> None:
        self._beats: dict[str, tuple[str, int, float]] = {}
        self._judged = time.monotonic()

    def beat(self, label: str, phase: str, step: int) -> None:
        """A rank begins a phase."""
        self._beats[label] = (phase, step, time.monotonic())

    def judged(self) -> None:
        """The judge has finished something."""
        self._judged = time.monotonic()

    def position(self, label: str) -> tuple[str, int] | None:
        """(phase, step) that a rank reported last."""
        beat = self._beats.get(label)
        return (beat[0], beat[1]) if beat else None

    def at_work(self) -> dict[str, tuple[str, int, float]]:
        """(phase, step, seconds since it began) of every rank that works, and of the judge when all ranks wait."""
        now = time.monotonic()
        working = {
            label: (phase, step, now - since)
            for label, (phase, step, since) in self._beats.items()
            if phase != "waiting"
        }
        if working or not self._beats:
            return working
        since = max([self._judged, *(since for _, _, since in self._beats.values())])
        return {"judge": ("judging", max(step for _, step, _ in self._beats.values()), now - since)}
