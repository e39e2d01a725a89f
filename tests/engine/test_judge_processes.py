"""A run's judge in several processes: what each is, and that nothing of what they find depends on it."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from codea1_cli.engine import judge_processes as module
from codea1_cli.engine.cluster import ray_cluster
from codea1_cli.engine.judge_processes import SpreadJudge, processes, run_judge
from codea1_cli.engine.step_state import judge_attacks
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.judging.step_judge import StepJudge
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.files import load_recipe
from codea1_cli.recipe.resources import open_step_judge

OWN_PROCESS = "CODEA1_TESTS_OWN_PROCESS"
PROBLEMS = [
    Problem(
        id=f"p{n}",
        question="q",
        declaration="def f(x):",
        entry_point="f",
        reference=f"def f(x):\n    return x + {n}",
        tests=[f"assert f(1) == {n + 1}"],
    )
    for n in range(6)
]
REPLIES = [
    "```python\ndef f(x):\n    return x + 1\n```",
    "```python\ndef f(x):\n    return 2 * x + 1\n```",
    "no program",
]
SUITES = [f"```python\nassert f({n}) == {n + 1}\nassert f({n}, 2) == 1\nassert f(-{n}) == 0\n```" for n in range(4)]


@pytest.mark.parametrize(("cores", "shares"), [(1, [1]), (5, [5]), (6, [3, 3]), (8, [4, 4]), (16, [4, 3, 3, 3, 3])])
def test_cores_are_shared_out_among_processes(monkeypatch, cores, shares):
    monkeypatch.setattr(module, "cores", lambda: cores)
    assert processes(load_recipe("tiny", [])) == [("", places) for places in shares]
    assert sum(places for _, places in processes(load_recipe("tiny", ["judge.workers=32"]))) == 32


def test_few_cores_and_services_are_judged_for_in_the_arena_itself(monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(module, "open_step_judge", lambda recipe, path: opened.append(path))
    monkeypatch.setattr(module, "SpreadJudge", lambda *_: opened.append("several"))
    run_judge(load_recipe("tiny", ["judge.workers=4"]), tmp_path)
    run_judge(load_recipe("tiny", ["judge.workers=64"]), tmp_path)
    service = ["judge.workers=64", "sandbox.backend=fusion", "sandbox.endpoint=http://127.0.0.1:1"]
    run_judge(load_recipe("tiny", service), tmp_path)
    assert opened == [tmp_path, "several", tmp_path]


def judged(judge, problem):
    candidates = judge.load_candidates(problem, REPLIES)
    attacks = [(candidate, SUITES if candidate.loaded else []) for candidate in candidates]
    each = judge.ask(judge_attacks, problem, attacks, [])
    return judge.judge_pool(problem, each, (), 1), judge.solve_rate(problem, REPLIES)


def fail(judge, problem):
    raise UserError("a fault of ours", hint="look")


def process(judge, problem):
    return os.getpid()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_judged_does_not_depend_on_the_process_and_outlives_one(tmp_path):
    """Two processes judge what one does alone, and one of them is killed in the middle of it."""
    if OWN_PROCESS not in os.environ:  # a Ray that starts here would inherit what other tests did to this process
        name = "test_what_is_judged_does_not_depend_on_the_process_and_outlives_one"
        words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "slow", f"{__file__}::{name}"]
        plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        done = subprocess.run(words, env=plain | {OWN_PROCESS: "1"}, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stdout[-4000:]
        return
    recipe = load_recipe("tiny", ["judge.workers=6"])
    alone = open_step_judge(recipe, None)
    expected = [judged(alone, problem) for problem in PROBLEMS]
    alone.close()
    with ray_cluster(tmp_path, None):
        judge = run_judge(recipe, tmp_path)
        assert isinstance(judge, SpreadJudge)
        assert (len(judge.processes), judge.workers) == (2, 6)
        assert judge.canary().keys() == {"missing"}
        assert [judge.reference_fault(problem) for problem in PROBLEMS] == [None] * len(PROBLEMS)
        with pytest.raises(UserError, match="a fault of ours") as told:
            judge.ask(fail, PROBLEMS[0])
        assert (type(told.value), told.value.hint) == (UserError, "look")
        victim = judge.ask(process, PROBLEMS[0])
        begun = threading.Event()

        def one(problem):
            found = judged(judge, problem)
            begun.set()
            return found

        with ThreadPoolExecutor(6) as pool:
            found = [pool.submit(one, problem) for problem in PROBLEMS * 3]
            assert begun.wait(300)
            os.kill(victim, signal.SIGKILL)
            assert [future.result(timeout=600) for future in found] == expected * 3
        judge.canary()
        assert len(judge.processes) == 1
        judge.close()
        with pytest.raises(EnvironmentFault, match="all processes of the judge are gone"):
            judge.ask(StepJudge.reference_fault, PROBLEMS[0])
