"""A method that lies outside the project and trains one policy: the engine asks it for everything it knows of roles."""

import json
from pathlib import Path

import pytest

from tests.e2e.harness import SMALL, Cli, comparable

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("e2e-one-role")]  # they share a run

ENV = {"PYTHONPATH": str(Path(__file__).parents[2])}
SETTINGS = (
    "method=tests.methods.one_role:OneRole",
    *(setting for setting in SMALL if not setting.startswith(("train.max_steps", "checkpoint", "data.heldout"))),
    "train.max_steps=2",
    "checkpoint.every=1",
    "eval.limit=2",
    "eval.n=2",
)


def test_a_method_with_one_role_trains_saves_and_resumes(cli: Cli) -> None:
    whole = cli("train", "--recipe", "tiny", "--run", "one", *SETTINGS, env=ENV)
    assert whole.returncode == 0, whole.stderr
    assert "step 2/2  loaded " in whole.stderr
    assert "test policy" not in whole.stderr
    assert "Test LLM" not in whole.stderr
    assert "both" not in whole.stderr
    evaluated, first, second, closing = cli.metrics("one")
    assert set(first) == {"step", "time", "code", "arena", "timing"}
    assert set(evaluated["eval"]) == set(closing["eval"]) == {"set", "code"}
    assert {key for key in second["timing"] if key != "step_s"} == {
        "judge_tail_s", "code_sampling_s", "code_waiting_s", "code_updating_s",
    }  # fmt: skip
    checkpoint = cli.path("one") / "checkpoints" / "latest"
    assert sorted(path.name for path in checkpoint.iterdir()) == ["COMMITTED", "arena", "code"]

    cli.cut("one", "one-cut", 1)
    resumed = cli("train", "--run", "one-cut", "--resume", env=ENV)
    assert resumed.returncode == 0, resumed.stderr
    assert "goes on from step 1" in resumed.stderr
    steps = [[line for line in cli.metrics(run) if "eval" not in line] for run in ("one", "one-cut")]
    assert comparable(steps[0]) == comparable(steps[1])
    weights = [
        (cli.path(run) / "checkpoints" / "latest" / "code" / "model.safetensors").read_bytes()
        for run in ("one", "one-cut")
    ]
    assert weights[0] == weights[1]


def test_plan_and_export_know_the_one_policy(cli: Cli, tmp_path: Path) -> None:
    plan = cli("train", "--recipe", "tiny", "--dry-run", "--json", *SETTINGS, env=ENV)
    assert plan.returncode == 0, plan.stderr
    assert "code" in json.loads(plan.stdout)
    assert "test" not in json.loads(plan.stdout)
    exported = cli("export", "one", "--role", "code", "--to", str(tmp_path / "model"), env=ENV)
    assert exported.returncode == 0, exported.stderr
    refused = cli("export", "one", "--role", "test", "--to", str(tmp_path / "none"), env=ENV)
    assert refused.returncode == 2
    assert "unexpected" not in refused.stderr
