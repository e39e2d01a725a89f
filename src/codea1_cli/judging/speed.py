"""The judge's speed beside plain processes and EvalPlus' checker: the same candidates, calls and answers for each."""

from __future__ import annotations

import ast
import inspect
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codea1_cli.environment import cores
from codea1_cli.errors import UserError, counted
from codea1_cli.extract import parse_suite
from codea1_cli.judging.judge import Expected, Judge
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.base import Limits, Sandbox
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.make import SandboxOptions, make_local, make_sandbox
from codea1_cli.sandbox.verdicts import Verdict

EVALPLUS = "evalplus==0.3.1"
TESTS = 8
SUITES = 4  # suites per candidate


@dataclass(frozen=True)
class SpeedJob:
    """One candidate and its suites of calls; `expected` has every call's answer."""

    program: str
    entry_point: str
    suites: tuple[tuple[str, ...], ...]
    expected: dict[str, Expected]


@dataclass(frozen=True)
class Timing:
    """One way of judging all jobs. Seconds of wall time and of CPU over all processes; the median latency of a job."""

    name: str
    jobs: int
    wall_s: float
    cpu_s: float
    latency_ms: float
    passed: int


def build_work(problems: Sequence[Problem], jobs: int, sandbox: LocalSandbox) -> list[SpeedJob]:
    """`jobs` suites of 8 calls that the reference answers, 4 per candidate; the candidate is the reference.

    Where a problem has too few tests, their integers are moved to make more. Raises UserError for too little data.
    """
    judge = Judge(sandbox, limits=Limits(time_s=1.0))
    work: list[SpeedJob] = []
    for problem in problems:
        calls = _calls(problem)
        expected = judge.expected(problem.reference, problem.entry_point, calls)
        usable = [call for call in calls if expected[call].valid and _literals([expected[call].text]) is not None]
        if len(usable) >= SUITES * TESTS:
            suites = tuple(tuple(usable[at * TESTS : (at + 1) * TESTS]) for at in range(SUITES))
            work.append(SpeedJob(problem.reference, problem.entry_point, suites, expected))
        if len(work) * SUITES >= jobs:
            return work
    raise UserError(
        f"the problems make {counted(len(work) * SUITES, 'job')}, fewer than {jobs}",
        "fewer --jobs, or more problems with --problems FILE",
    )


def _calls(problem: Problem) -> list[str]:
    statements = [s for test in (*problem.tests, *problem.extra_tests) for s in parse_suite(test, problem.entry_point)]
    own = list(dict.fromkeys(s.call for s in statements if s.invalid is None and s.call is not None))
    own = [call for call in own if _arguments(call) is not None]
    found = dict.fromkeys(own)
    for shift in range(1, 12):
        for call in own:
            if len(found) >= 2 * SUITES * TESTS:
                return list(found)
            tree = ast.parse(call, mode="eval")
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and type(node.value) is int:
                    node.value += shift
            found.setdefault(ast.unparse(tree))
    return list(found)


def _arguments(call: str) -> list[Any] | None:
    node = ast.parse(call, mode="eval").body
    return _literals(node.args) if isinstance(node, ast.Call) and not node.keywords else None


def _literals(parts: Sequence[ast.expr | str]) -> list[Any] | None:
    try:
        return [ast.literal_eval(part) for part in parts]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _measured(
    name: str, jobs: int, run: Callable[[], Iterable[tuple[float, int]]], extra: Callable[[], float]
) -> Timing:
    """Runs an arm; it yields each job's seconds and passed tests, `extra` tells CPU that no rusage shows yet."""

    def cpu() -> float:
        own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime + extra()

    before, began = cpu(), time.perf_counter()
    found = list(run())
    wall, spent = time.perf_counter() - began, cpu() - before
    return Timing(name, jobs, wall, spent, 1000 * statistics.median(s for s, _ in found), sum(p for _, p in found))


