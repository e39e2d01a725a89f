"""Every command that writes an output is refused while another process writes it."""

import json
import os
import threading

import pytest

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.cli.make_pairs import made_of, pairs_folder, recipe_pairs
from codea1_cli.data import WorkFolder
from codea1_cli.data.pairs import identity
from codea1_cli.durable import only_writer
from codea1_cli.recipe.files import load_recipe
from tests.cli.fake_run import make_run
from tests.evals.evalplus.conftest import TASKS

SAMPLE = {"task_id": "HumanEval/0", "solution": "def add(a, b):\n    return a + b\n"}
HELD = {
    "out.results.json": ("eval-code", "humaneval", "--samples", "s.jsonl", "--data", "release.jsonl", "--out", "out.jsonl"),
    "new.results.json": ("eval-code", "humaneval", "--model", "builtin:tiny", "--data", "release.jsonl", "--out", "new.jsonl"),
    "clean.jsonl": ("eval-code", "sanitise", "humaneval", "s.jsonl", "--data", "release.jsonl", "--out", "clean.jsonl"),
    "tests": ("eval-tests", "own.py", "--suites", "suites.jsonl", "--out", "tests"),
    "model": ("export", "first", "--role", "code", "--to", "model"),
    "figures.csv": ("runs", "export", "first", "--out", "figures.csv"),
    "book.jsonl": ("mistakes", "export", "--run", "first", "--to", "book.jsonl"),
}  # fmt: skip


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEA1_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CODEA1_CACHE", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "release.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    (tmp_path / "s.jsonl").write_text(json.dumps(SAMPLE) + "\n")
    (tmp_path / "own.py").write_text("def f(x):\n    return x\n")
    (tmp_path / "suites.jsonl").write_text(json.dumps({"task_id": "f", "asserts": ["assert f(1) == 1"]}))
    return tmp_path


def refused(capsys, *words):
    capsys.readouterr()
    code = run_app(app, words)
    err = capsys.readouterr().err
    assert code == 2
    assert f"process {os.getpid()}" in err
    assert "hint: wait for it" in err


@pytest.mark.parametrize("held", HELD)
def test_an_output_that_is_being_written(inputs, capsys, held):
    make_run(inputs / "runs")
    with only_writer(inputs / held):
        before = sorted(inputs.rglob("*"))
        refused(capsys, *HELD[held])
        assert sorted(path for path in inputs.rglob("*") if "cache" not in path.parts) == [
            path for path in before if "cache" not in path.parts
        ]


def test_a_link_to_samples_that_are_being_written(inputs, capsys):
    (inputs / "link.jsonl").symlink_to("new.jsonl")
    with only_writer(inputs / "new.results.json"):
        refused(capsys, *HELD["new.results.json"][:-1], "link.jsonl")


def test_runs_and_prepared_data(inputs, capsys):
    run = make_run(inputs / "runs")
    with run.locked():
        refused(capsys, "runs", "prune", "--run", "first", "--yes")
    with WorkFolder(inputs / "data" / ".work").locked():
        refused(capsys, "prepare-data", "own.py", "--out", "data", "--no-verify", "--no-decontaminate")


def test_pairs_that_another_run_makes_are_waited_for(inputs):
    rows = [
        {"id": f"p{i}", "question": "The double.", "entry_point": f"f{i}", "declaration": f"def f{i}(n):", "tests": [f"assert f{i}({i + 2}) == {2 * i + 4}"],
         "reference": f"def f{i}(n):\n    return 2 * n\n"}
        for i in range(2)
    ]  # fmt: skip
    (inputs / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = load_recipe("tiny", ["method=sft", "sft.role=code", "data.train=train.jsonl", "data.heldout=null"])
    problems, options, source = made_of(recipe, "code", None)
    held = only_writer(pairs_folder(identity(problems, options, source), "code"))
    held.__enter__()
    released = threading.Event()

    def release():
        released.set()
        held.__exit__(None, None, None)

    threading.Timer(0.5, release).start()
    pairs = recipe_pairs(recipe, ["code"])
    assert released.is_set()
    assert pairs
    assert recipe_pairs(recipe, ["code"]) == pairs
