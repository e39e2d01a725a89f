"""A recipe that knows its data, on a machine that has nothing but a network (a stand-in of the hub)."""

import json
import re
import shutil
from pathlib import Path

import pytest

from codea1_cli.cli.recipes import fetched
from codea1_cli.recipe.files import load_recipe
from tests.e2e.harness import SMALL, Cli
from tests.hub import PATIENT, environment, publish_all, serving

RECIPE = """extends: tiny
name: first
data:
  train: null
  heldout: null
  source: {name: kodcode, difficulty: medium, val: 0.2, limit: 60}
preflight: {enabled: false}
code: {max_prompt_tokens: 900}
test: {max_prompt_tokens: 1500}
"""


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_recipe_brings_its_data(cli: Cli, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    functions = tmp_path / "benchmarks" / "clone" / "whatever.json"
    functions.parent.mkdir(parents=True)
    shutil.copyfile(shared / "data" / "bench" / "ult_lite.json", functions)
    small = [change for change in SMALL if not change.startswith("data.") and "max_steps" not in change]
    words = ("train", "--recipe", str(tmp_path / "recipe.yaml"), *small, "train.max_steps=1", "checkpoint.every=1")
    with serving() as (hub, address):
        publish_all(hub, shared)
        env = environment(address, tmp_path) | PATIENT | {"CODEA1_BENCHMARKS": str(functions.parents[1])}
        ahead = cli(*words, "--dry-run", "--run", "first", env=env)
        assert ahead.returncode == 0, ahead.stderr
        assert "first use: fetches kodcode, 2.6 GB" in ahead.stderr
        assert hub.asked == []
        done = cli(*words, "--run", "first", env=env)
        assert done.returncode == 0, done.stderr
        for said in (
            "of the dataset evalplus/humanevalplus",
            "3 files",
            "of the dataset KodCode/KodCode-V1",
            "kept in",
        ):
            assert said in done.stderr
        run = cli.path("first")
        card = json.loads((run / "data" / "card.json").read_text())
        assert card["benchmarks"] == {"HumanEval+": 164, "MBPP+": 378, "BigCodeBench": 1140, "ULT": 200}
        assert card["source"]["difficulty"] == "medium"
        assert card["splits"]["train"] > 4
        assert card["splits"]["val"] > 0
        assert (run / "data" / "README.md").read_text().startswith("# KodCode-V1")
        assert json.loads((run / "run.json").read_text())["data"]["train"].startswith(str(tmp_path / "cache" / "data"))
        again = cli(*words, "--dry-run", "--run", "second", env=env)
        assert re.search(r"\d+ problems", again.stdout)  # some of them the embedded model cannot read
        assert "first use" not in again.stderr
        given = cli(*words, "--dry-run", "data.train=builtin:tiny/train", env=env)
        assert "builtin:tiny/train" in given.stdout
        hub.asked.clear()
        with monkeypatch.context() as at_second_use:
            for name, value in env.items():
                at_second_use.setenv(name, value)
            recipe, problems = fetched(load_recipe(str(tmp_path / "recipe.yaml"), small), {})
        assert len(problems) == card["splits"]["train"]
        assert recipe.data.heldout
        assert hub.asked == [], "a second use needs no network"
    gone = cli(
        *words, "--run", "third", env={**env, "CODEA1_CACHE": str(tmp_path / "empty"), "HF_HOME": str(tmp_path / "e")}
    )
    assert gone.returncode == 3
    assert "KodCode/KodCode-V1" in gone.stderr
    assert "Ray" not in gone.stderr
