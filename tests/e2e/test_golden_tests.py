"""`method: golden-tests` through the whole command: one policy, its problems' own tests, no reference."""

import json
from pathlib import Path

import pytest

from codea1_cli.problems.problem import read_problems
from codea1_cli.tiny import problems_path
from tests.e2e.harness import Cli, comparable

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SETTINGS = (
    "method=golden-tests",
    "game.n_code=4",
    "train.max_steps=4",
    "train.problems_per_step=4",
    "train.spare_problems=2",
    "train.staleness=1",
    "train.updates_per_step=2",
    "train.threads=1",
    "judge.workers=1",
    "code.max_completion_tokens=64",
    "checkpoint.every=2",
    "eval.limit=4",
    "eval.n=2",
)
RATES = ("data.limit=24", "data.solve_rate=[0.2, 0.8]")


def test_it_trains_on_what_is_solved_at_times_resumes_to_the_bit_and_is_exported(cli: Cli, tmp_path: Path) -> None:
    """Problems are filtered by the solve rate, which is measured first, and once."""
    rows = [
        json.loads(problem.model_dump_json(exclude={"reference"})) for problem in read_problems(problems_path("train"))
    ]
    rows[3]["tests"] = []
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows[:30]))
    settings = (*SETTINGS, *RATES, f"data.train={data}")
    checked = cli("recipes", "check", "tiny", *settings)
    assert checked.returncode == 0, checked.stdout
    whole = cli("train", "--recipe", "tiny", "--run", "golden", *settings)
    assert whole.returncode == 0, whole.stderr
    assert f"left out 1 problem, it has no tests of its own: {rows[3]['id']}" in whole.stderr
    assert "measuring the solve rates of 23 problems" in whole.stderr
    rates = json.loads((cli.path("golden") / "solve_rates.json").read_text())
    info = json.loads((cli.path("golden") / "run.json").read_text())
    assert len(rates) == 23
    assert set(rates.values()) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert info["problem_ids"] == [pid for pid, rate in rates.items() if 0.2 <= rate <= 0.8]
    assert "step 4/4  code reward " in whole.stderr
    assert "Mistake Book" not in whole.stderr
    assert "next: codea1 runs show golden" in whole.stderr
    steps = [line for line in cli.metrics("golden") if "eval" not in line]
    assert all(0 <= line["arena"]["solved_share"] <= line["arena"]["passed_share"] <= 1 for line in steps)
    for line in steps:  # four groups are learnt from, of six that are sampled: those with a signal first
        with_signal = round(6 * line["arena"]["code_signal_share"])
        assert (line["arena"]["candidates"], line["code"]["signal_share"]) == (24, min(with_signal, 4) / 4)
    assert {"pass@1", "pass@2"} <= set(cli.metrics("golden")[-1]["eval"]["code"])
    assert "test" not in (cli.path("golden") / "recipe.yaml").read_text().split()

    cli.cut("golden", "golden-part", 2)
    resumed = cli("train", "--run", "golden-part", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "goes on from step 2" in resumed.stderr
    assert "measuring" not in resumed.stderr
    assert comparable(steps) == comparable([line for line in cli.metrics("golden-part") if "eval" not in line])
    weights = [
        (cli.path(run) / "checkpoints" / "latest" / "code" / "model.safetensors").read_bytes()
        for run in ("golden", "golden-part")
    ]
    assert weights[0] == weights[1]
    exported = cli("export", "golden-part", "--role", "code", "--to", str(tmp_path / "model"))
    assert exported.returncode == 0, exported.stderr
    assert cli("runs", "show", "golden-part").returncode == 0


def test_an_adapter_on_two_ranks_learns_from_tests_that_a_model_wrote(cli: Cli, tmp_path: Path) -> None:
    few, golden = tmp_path / "few.jsonl", tmp_path / "golden.jsonl"
    few.write_text("".join(problems_path("train").read_text().splitlines(keepends=True)[:8]))
    ask = ("--problems", str(few), "--out", str(golden), "--white-box", "--n", "2", "--max-new-tokens", "64")
    made = cli("write-tests", *ask, "--model", "builtin:tiny", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["with_tests"] == len(read_problems(golden, references=False)) == 8
    more = ("lora={}", "code.ranks=2", "game.golden=all", "train.max_steps=1", "data.heldout=null")
    more += (f"data.train={golden}",)
    planned = cli("train", "--recipe", "tiny", "--dry-run", "--json", *SETTINGS, *more)
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert (plan["method"], plan["code"]["ranks"], "test" in plan) == ("golden-tests", 2, False)
    done = cli("train", "--recipe", "tiny", "--run", "adapter", *SETTINGS, *more)
    assert done.returncode == 0, done.stderr
    assert json.loads((cli.path("adapter") / "preflight.json").read_text())["stopped"] == []
    (line,) = cli.metrics("adapter")
    assert line["arena"]["candidates"] == 24
