"""The judge's speed beside plain processes and EvalPlus' checker: the same candidates, calls and answers for each."""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.extract import parse_suite
from codea1_cli.judging.judge import Expected, Judge
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import Verdict

EVALPLUS = "evalplus==0.3.1"
TESTS = 8
SUITES = 4  # suites a candidate
LIMITS = Limits(time_s=4.0)


@dataclass(frozen=True)
class Work:
    """One candidate and its suites; `expected` has every call's answer."""

    program: str
    entry_point: str
    suites: tuple[tuple[str, ...], ...]
    expected: dict[str, Expected]


@dataclass(frozen=True)
class Arm:
    """One way of judging all jobs. Seconds of wall time and of CPU over all processes; latency is a job's median."""

    name: str
    jobs: int
    wall_s: float
    cpu_s: float
    latency_ms: float
    passed: int


def build_work(problems: Sequence[Problem], jobs: int, sandbox: LocalSandbox) -> list[Work]:
    """`jobs` suites of 8 calls that the reference answers, 4 a candidate; the candidate is the reference.

    Where a problem has too few tests, their integers are moved to make more. Raises UserError for too little data.
    """
    judge = Judge(sandbox, limits=Limits(time_s=1.0))
    work: list[Work] = []
    for problem in problems:
        calls = _calls(problem)
        expected = judge.expected(problem.reference, problem.entry_point, calls)
        usable = [call for call in calls if expected[call].valid and _has_literal(expected[call].text)]
        if len(usable) >= SUITES * TESTS:
            suites = tuple(tuple(usable[at * TESTS : (at + 1) * TESTS]) for at in range(SUITES))
            work.append(Work(problem.reference, problem.entry_point, suites, expected))
        if len(work) * SUITES >= jobs:
            return work
    raise UserError(
        f"the problems make {len(work) * SUITES} jobs, fewer than {jobs}",
        "fewer --jobs, or more problems with --problems FILE",
    )


def _calls(problem: Problem) -> list[str]:
    statements = [s for test in (*problem.tests, *problem.extra_tests) for s in parse_suite(test, problem.entry_point)]
    own = list(dict.fromkeys(s.call for s in statements if s.invalid is None and s.call is not None))
    own = [call for call in own if _literal_arguments(call) is not None]
    found = dict.fromkeys(own)
    for shift in range(1, 12):
        for call in own:
            if len(found) >= 2 * SUITES * TESTS:
                return list(found)
            found.setdefault(_shifted(call, shift))
    return list(found)


