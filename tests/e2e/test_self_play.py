"""`method: self-play` through the whole command: one policy in both roles of code-a1's game."""

import json
from pathlib import Path

import pytest

from tests.e2e.harness import SMALL, Cli, comparable

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SETTINGS = (
    "method=self-play",
    *(setting for setting in SMALL if not setting.startswith(("train.max_steps", "checkpoint", "data.heldout"))),
    "train.max_steps=4",
    "train.equal_budget=true",
    "test.weight=0.5",
    "checkpoint.every=2",
    "eval.limit=2",
    "eval.n=2",
)


def test_it_goes_on_to_the_bit_after_a_rank_is_killed_and_one_folder_is_both_models(cli: Cli, tmp_path: Path) -> None:
    checked = cli("recipes", "check", "tiny", *SETTINGS)
    assert checked.returncode == 0, checked.stdout
    planned = cli("train", "--recipe", "tiny", "--dry-run", "--json", *SETTINGS)
    plan = json.loads(planned.stdout)
    assert plan["sampled a step"] == "8 candidates, up to 16 suites of 4 asserts"
    assert (plan["code"]["rows trained a step"], plan["code"]["optimizer steps a step"]) == (2 * (4 + 2), 2 * 2)
    assert "test" not in plan
    whole = cli("train", "--recipe", "tiny", "--run", "self", *SETTINGS)
    assert whole.returncode == 0, whole.stderr
    assert "loading the policy" in whole.stderr
    assert "step 4/4  code reward " in whole.stderr
    assert "  test reward " in whole.stderr
    steps = [line for line in cli.metrics("self") if "eval" not in line]
    for line in steps:
        known = {"reward", "reward_std", "completion_tokens", "clipped_share", "sampled_tokens", "signal_share"}
        assert set(line["test"]) <= known
        assert {"loss", "grad_norm", "learning_rate", "reward", "sampled_tokens"} <= set(line["code"])
        assert {"code_sampling_s", "test_sampling_s", "test_waiting_s", "code_updating_s"} <= set(line["timing"])
    closing = cli.metrics("self")[-1]["eval"]
    assert {"code", "test", "near_miss"} <= set(closing)
    assert set(json.loads((cli.path("self") / "preflight.json").read_text())) == {"stopped", "code", "test"}

    killed = cli(
        "train", "--recipe", "tiny", "--run", "self-part", *SETTINGS, env={"CODEA1_FAULT": "test:0:3:sampling:exit"}
    )
    assert killed.returncode == 1
    assert "error: code[0] died at step 3" in killed.stderr
    assert "step 2 is saved" in killed.stderr
    resumed = cli("train", "--run", "self-part", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert comparable(steps) == comparable([line for line in cli.metrics("self-part") if "eval" not in line])
    latest = [cli.path(run) / "checkpoints" / "latest" for run in ("self", "self-part")]
    assert sorted(path.name for path in latest[0].iterdir()) == ["COMMITTED", "arena", "code"]
    for name in ("code/model.safetensors", "arena/state.json"):
        assert (latest[0] / name).read_bytes() == (latest[1] / name).read_bytes()
    for role in ("code", "test"):
        exported = cli("export", "self-part", "--role", role, "--to", str(tmp_path / role))
        assert exported.returncode == 0, exported.stderr
        assert (tmp_path / role / "model.safetensors").read_bytes() == (
            latest[1] / "code/model.safetensors"
        ).read_bytes()
    problem = json.loads((cli.path("self") / "run.json").read_text())["problem_ids"][0]
    assert cli("mistakes", "inspect", problem, "--run", "self").returncode == 0
