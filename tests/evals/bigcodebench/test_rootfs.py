"""unittest modules under other interpreters, and where layers of the jail are missing."""

import glob
import os
import sys
from pathlib import Path

import pytest

from codea1_cli.evals.benchmark import Status
from codea1_cli.evals.bigcodebench.scoring import ScoreSettings, score
from codea1_cli.sandbox.base import SandboxEnvironment
from codea1_cli.sandbox.local import LocalSandbox

QUICK = ScoreSettings(time_limit_s=10.0, memory_mb=4096)
UNIT = SandboxEnvironment(loopback=True, proc=True, unit=True)
CHEATS = {
    "exit": "import os\ndef task_func(n):\n    os._exit(0)",
    "early exit": "import os\nos._exit(0)",
    "patch": "import unittest\ndef task_func(n):\n    unittest.TestCase.assertEqual = lambda *a: None\n    raise TypeError",
    "code": (
        "import unittest\ndef task_func(n):\n"
        "    unittest.TestCase.assertEqual.__code__ = (lambda self, a, b, msg=None: None).__code__\n    raise TypeError"
    ),
    "skip": "import unittest\ndef task_func(n):\n    raise unittest.SkipTest",
}


def pythons() -> list[str]:
    root = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    return [p for minor in (10, 12, 13) for p in sorted(glob.glob(f"{root}/versions/3.{minor}.*/bin/python"))[:1]]


def check(sandbox, task) -> None:
    right = score(sandbox, task, task.reference, QUICK)
    assert right.status is Status.PASS, right
    for name, code in CHEATS.items():
        scored = score(sandbox, task, code, QUICK)
        assert scored.status is Status.FAIL, (name, scored)


@pytest.mark.parametrize("python", pythons() or [None], ids=lambda p: Path(p).parts[-3] if p else "none")
def test_other_interpreters(python, task):
    if python is None:
        pytest.skip("no other Python under pyenv")
    with LocalSandbox(1, python=python, warm=(), environment=UNIT) as sandbox:
        check(sandbox, task)


@pytest.mark.parametrize(
    "without",
    [
        ["pid_namespace"],
        ["net_namespace"],
        ["mount_namespace"],
        ["landlock", "seccomp"],
        ["user_namespace", "mount_namespace", "pid_namespace", "net_namespace", "ipc_namespace"],
    ],
    ids="-".join,
)
def test_missing_layers(without, task):
    with LocalSandbox(1, python=sys.executable, warm=(), without=without, environment=UNIT) as sandbox:
        check(sandbox, task)


def test_a_judges_sandbox_has_neither_loopback_nor_facts():
    code = (
        "import os, socket\ndef f():\n    server = socket.socket()\n    server.bind(('127.0.0.1', 0))\n    server.listen()\n"
        "    socket.create_connection(server.getsockname(), 1)\ndef g():\n    return os.path.exists('/proc/meminfo')"
    )
    from codea1_cli.sandbox.base import Limits

    with LocalSandbox(1, python=sys.executable, warm=()) as sandbox:
        run = sandbox.run(code, "f", ["f()", "g()"], Limits())
        assert run.answers[0].kind == "raised"
        assert run.answers[1].text == "False"


@pytest.mark.shared
def test_tasks_that_need_libraries(shared):
    """With CODEA1_BIGCODE_PYTHON, the interpreter of an environment with the libraries."""
    python = os.environ.get("CODEA1_BIGCODE_PYTHON")
    if not python:
        pytest.skip("CODEA1_BIGCODE_PYTHON names no interpreter")
    from codea1_cli.evals.benchmark import ScoreOptions
    from codea1_cli.evals.bigcodebench.environment import open_sandbox
    from codea1_cli.evals.bigcodebench.tasks import load_tasks

    wanted = {f"BigCodeBench/{n}" for n in (4, 30, 51, 53, 227, 1038, 1101)}
    with open_sandbox(ScoreOptions(1, python)) as sandbox:
        for task in load_tasks(shared / "data" / "bench").tasks:
            if task.task_id in wanted:
                scored = score(sandbox, task, task.reference, ScoreSettings(time_limit_s=60.0))
                assert scored.status is Status.PASS, scored
                stub = task.complete_prompt + "\n    return None"
                assert score(sandbox, task, stub, QUICK).status in (Status.FAIL, Status.TIMEOUT)