def _shifted(call: str, shift: int) -> str:
    class Shift(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.Constant(node.value + shift) if type(node.value) is int else node

    return ast.unparse(Shift().visit(ast.parse(call, mode="eval")))


def _literal_arguments(call: str) -> list[Any] | None:
    node = ast.parse(call, mode="eval").body
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    try:
        return [ast.literal_eval(argument) for argument in node.args]
    except ValueError:
        return None


def _has_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _measured(name: str, jobs: int, run: Callable[[], Iterator[tuple[float, int]]], extra: Callable[[], float]) -> Arm:
    """Runs an arm; it yields each job's seconds and passed tests, `extra` tells CPU that no rusage shows yet."""
    before, cpu, began = extra(), _cpu(), time.perf_counter()
    found = list(run())
    wall = time.perf_counter() - began
    spent = _cpu() - cpu + extra() - before
    return Arm(name, jobs, wall, spent, 1000 * statistics.median(s for s, _ in found), sum(p for _, p in found))


def _cpu() -> float:
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def script_arm(work: Sequence[Work], workers: int, python: str) -> Arm:
    """`python script.py` for each job: the candidate and its asserts in one file."""
    with tempfile.TemporaryDirectory() as folder:
        scripts: list[Path] = []
        for item in work:
            for suite in item.suites:
                lines = [item.program, "", "passed = 0"]
                for call in suite:
                    answer = item.expected[call].text
                    lines += [
                        "try:",
                        f"    assert {call} == {answer}",
                        "    passed += 1",
                        "except Exception:",
                        "    pass",
                    ]
                path = Path(folder) / f"{len(scripts)}.py"
                path.write_text("\n".join([*lines, "print(passed)"]), encoding="utf-8")
                scripts.append(path)

        def one(path: Path) -> tuple[float, int]:
            began = time.perf_counter()
            done = subprocess.run([python, str(path)], capture_output=True, text=True, timeout=60)
            return time.perf_counter() - began, int(done.stdout.split()[-1]) if done.stdout.strip() else 0

        with ThreadPoolExecutor(workers) as pool:
            return _measured("python script.py", len(scripts), lambda: pool.map(one, scripts), lambda: 0.0)


def evalplus_arm(work: Sequence[Work], workers: int) -> Arm | None:
    """EvalPlus' checker on the same jobs, in an environment of its own; None without uv or the package."""
    uv = shutil.which("uv")
    if uv is None:
        return None
    jobs = [
        {
            "program": item.program,
            "entry_point": item.entry_point,
            "inputs": [repr(_literal_arguments(call)) for call in suite],
            "expected": [item.expected[call].text for call in suite],
        }
        for item in work
        for suite in item.suites
    ]
    script = Path(__file__).with_name("bench_evalplus.py")
    command = [
        uv,
        "run",
        "--quiet",
        "--no-project",
        "--python",
        sys.executable,
        "--with",
        EVALPLUS,
        "python",
        str(script),
    ]
    done = subprocess.run(
        [*command, str(workers)], input=json.dumps(jobs), capture_output=True, text=True, timeout=600, cwd="/"
    )
    if done.returncode:
        return None
    return Arm(**json.loads(done.stdout.splitlines()[-1]))


def sandbox_arm(name: str, sandbox: LocalSandbox, work: Sequence[Work], workers: int, batched: bool) -> Arm:
    """Ours: a fork for each suite, or one for all suites of a candidate."""
    judge = Judge(sandbox, limits=LIMITS)
    size = SUITES if batched else 1
    jobs = [(item, item.suites[at : at + size]) for item in work for at in range(0, len(item.suites), size)]

    def one(job: tuple[Work, tuple[tuple[str, ...], ...]]) -> tuple[float, int]:
        item, suites = job
        began = time.perf_counter()
        calls = [call for suite in suites for call in suite]
        result = judge.check(item.program, item.entry_point, calls, item.expected)
        passed = sum(test.verdict is Verdict.PASSED for test in result.verdicts.values())
        return (time.perf_counter() - began) / len(suites), passed

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, jobs[: 4 * workers]))  # starts the zygotes
        return _measured(name, size * len(jobs), lambda: pool.map(one, jobs), sandbox.cpu_seconds)


def compare(
    problems: Sequence[Problem],
    jobs: int,
    workers: int,
    python: str | None = None,
    evalplus: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Arm]:
    """All arms on the same work, slowest kind first; `tell` hears what comes next. Raises UserError when the problems
    make too few jobs."""
    with LocalSandbox(workers, python=python) as sandbox:
        tell("asking the references")
        work = build_work(problems, jobs, sandbox)
        tell("plain Python processes")
        arms = [script_arm(work, workers, sandbox.python)]
        if evalplus:
            tell(f"EvalPlus' checker, which uv fetches the first time ({EVALPLUS})")
            if (arm := evalplus_arm(work, workers)) is not None:
                arms.append(arm)
        tell("this sandbox")
        arms.append(sandbox_arm("one suite a fork", sandbox, work, workers, batched=False))
        arms.append(sandbox_arm(f"{SUITES} suites a fork", sandbox, work, workers, batched=True))
        if workers > 1:
            arms.append(sandbox_arm("one suite a fork, 1 worker", sandbox, work, 1, batched=False))
    return arms


def table(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """The arms with their ratios: how many times faster than plain scripts and than EvalPlus, by wall time a job."""
    by_name = {arm.name: arm.wall_s / arm.jobs for arm in arms}
    rows = []
    for arm in arms:
        each = arm.wall_s / arm.jobs
        row = asdict(arm) | {"ms_per_job": 1000 * each, "cpu_ms_per_job": 1000 * arm.cpu_s / arm.jobs}
        for other, key in (("python script.py", "times_script"), ("EvalPlus", "times_evalplus")):
            row[key] = by_name[other] / each if other in by_name else None
        rows.append(row)
    return rows


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))
