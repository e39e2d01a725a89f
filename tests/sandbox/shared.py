"""What the sandbox's tests share."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codea1_cli.judging.judge import CandidateResult
from codea1_cli.sandbox.base import Limits

# A loop meets its limit soon, by processor time; what only waits for a busy machine does not.
QUICK = Limits(time_s=2.0, load_s=10.0, cpu_s=0.4, memory_mb=512, processes=32)
LATE = replace(QUICK, time_s=0.4, load_s=0.5)
"""For programs that are to run out of time."""


def drilled(slow: Iterable[Any], corpus: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those that a drill tries, and those of the whole cross product (`pytest -m corpus`)."""
    marks = [*((value, pytest.mark.slow) for value in slow), *((value, pytest.mark.corpus) for value in corpus)]
    return [pytest.param(value, marks=mark) for value, mark in marks]


def verdicts(result: CandidateResult) -> list[str]:
    return [test.verdict.value for test in result.verdicts.values()]


def children(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        text = Path(f"/proc/{pid}/task/{task}/children").read_text()
        found += [int(child) for child in text.split()]
    return [child for child in found if "Z" not in Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0]]


def soon(holds: Callable[[], object], within_s: float = 60.0) -> bool:
    """Whether something comes to hold; the time is for a busy machine."""
    deadline = time.monotonic() + within_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(holds())


def orphans() -> list[str]:
    """Processes of zygotes whose parent is gone, and that do not end soon."""
    soon(lambda: not orphans_now())
    return orphans_now()


def orphans_now() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"zygote.py" in (folder / "cmdline").read_bytes():
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if parent == "1":
                    found.append(folder.name)
        except OSError:
            continue
    return found
