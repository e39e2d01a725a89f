"""Faults on demand, for drills: CODEA1_FAULT="side:rank:step:point:kind" makes that rank fail there.

Points: sampling, updating, saving. Kinds: exit (the process dies), raise, hang, nan (a loss of NaN). Unset, nothing
happens.
"""

from __future__ import annotations

import os
import time


def fault_at(role: str, rank: int, step: int, point: str) -> None:
    """Fails as CODEA1_FAULT says, if it names this place."""
    wanted = os.environ.get("CODEA1_FAULT")
    if not wanted:
        return
    where, _, kind = wanted.rpartition(":")
    if where != f"{role}:{rank}:{step}:{point}":
        return
    if kind == "exit":
        os._exit(13)
    if kind == "hang":
        time.sleep(1e6)
    if kind == "raise":
        raise ZeroDivisionError(f"fault drill at {where}")


def nan_at(role: str, rank: int, step: int) -> bool:
    """Whether a drill wants this step's loss to be NaN."""
    return os.environ.get("CODEA1_FAULT") == f"{role}:{rank}:{step}:updating:nan"
