"""How fast references are verified: with 1 and more workers, and against one plain subprocess per row, in one run.

Every way runs a row's reference under hash seeds 0 and 1 on all its tests and extra tests. The subprocess has no jail,
no limits but a time limit, and compares with `==` in the reference's own process: it is the least that could be done.

    uv run python benchmarks/prepare_data/run.py [--limit N] [--workers 1,2] [--data FILE]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from codea1_cli.data.verify import Verifier
from codea1_cli.problems.problem import Problem, read_problems
from codea1_cli.sandbox.base import Limits, in_order
from codea1_cli.sandbox.local import LocalSandbox

LIMITS = Limits(time_s=2.0)
DEFAULT = Path(os.environ.get("CODEA1_SHARED", "../shared")) / "data" / "train.jsonl"


def verified(problems: list[Problem], workers: int) -> tuple[float, Counter[str]]:
    """Seconds and outcomes of `prepare-data`'s own verification."""
    sandbox = LocalSandbox(workers=workers)
    try:
        verifier = Verifier(sandbox, LIMITS)
        verifier.warm(workers)
        began = time.perf_counter()
        outcomes = Counter(checked.reason or "holds" for _, checked in in_order(verifier.check, problems, workers))
        return time.perf_counter() - began, outcomes
    finally:
        sandbox.close()


def script(problem: Problem) -> str:
    """The program that a plain subprocess runs: reference, tests, extra tests."""
    extra = "".join(f"try:\n    {test}\nexcept Exception:\n    pass\n" for test in problem.extra_tests)
    return f"{problem.reference}\n\n" + "\n".join(problem.tests) + f"\n{extra}"


def plain(problem: Problem) -> str:
    """The outcome of one row in plain subprocesses, one per hash seed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(script(problem), encoding="utf-8")
        for seed in ("0", "1"):
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            try:
                done = subprocess.run(
                    [sys.executable, str(file)], env=environment, capture_output=True, timeout=30, check=False
                )
            except subprocess.TimeoutExpired:
                return "timeout"
            if done.returncode:
                return "fails"
    return "holds"


def subprocesses(problems: list[Problem], workers: int) -> tuple[float, Counter[str]]:
    """Seconds and outcomes of plain subprocesses, `workers` at once."""
    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        outcomes = Counter(pool.map(plain, problems))
    return time.perf_counter() - began, outcomes


def main() -> None:
    """Prints one line per way and number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--workers", default="1,2")
    arguments = parser.parse_args()
    problems = read_problems(arguments.data, arguments.limit)
    counts = [int(count) for count in arguments.workers.split(",")]
    print(
        f"{len(problems)} rows, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}"
    )
    print(f"{'way':<24}{'seconds':>9}{'rows/s':>9}{'ratio':>7}  outcomes")
    base = 0.0
    for way, measure in (("plain subprocess", subprocesses), ("codea1 prepare-data", verified)):
        for count in counts:
            seconds, outcomes = measure(problems, count)
            base = base or seconds
            name = f"{way}, {count} at once"
            said = ", ".join(f"{reason} {n}" for reason, n in outcomes.most_common())
            print(f"{name:<24} {seconds:8.1f}{len(problems) / seconds:9.1f}{base / seconds:7.2f}  {said}", flush=True)


if __name__ == "__main__":
    main()
