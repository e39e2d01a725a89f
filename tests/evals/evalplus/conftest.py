"""A handful of tasks in the shape of EvalPlus' release files, and the command line in one process."""

import gzip
import json

import pytest

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app

TASKS = [
    {
        "task_id": "HumanEval/0",
        "prompt": 'def add(a: int, b: int) -> int:\n    """Add two numbers."""\n',
        "entry_point": "add",
        "canonical_solution": "    return a + b\n",
        "base_input": [[1, 2], [0, 0]],
        "plus_input": [[5, -5], [10, 20], [7, 1]],
        "atol": 0,
        "contract": "",
        "test": "",
    },
    {
        "task_id": "HumanEval/1",
        "prompt": 'def halves(xs: list) -> list:\n    """Half of each number."""\n',
        "entry_point": "halves",
        "canonical_solution": "    return [x / 2 for x in xs]\n",
        "base_input": [[[1, 2]], [[]]],
        "plus_input": [[[3, 5, 7]], [[0.5]]],
        "atol": 0,
        "contract": "",
        "test": "",
    },
    {
        "task_id": "HumanEval/2",
        "prompt": 'def words(text: str) -> list:\n    """The words of a text."""\n',
        "entry_point": "words",
        "canonical_solution": "    return text.split()\n",
        "base_input": [["a b"], [""]],
        "plus_input": [["one two  three"]],
        "atol": 0,
        "contract": "",
        "test": "",
    },
]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A release file of three tasks."""
    path = tmp_path_factory.mktemp("data") / "humaneval_plus.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(task) + "\n" for task in TASKS).encode()))
    return path


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs `codea1 ...` in an empty folder; its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEA1_CACHE", str(tmp_path / "cache"))

    def run(*arguments):
        code = run_app(app, [str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
