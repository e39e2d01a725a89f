"""What the arena knows of one step."""

from __future__ import annotations

import asyncio
from typing import Any

from codea1_cli.judging.step import Candidate


class StepState:
    """What has arrived for one step, and what somebody waits for."""

    def __init__(self) -> None:
        self.candidates: dict[str, asyncio.Future[list[Candidate]]] = {}
        self.suites: dict[tuple[str, int], asyncio.Future[Any]] = {}
        self.scored: asyncio.Future[dict[str, Any]] = new_future()
        self.scoring: asyncio.Task[None] | None = None
        self.judge_seconds = 0.0
        self.prompts_too_long = 0


def new_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
