"""What the sandbox's tests share."""

import os
from pathlib import Path

from codea1_cli.judging.judge import CandidateResult
from codea1_cli.sandbox.base import Limits

QUICK = Limits(time_s=0.4, memory_mb=512, processes=32)


def verdicts(result: CandidateResult) -> list[str]:
    return [test.verdict.value for test in result.verdicts.values()]


def children(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        text = Path(f"/proc/{pid}/task/{task}/children").read_text()
        found += [int(child) for child in text.split()]
    return [child for child in found if "Z" not in Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0]]
