"""Mutants per second: this project's engine against cosmic-ray, in one run, on the same suites, with two workers each.

    python benchmarks/mutation/run.py --data ult_lite.json [--functions 6] [--workers 2]

Each suite meets all mutants of its function at once, as a score needs it: cosmic-ray starts one pytest per mutant that
runs the whole suite, two functions at a time; here a mutant meets the suite's tests until one kills it. Our time holds
all that cosmic-ray does beforehand as well: reading the function, running the tests on it, making the mutants. Its own
`init` is left out of its time. The sandbox's workers are up before the clock starts; `start_s` says how long that took.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cosmic import run_session
from suites import Case, choose

from codea1_cli.evals.test_generation import make_mutants
from codea1_cli.evals.test_generation.evaluation import WARM
from codea1_cli.evals.test_generation.execution import TestRunner
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox


def main() -> None:
    """Measures both and prints the figures as JSON."""
    options = argparse.ArgumentParser()
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--functions", type=int, default=6)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--mutants", type=int, default=150, help="functions of at most so many")
    given = options.parse_args()
    with LocalSandbox(given.workers, warm=WARM) as sandbox:
        cases = choose(given.data, sandbox, given.functions, given.mutants * 5, given.mutants)
        runner = TestRunner(sandbox, Limits(time_s=4.0))
        start_s, _ = timed(cases, lambda case: runner.load(case.code, case.entry_point) is not None, given.workers)
        ours_s, ours = timed(cases, lambda case: here(runner, case), given.workers)
    folder = Path(tempfile.mkdtemp(prefix="mutation-benchmark-"))
    theirs_s, theirs = timed(cases, lambda case: there(folder, case), given.workers)
    shutil.rmtree(folder)
    mutants = sum(len(case.mutants) for case in cases)
    figures = {
        "functions": len(cases),
        "tests": sum(len(case.tests) for case in cases),
        "mutants": mutants,
        "killed_here": sum(ours),
        "killed_by_cosmic_ray": sum(theirs),
        "start_s": round(start_s, 2),
        "seconds_here": round(ours_s, 2),
        "seconds_cosmic_ray": round(theirs_s, 2),
        "mutants_a_second_here": round(mutants / ours_s, 1),
        "mutants_a_second_cosmic_ray": round(mutants / theirs_s, 2),
        "times": round(theirs_s / ours_s, 1),
        "workers": given.workers,
    }
    print(json.dumps(figures, indent=2))


def timed(cases: list[Case], work, workers: int) -> tuple[float, list[int]]:
    """Seconds that `work` takes on all cases, and how many mutants of each it kills."""
    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        killed = list(pool.map(work, cases))
    return time.monotonic() - began, killed


def here(runner: TestRunner, case: Case) -> int:
    """Mutants that this project's engine kills."""
    mutants = make_mutants(case.code)
    runs = [(test, runner.run(case.code, case.entry_point, test)) for test in case.tests]
    killed = runner.kill(case.entry_point, [(test, run.seconds) for test, run in runs if run.passed], mutants)
    assert killed is not None, "the sandbox failed"
    return sum(killed)


def there(folder: Path, case: Case) -> int:
    """Mutants that cosmic-ray kills."""
    return sum(run_session(folder / case.id, case.code, case.entry_point, case.tests).killed.values())


if __name__ == "__main__":
    main()
