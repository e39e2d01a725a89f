"""What the sandbox's tests share."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from codea1_cli.judging.judge import CandidateResult
from codea1_cli.sandbox.base import Limits

QUICK = Limits(time_s=0.4, memory_mb=512, processes=32)


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


def orphans() -> list[str]:
    """Processes of zygotes whose parent is gone, and that do not end soon."""
    deadline = time.monotonic() + 10
    while (found := orphans_now()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


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
