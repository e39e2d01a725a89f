"""`codea1 judge` and `codea1 sandbox`, through their own functions."""

import inspect
import json
from pathlib import Path

import pytest
import typer

from codea1_cli.cli import judge as judge_command
from codea1_cli.cli.console import run_app
from codea1_cli.engine.judge_processes import run_judge
from codea1_cli.errors import UserError
from codea1_cli.evals.benchmark import ScoreOptions
from codea1_cli.judging.speed import build_work
from codea1_cli.recipe.files import load_recipe
from codea1_cli.sandbox.base import Sandbox
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.make import BACKENDS, Backend, SandboxOptions
from codea1_cli.tiny import problems_path

judge_app = typer.Typer()
judge_app.command()(judge_command.judge)


class Shared:
    """The tests' sandbox, which stays open."""

    def __init__(self, sandbox: LocalSandbox) -> None:
        self.run, self.workers, self.layers = sandbox.run, sandbox.workers, sandbox.layers

    def close(self) -> None: ...


ROWS = [
    {"id": "right", "candidate": "def f(x): return x + 1", "tests": ["assert f(1) == 2", "assert f(2) == 9"]},
    {"id": "wrong", "candidate": "def f(x): return x", "suite": "```python\nassert f(1) == 2\n```"},
    {"id": "broken", "candidate": "def f(x", "tests": ["assert f(1) == 2"], "time_limit_s": 1},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    common = {"reference": "def f(x): return x + 1", "entry_point": "f"}
    path.write_text("".join(json.dumps(row | common) + "\n" for row in ROWS))
    return path


def test_judge_writes_one_json_line_a_row_and_nothing_else_on_stdout(file: Path, capsys) -> None:
    assert run_app(judge_app, [str(file), "--json", "--workers", "2"]) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["id"], row["status"]) for row in rows] == [
        ("right", "ok"),
        ("wrong", "failed"),
        ("broken", "load_error"),
    ]
    assert rows[0]["tests"][1] == {
        "test": "assert f(2) == 9", "valid": True, "stated_correctly": False, "verdict": "passed", "expected": "3",
        "got": "3", "reason": None,
    }  # fmt: skip
    assert "1 failed, 1 load_error, 1 ok" in err


def test_judge_for_people_names_each_row_and_why_it_did_not_load(file: Path, capsys) -> None:
    assert run_app(judge_app, [str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "right  ok  2/2 passed, 1 of 2 state another answer than the reference's"
    assert lines[2].startswith("broken  load_error  0/1 passed  (SyntaxError: ")


def test_a_bad_row_is_a_usage_error_after_the_good_ones(file: Path, capsys) -> None:
    file.write_text(file.read_text() + "{\n")
    assert run_app(judge_app, [str(file), "--json"]) == 2
    out, err = capsys.readouterr()
    told = [line for line in err.splitlines() if not line.startswith("warning: ")]  # of layers that are missing here
    assert told[0].startswith(f"error: {file}:4: not JSON")
    assert len(out.splitlines()) <= 3


def test_a_missing_layer_or_interpreter_ends_with_exit_code_3(file: Path, capsys, monkeypatch) -> None:
    from codea1_cli.sandbox.local import cgroup

    assert run_app(judge_app, [str(file), "--python", "/nonexistent"]) == 3
    monkeypatch.setattr(cgroup, "find_parents", dict)
    assert run_app(judge_app, [str(file), "--require", "memory_cgroup"]) == 3
    assert "memory_cgroup" in capsys.readouterr().err
    assert run_app(judge_app, [str(file)]) == 0
    assert "sandbox layers missing here: pids_cgroup" in capsys.readouterr().err
    assert run_app(judge_app, [str(file), "--require", "nosuch"]) == 2


def test_a_backend_is_a_row(file: Path, sandbox: LocalSandbox, tmp_path: Path, capsys, monkeypatch) -> None:
    """Recipe, judge and commands learn of a further one, and of what it is, from its row alone."""
    asked = []

    def opened(options: SandboxOptions) -> Sandbox:
        asked.append(options.endpoint)
        return Shared(sandbox)

    row = Backend(opened, lambda named: named or "its own place", on_this_machine=False)
    monkeypatch.setitem(BACKENDS, "elsewhere", row)
    assert run_app(judge_app, [str(file), "--sandbox", "elsewhere", "--endpoint", "there"]) == 0
    assert run_app(judge_command.sandbox_app, ["check", "--sandbox", "elsewhere"]) == 0
    recipe = load_recipe("tiny", ["sandbox.backend=elsewhere", "judge.workers=16"])
    assert recipe.sandbox.endpoint == "its own place"
    run_judge(recipe, tmp_path).close()
    assert asked == ["there", None, "its own place"]
    assert ScoreOptions(sandbox="elsewhere").on_this_machine is False
    with pytest.raises(UserError, match="local sandbox has no endpoint"):
        load_recipe("tiny", ["sandbox.endpoint=there"])


def test_an_unscored_row_ends_with_exit_code_3(file: Path, capsys, monkeypatch) -> None:
    from codea1_cli.sandbox.local.worker import Worker, WorkerLost

    def lost(*_: object) -> None:
        raise WorkerLost("gone")

    file.write_text(file.read_text().splitlines()[0] + "\n")
    monkeypatch.setattr(Worker, "watch", lost)
    assert run_app(judge_app, [str(file), "--json", "--workers", "1"]) == 3
    out, err = capsys.readouterr()
    assert {json.loads(line)["status"] for line in out.splitlines()} == {"unscored"}
    assert "1 row unscored" in err


def test_check_reports_every_layer_and_every_canary(capsys) -> None:
    code = run_app(judge_command.sandbox_app, ["check", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["holds"] is (code == 0)
    assert code in (0, 3)
    assert len(report["layers"]) == 11
    if all(state == "works" for state in report["layers"].values()):
        assert [canary for canary in report["canaries"] if not canary["held"]] == []


def test_check_says_so_when_the_sandbox_does_not_hold(capsys, monkeypatch) -> None:
    from codea1_cli.judging import canaries

    monkeypatch.setattr(canaries, "run_canaries", lambda box: [canaries.Canary("the parent lives", False, "it died")])
    assert run_app(judge_command.sandbox_app, ["check"]) == 3
    out, err = capsys.readouterr()
    assert "BROKEN" in out
    assert "does not hold" in err


def test_bench_compares_the_same_work(capsys) -> None:
    assert run_app(judge_command.sandbox_app, ["bench", "--jobs", "8", "--no-evalplus", "--json"]) == 0
    arms = {arm["name"]: arm for arm in json.loads(capsys.readouterr().out)["arms"]}
    assert {arm["passed"] for arm in arms.values()} == {8 * 8}
    assert arms["4 suites a fork"]["times_script"] > 0


def test_the_built_in_problems_are_enough_for_the_default(capsys) -> None:
    jobs = inspect.signature(judge_command.bench).parameters["jobs"].default
    with LocalSandbox(2) as sandbox:
        work = build_work(judge_command._problems(None), jobs, sandbox)
    assert sum(len(item.suites) for item in work) >= jobs


def test_bench_with_too_few_problems_says_so(tmp_path: Path, capsys) -> None:
    problems = tmp_path / "one.jsonl"
    problems.write_text(problems_path("train").read_text().splitlines()[0] + "\n")
    assert run_app(judge_command.sandbox_app, ["bench", "--problems", str(problems), "--no-evalplus"]) == 2
    assert "fewer than 480" in capsys.readouterr().err
