"""A run that was killed and resumed is the run that nobody killed, to the bit."""

import json
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from codea1_cli.extract import parse_suite
from codea1_cli.problems.problem import read_problems, write_problems
from codea1_cli.recipe.resources import problems_file
from tests.e2e.harness import SMALL, Cli, alive_of, comparable, kill_when, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]  # one process: they share runs


def assert_same_run(cli: Cli, one: str, other: str, steps: int = 6) -> None:
    assert comparable(cli.metrics(one)) == comparable(cli.metrics(other))
    for role in ("code", "test"):
        weights = [
            (cli.path(run) / "checkpoints" / "latest" / role / "model.safetensors").read_bytes() for run in (one, other)
        ]
        assert weights[0] == weights[1], f"parameters of the {role} policy differ"
    states = [
        json.loads((cli.path(run) / "checkpoints" / "latest" / "arena" / "state.json").read_text())
        for run in (one, other)
    ]
    assert states[0] == states[1]
    assert states[0]["step"] == steps
    assert events(cli.path(one)) == events(cli.path(other))
    for step in range(1, steps + 1):
        tables = [pq.read_table(cli.path(run) / "rollouts" / f"step-{step:06d}.parquet") for run in (one, other)]
        assert tables[0].equals(tables[1]), f"rollouts of step {step} differ"


def events(run: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(run / "mistakes.sqlite") as database:
        book = list(database.execute("SELECT step, problem_id, test, change, candidate FROM events"))
        pools = list(database.execute("SELECT problem_id, program, evidence, own_test, step FROM pool"))
    assert pools
    return book + pools


def test_the_undisturbed_run_learns_something_to_compare(cli: Cli, whole: str) -> None:
    lines = cli.metrics(whole)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert any(line["code"]["grad_norm"] > 0 for line in lines)
    assert any(line["test"]["grad_norm"] > 0 for line in lines)
    assert events(cli.path(whole))


def test_killed_in_the_middle_of_a_step_and_inside_a_checkpoint_write(cli: Cli, whole: str) -> None:
    run = cli.path("killed")
    process = cli.start("train", "--recipe", "tiny", "--run", "killed", *SMALL)
    metrics = run / "metrics.jsonl"
    kill_when(process, lambda: metrics.is_file() and len(metrics.read_text().splitlines()) >= 4)
    assert wait_for(lambda: not alive_of(run), 60.0), alive_of(run)
    assert (run / "checkpoints" / "latest").resolve().name == "step-000003"

    process = cli.start("train", "--run", "killed", "--resume")
    checkpoints = run / "checkpoints"
    kill_when(process, lambda: any(checkpoints.glob(".work/*/checkpoint-12")))
    assert "goes on from step 3" in cli.log_of(process)
    assert wait_for(lambda: not alive_of(run), 60.0), alive_of(run)
    committed = [p.parent.name for p in checkpoints.glob("step-*/COMMITTED")]
    assert "step-000003" in committed
    if "step-000006" not in committed:  # else the kill came a moment after the commit: the run is over and whole
        resumed = cli("train", "--run", "killed", "--resume")
        assert resumed.returncode == 0, resumed.stderr
        assert not list(checkpoints.glob(".[wps]*"))
    assert_same_run(cli, whole, "killed")


@pytest.mark.slow
def test_a_finished_run_that_goes_on_longer_is_the_run_that_was_as_long_from_the_start(cli: Cli, whole: str) -> None:
    """Damaged in between; the learning rate of the recipe is constant."""
    shorter = [s.replace("train.max_steps=6", "train.max_steps=4") for s in SMALL]
    done = cli("train", "--recipe", "tiny", "--run", "longer", *shorter)
    assert done.returncode == 0, done.stderr
    over = cli("train", "--run", "longer", "--resume")
    assert over.returncode == 2
    assert "--resume train.max_steps=8" in over.stderr

    run = cli.path("longer")
    (run / "checkpoints" / "step-000004" / "test" / "model.safetensors").unlink()
    done = cli("train", "--run", "longer", "--resume", "train.max_steps=6", "checkpoint.every=2")
    assert done.returncode == 0, done.stderr
    assert "checkpoint 4 is damaged: test/model.safetensors is missing" in done.stderr
    assert "set-aside/after-step-000003: 1 line of metrics" in done.stderr
    assert "changed from here on: train.max_steps=6, checkpoint.every=2" in done.stderr
    info = json.loads((run / "run.json").read_text())
    assert info["total_steps"] == 6
    assert info["resumed"][-1]["changed"] == {"train.max_steps": [4, 6], "checkpoint.every": [3, 2]}
    assert "max_steps: 6" in (run / "recipe.yaml").read_text()
    assert_same_run(cli, whole, "longer")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_problem_that_left_the_schedule_stays_away_after_a_resume(cli: Cli, tmp_path: Path) -> None:
    """One of four references loops on calls of some lengths, those of its own tests excepted."""
    slow, *problems = read_problems(problems_file("builtin:tiny/train"), 4)
    entry = slow.entry_point
    own = [f"({call.partition('(')[2]}" for test in slow.tests if (call := parse_suite(test, entry)[0].call)]
    loop = f"while len(repr(x)) % 3 == 0 and repr((x,)).replace(',)', ')') not in {own}: pass"
    slow = slow.model_copy(
        update={
            "reference": f"{slow.reference}\n_answer = {entry}\ndef {entry}(x):\n    {loop}\n    return _answer(x)\n"
        }
    )
    file = tmp_path / "slow.jsonl"
    write_problems(file, [slow, *problems])
    settings = [*SMALL, f"data.train={file}", "checkpoint.every=1", "checkpoint.keep=6", "judge.time_limit_s=0.5"]
    done = cli("train", "--recipe", "tiny", "--run", "leaving", *settings)
    assert done.returncode == 0, done.stderr
    lines = cli.metrics("leaving")
    left = {pid: line["step"] for line in lines for pid in line["arena"]["leaving"]}
    assert list(left) == [slow.id]
    assert f"{slow.id} leaves the schedule" in done.stderr
    step = left[slow.id]
    assert [line["arena"]["problems_left"] for line in lines] == [int(line["step"] >= step) for line in lines]
    for number in range(1, 7):
        rows = pq.read_table(cli.path("leaving") / "rollouts" / f"step-{number:06d}.parquet").to_pylist()
        played = {row["problem_id"] for row in rows}
        assert len(played) == 2
        assert number <= step or slow.id not in played
    cli.cut("leaving", "resumed", step)
    resumed = cli("train", "--run", "resumed", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert f"goes on from step {step}" in resumed.stderr
    assert_same_run(cli, "leaving", "resumed")
