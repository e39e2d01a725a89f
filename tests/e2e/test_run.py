"""What a finished run leaves, and what the other commands make of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from codea1_cli.recipe.files import load_recipe
from codea1_cli.runs.run_dir import RunDir
from tests.e2e.harness import SMALL, Cli

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]  # one process: they share runs


def test_the_run_directory_is_the_contract(cli: Cli, whole: str) -> None:
    run = cli.path(whole)
    names = {p.name for p in run.iterdir()}
    assert {
        "recipe.yaml",
        "recipe.source.yaml",
        "run.json",
        "metrics.jsonl",
        "mistakes.sqlite",
        "rollouts",
        "checkpoints",
        "logs",
    } <= names
    assert (run / "checkpoints" / "latest").resolve().name == "step-000006"
    info = json.loads((run / "run.json").read_text())
    assert info["total_steps"] == 6
    assert len(info["problem_ids"]) == 4
    assert {"torch", "trl", "transformers", "ray"} <= set(info["versions"])
    assert load_recipe(str(run / "recipe.yaml")).train.precision in ("bf16", "fp32"), "settled for good"
    source = (run / "recipe.source.yaml").read_text()
    assert "# recipe: tiny" in source
    assert "# override: data.limit=4" in source


def test_both_policies_load_as_plain_folders(cli: Cli, whole: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    exported = tmp_path / "exported"
    done = cli("export", whole, "--role", "test", "--to", str(exported), "--step", "3")
    assert done.returncode == 0, done.stderr
    checkpoint = cli.path(whole) / "checkpoints" / "latest"
    for folder in (checkpoint / "code", exported):
        assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 1000
        assert AutoTokenizer.from_pretrained(folder).chat_template


def test_the_mistake_book_can_be_read(cli: Cli, whole: str, tmp_path: Path) -> None:
    listed = json.loads(cli("mistakes", "list", "--run", whole, "--json").stdout)
    problems = listed["problems"] if isinstance(listed, dict) else listed
    assert problems
    shown = cli("mistakes", "inspect", problems[0]["problem_id"], "--run", whole)
    assert shown.returncode == 0, shown.stderr
    file = tmp_path / "test_mistakes.py"
    done = cli("mistakes", "export", "--run", whole, "--format", "pytest", "--to", str(file))
    assert done.returncode == 0, done.stderr
    assert (
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)], cwd=tmp_path
        ).returncode
        == 0
    )


def test_a_used_run_and_a_locked_run_are_refused(cli: Cli, whole: str) -> None:
    again = cli("train", "--recipe", "tiny", "--run", whole, *SMALL)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    with RunDir(cli.path(whole)).locked():
        for command in (("--run", whole, "--resume"), ("--recipe", "tiny", "--run", whole)):
            locked = cli("train", *command)
            assert locked.returncode == 2
            assert "is being trained by process" in locked.stderr
            assert "prune" not in locked.stderr
    finished = cli("train", "--run", whole, "--resume")
    assert finished.returncode == 2
    assert "nothing left to do" in finished.stderr
    assert "plan:" not in finished.stderr
    assert f"--run {whole} --resume train.max_steps=12" in finished.stderr
