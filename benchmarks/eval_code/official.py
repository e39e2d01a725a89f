"""Runs EvalPlus' own tool in an environment of its own, on a sample file and local release files."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

FILES = {"humaneval": "humaneval_plus.jsonl.gz", "mbpp": "mbpp_plus.jsonl.gz"}


def evaluate(
    python: str, benchmark: str, samples: Path, data: Path, workers: int, cache: Path
) -> tuple[dict[str, Any], float, float]:
    """EvalPlus' result on a sample file, its wall seconds and the CPU seconds of it and its children.

    python: the interpreter that has evalplus 0.3.1. cache: where it keeps its ground truth, so that only the first call
    computes it.
    """
    result = samples.with_name(samples.name.replace(".jsonl", "_eval_results.json"))
    result.unlink(missing_ok=True)
    variable = {"humaneval": "HUMANEVAL_OVERRIDE_PATH", "mbpp": "MBPP_OVERRIDE_PATH"}[benchmark]
    environment = {**os.environ, variable: str(data / FILES[benchmark]), "XDG_CACHE_HOME": str(cache)}
    command = [python, "-m", "evalplus.evaluate", "--dataset", benchmark, "--samples", str(samples)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [*command, "--parallel", str(workers)], env=environment, capture_output=True, text=True, check=False
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not result.is_file():
        raise SystemExit(f"evalplus.evaluate failed:\n{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(result.read_text()), wall, cpu


def statuses(result: dict[str, Any]) -> dict[tuple[str, int], tuple[str, str]]:
    """(base, plus) status by task and number of the sample."""
    return {
        (task, number): (row["base_status"], row["plus_status"])
        for task, rows in result["eval"].items()
        for number, row in enumerate(rows)
    }
