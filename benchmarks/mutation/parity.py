"""Killed or survived, for each mutant and test, here and by cosmic-ray; coverage here and by pytest-cov.

    python benchmarks/mutation/parity.py --data ult_lite.json [--functions 25] [--forms] [--work DIR] [--seconds 540]

cosmic-ray needs a pytest process for each pair, so its sessions are kept in DIR and a stopped check goes on from there.
Exit 1 when anything differs, 2 when the time was up before all sessions were run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cosmic import run_session
from suites import Case, choose, in_forms, test_module

from codea1_cli.evals.test_generation.entries import entry_as_test
from codea1_cli.evals.test_generation.execution import Outcome, TestRunner, coverage_of
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox


def main() -> None:
    """Compares, prints what differs and exits."""
    options = argparse.ArgumentParser()
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--functions", type=int, default=25)
    options.add_argument("--runs", type=int, default=150)
    options.add_argument("--work", type=Path, default=Path("/tmp/mutation-parity"))
    options.add_argument("--seconds", type=float, default=540)
    options.add_argument("--forms", action="store_true", help="blocks, test functions and classes in place of asserts")
    given = options.parse_args()
    with LocalSandbox(2, warm=("numpy", "coverage", "sqlite3")) as sandbox:
        cases = choose(given.data, sandbox, given.functions, given.runs)
        runner = TestRunner(sandbox, Limits(time_s=4.0))
        if given.forms:
            cases = in_forms(cases)
        until = time.monotonic() + given.seconds
        jobs = [(case, number) for case in cases for number in range(len(case.tests))]
        with ThreadPoolExecutor(2) as pool:
            theirs = list(pool.map(lambda job: session(given.work, *job, until), jobs))
        if None in theirs:
            print(f"{sum(found is not None for found in theirs)} of {len(jobs)} sessions so far: run it again")
            sys.exit(2)
        pairs, different = 0, []
        for (case, number), killed in zip(jobs, theirs, strict=True):
            test = entry_as_test(case.tests[number]) or ""
            base = runner.run(case.code, case.entry_point, test)
            ours = runner.on_mutants(case.entry_point, [(test, base.seconds)], case.mutants)
            for mutant, outcome in zip(case.mutants, ours, strict=True):
                pairs += 1
                if killed.get(f"{mutant.operator} {mutant.occurrence}") is not (outcome is not Outcome.PASSED):
                    different.append((case.id, number, mutant.operator, mutant.occurrence, outcome.value))
            if len(killed) != len(case.mutants):
                different.append((case.id, number, "mutants", len(killed), len(case.mutants)))
        print(
            f"{len(cases)} functions, {len(jobs)} tests, {pairs} pairs of a mutant and a test: {len(different)} differ"
        )
        uneven = [case.id for case in cases if not same_coverage(given.work, case, runner)]
        print(f"lines and branches covered: {len(cases) - len(uneven)} of {len(cases)} functions equal pytest-cov")
        for line in [*different, *uneven]:
            print(" ", line)
        sys.exit(bool(different or uneven))


def session(work: Path, case: Case, number: int, until: float) -> dict[str, bool] | None:
    """cosmic-ray's outcomes with one test alone, from the folder when it was run before; None when there is no time."""
    folder = work / f"{case.id}-{number}-{hashlib.sha256(case.tests[number].encode()).hexdigest()[:8]}"
    known = folder / "killed.json"
    if known.exists():
        return json.loads(known.read_text())
    if time.monotonic() > until:
        return None
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    found = run_session(folder, case.code, case.entry_point, [case.tests[number]])
    killed = {f"{name} {occurrence}": dead for (name, occurrence), dead in found.killed.items()}
    known.write_text(json.dumps(killed))
    return killed


def same_coverage(work: Path, case: Case, runner: TestRunner) -> bool:
    """Whether all tests of a case cover here what they cover under `pytest --cov --cov-branch`."""
    folder = work / f"{case.id}-cov"
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    folder.mkdir(parents=True)
    (folder / "mod.py").write_text(case.code, encoding="utf-8")
    (folder / "test_mod.py").write_text(test_module(case.entry_point, case.tests), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null",
         "--rootdir", str(folder), "--cov=mod", "--cov-branch", "--cov-report=json", "test_mod.py"],
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    totals = json.loads((folder / "coverage.json").read_text())["files"]["mod.py"]["summary"]
    tests = [entry_as_test(test) or "" for test in case.tests]
    runs = [runner.run(case.code, case.entry_point, test, trace=True) for test in tests]
    ours = coverage_of(case.code, frozenset().union(*(run.arcs or () for run in runs)))
    theirs = (
        totals["covered_lines"],
        totals["num_statements"],
        totals["covered_branches"],
        totals["num_branches"],
    )
    return theirs == (ours.lines, ours.all_lines, ours.branches, ours.all_branches)


if __name__ == "__main__":
    main()