def script_arm(work: Sequence[SpeedJob], workers: int, python: str) -> Timing:
    """`python script.py` for each job: the candidate and its asserts in one file."""

    def script(item: SpeedJob, suite: Sequence[str]) -> str:
        tests = (
            f"try:\n    assert {call} == {item.expected[call].text}\n    passed += 1\nexcept Exception:\n    pass"
            for call in suite
        )
        return "\n".join([item.program, "", "passed = 0", *tests, "print(passed)"])

    def one(path: Path) -> tuple[float, int]:
        began = time.perf_counter()
        done = subprocess.run([python, str(path)], capture_output=True, text=True, timeout=60)
        return time.perf_counter() - began, int(done.stdout.split()[-1]) if done.stdout.strip() else 0

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        texts = [script(item, suite) for item in work for suite in item.suites]
        paths = [Path(folder) / f"{number}.py" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        return _measured("python script.py", len(paths), lambda: pool.map(one, paths), lambda: 0.0)


def evalplus_arm(work: Sequence[SpeedJob], workers: int) -> Timing | None:
    """EvalPlus' checker on the same jobs, in an environment of its own; None without uv or the package."""
    uv = shutil.which("uv")
    if uv is None:
        return None
    jobs = [
        {
            "program": item.program,
            "entry_point": item.entry_point,
            "inputs": [repr(_arguments(call)) for call in suite],
            "expected": [item.expected[call].text for call in suite],
        }
        for item in work
        for suite in item.suites
    ]
    script = inspect.getsource(_check_with_evalplus) + inspect.getsource(_time_evalplus) + "_time_evalplus()\n"
    command = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, "--with", EVALPLUS, "python", "-c"]
    done = subprocess.run(
        [*command, script, str(workers)], input=json.dumps(jobs), capture_output=True, text=True, timeout=600, cwd="/"
    )
    return Timing(**json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else None


def _check_with_evalplus(job: dict) -> tuple[float, int]:
    """One job's seconds and how many of its tests passed."""
    import ast
    import time

    from evalplus.eval import untrusted_check

    began = time.perf_counter()
    inputs, expected = ([ast.literal_eval(text) for text in job[key]] for key in ("inputs", "expected"))
    _, passed = untrusted_check(
        "humaneval", job["program"], inputs, job["entry_point"], expected, 0, [0.1] * len(inputs), fast_check=True
    )
    return time.perf_counter() - began, sum(map(bool, passed))


def _time_evalplus() -> None:
    """Its source and `_check_with_evalplus`'s run as a script where EvalPlus is: jobs from stdin, an arm to stdout."""
    import json
    import resource
    import statistics
    import sys
    import time
    from concurrent.futures import ProcessPoolExecutor

    import evalplus.eval  # noqa: F401 - before the clock starts, and before the workers fork

    jobs, workers = json.load(sys.stdin), int(sys.argv[1])
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(_check_with_evalplus, jobs[: 4 * workers]))
        began = time.perf_counter()
        found = list(pool.map(_check_with_evalplus, jobs))
        wall = time.perf_counter() - began
    # The pool is gone, so its processes and theirs are counted; the few warm-up jobs are taken out pro rata.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (usage.ru_utime + usage.ru_stime) * len(jobs) / (len(jobs) + min(len(jobs), 4 * workers))
    latency, passed = 1000 * statistics.median(s for s, _ in found), sum(p for _, p in found)
    arm = {"name": "EvalPlus", "jobs": len(jobs), "wall_s": wall, "cpu_s": cpu}
    print(json.dumps({**arm, "latency_ms": latency, "passed": passed}))


def sandbox_arm(name: str, sandbox: Sandbox, work: Sequence[SpeedJob], workers: int, batched: bool) -> Timing:
    """Ours: a fork for each suite, or one for all suites of a candidate. A service's CPU is not seen from here."""
    judge = Judge(sandbox, limits=Limits(time_s=4.0))
    size = SUITES if batched else 1
    jobs = [(item, item.suites[at : at + size]) for item in work for at in range(0, len(item.suites), size)]

    def one(job: tuple[SpeedJob, tuple[tuple[str, ...], ...]]) -> tuple[float, int]:
        item, suites = job
        began = time.perf_counter()
        result = judge.check(item.program, item.entry_point, [call for s in suites for call in s], item.expected)
        passed = sum(test.verdict is Verdict.PASSED for test in result.verdicts.values())
        return (time.perf_counter() - began) / len(suites), passed

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, jobs[: 4 * workers]))  # starts the zygotes
        return _measured(
            name, size * len(jobs), lambda: pool.map(one, jobs), getattr(sandbox, "cpu_seconds", lambda: 0.0)
        )


def compare(
    problems: Sequence[Problem],
    jobs: int,
    options: SandboxOptions,
    evalplus: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Timing]:
    """All arms on the same work, slowest kind first; `progress` hears what comes next. A backend that is not this
    machine's comes last, with its own number of callers.

    Raises:
        UserError: the problems make too few jobs.
        EnvironmentFault: a sandbox does not start.
    """
    workers, away = options.workers or cores(), not options.on_this_machine
    here = SandboxOptions(python=None if away else options.python, workers=workers)
    with ExitStack() as stack:
        other = stack.enter_context(closing(make_sandbox(options))) if away else None
        sandbox = stack.enter_context(make_local(here))
        progress("asking the references")
        work = build_work(problems, jobs, sandbox)
        progress("plain Python processes")
        yield script_arm(work, workers, sandbox.python)
        if evalplus:
            progress(f"EvalPlus' checker, which uv fetches the first time ({EVALPLUS})")
            if (arm := evalplus_arm(work, workers)) is not None:
                yield arm
        progress("this sandbox")
        yield sandbox_arm("one suite a fork", sandbox, work, workers, batched=False)
        yield sandbox_arm(f"{SUITES} suites a fork", sandbox, work, workers, batched=True)
        if workers > 1:
            yield sandbox_arm("one suite a fork, 1 worker", sandbox, work, 1, batched=False)
        if other is not None:
            progress(f"the {options.backend} sandbox")
            yield sandbox_arm(f"{options.backend}, one suite a fork", other, work, other.workers, batched=False)


def table(measured: Iterable[Timing]) -> list[dict[str, Any]]:
    """The arms with their ratios: how many times faster than plain scripts and than EvalPlus, by wall time per job."""
    measured = list(measured)
    seconds = {arm.name: arm.wall_s / arm.jobs for arm in measured}

    def times(other: str, arm: Timing) -> float | None:
        return seconds[other] / seconds[arm.name] if other in seconds else None

    return [
        asdict(arm)
        | {"ms_per_job": 1000 * seconds[arm.name], "cpu_ms_per_job": 1000 * arm.cpu_s / arm.jobs}
        | {"times_script": times("python script.py", arm), "times_evalplus": times("EvalPlus", arm)}
        for arm in measured
    ]
