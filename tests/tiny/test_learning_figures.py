"""The learning benchmark's arithmetic: figures by problem, honest intervals, arms that are paired, runs that are skipped."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "tiny_learning"))

import figures
import run as benchmark

from codea1_cli.errors import UserError
from codea1_cli.evals import statistics
from codea1_cli.runs.summary import Measured


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 400)


def write(run: Path, step: int, solved: list[int], exposed: list[int]) -> None:
    """An evaluation of problems p0, p1, ...: `solved` of 8 solutions, and two suites each of which `exposed` expose."""
    folder = run / "evaluation"
    folder.mkdir(parents=True, exist_ok=True)
    code = [{"problem_id": f"p{i}", "passed": [j < n for j in range(8)], "unscored": 0} for i, n in enumerate(solved)]
    suite = {"asserts": 4, "valid": 3, "correct": 2, "misstated": 1, "validity": 0.5, "unscored": False}
    test = [{"problem_id": f"p{i}", **suite, "exposed": j < n} for i, n in enumerate(exposed) for j in range(2)]
    for role, rows in (("code", code), ("test", test), ("near-miss", test[:2])):
        (folder / f"step-{step:06d}-{role}.json").write_text(json.dumps(rows))


def finished(out: Path, arm: str, seed: int, solved: int, exposed: int, steps: int = 9) -> Path:
    run = out / arm / f"seed-{seed}"
    write(run, 0, [4, 2, 3, 4], [0, 0, 1, 0])
    write(run, steps, [solved] * 4, [exposed] * 4)
    (run / "run.json").write_text(json.dumps({"seed": seed, "total_steps": steps, "problem_ids": ["a", "b"]}))
    (run / "recipe.yaml").write_text(
        yaml.safe_dump({"train": {"problems_per_step": 2, "updates_per_step": 1, "epochs": 1}})
    )
    (run / "seconds").write_text("3\n")
    return run


def test_figures_are_those_of_the_first_and_last_evaluation(tmp_path):
    write(tmp_path, 0, [0, 4, 8], [0, 0, 2])
    write(tmp_path, 5, [0, 0, 0], [0, 0, 0])
    write(tmp_path, 10, [4, 8, 8], [1, 0, 2])
    found = figures.changes([figures.read_run(tmp_path)])
    values = {name: (change.before, change.after) for name, change in found.items()}
    assert values["pass@1"] == pytest.approx((50.0, 250 / 3))
    assert values["pass@8"] == pytest.approx((200 / 3, 100.0))
    assert values["exposed"] == pytest.approx((100 / 3, 50.0))
    assert values["near-miss exposed"] == pytest.approx((0.0, 50.0))
    assert values["false alarm"] == pytest.approx((100.0, 100.0))
    assert values["suite validity"] == pytest.approx((50.0, 50.0))
    assert values["stated rightly"] == pytest.approx((200 / 3, 200 / 3))
    assert values["asserts per suite"] == pytest.approx((4.0, 4.0))


def test_what_the_sandbox_could_not_judge_is_in_no_figure(tmp_path):
    write(tmp_path, 0, [4], [1])
    write(tmp_path, 9, [4], [1])
    folder = tmp_path / "evaluation"
    code = json.loads((folder / "step-000009-code.json").read_text())
    test = json.loads((folder / "step-000009-test.json").read_text())
    code[0]["unscored"] = 3
    test[1]["unscored"] = True
    (folder / "step-000009-code.json").write_text(json.dumps(code))
    (folder / "step-000009-test.json").write_text(json.dumps(test))
    found = figures.changes([figures.read_run(tmp_path)])
    assert found["pass@1"].after == pytest.approx(80.0)
    assert (found["exposed"].before, found["exposed"].after) == pytest.approx((50.0, 100.0))


def test_an_evaluation_without_near_misses_has_a_dash_and_no_column(tmp_path):
    run = finished(tmp_path, "pool", 1, 8, 2)
    for file in run.glob("evaluation/*near-miss*"):
        file.unlink()
    one = figures.read_run(run)
    assert figures.before_after(figures.changes([one])["near-miss exposed"]) == "-"
    assert "near-miss" not in figures.tables({"pool": {1: one}})


@pytest.mark.parametrize("steps", [{0: 2}, {0: 2, 9: 3}])
def test_two_evaluations_of_the_same_problems_are_needed(tmp_path, steps):
    for step, problems in steps.items():
        write(tmp_path, step, [1] * problems, [0] * problems)
    with pytest.raises(ValueError, match="same problems before and after"):
        figures.read_run(tmp_path)


# -- the bootstrap -----------------------------------------------------------------------------------------------------
def run_of(before: np.ndarray, after: np.ndarray) -> figures.Run:
    """A run whose every figure is the mean of one value per problem."""
    sides = []
    for values in (before, after):
        parts = {f"p{i}": (float(value), 1.0) for i, value in enumerate(values)}
        sides.append(Measured(frozenset(parts), dict.fromkeys(figures.NAMES, parts)))
    return figures.Run(*sides)


def test_the_interval_of_one_seed_is_that_of_resampled_problems(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 4000)
    values = np.random.default_rng(3).random(60)
    change = figures.changes([run_of(np.zeros(60), values)])["exposed"]
    error = 100 * values.std() / 60**0.5
    assert change.gain == pytest.approx(100 * values.mean())
    assert change.gain - change.low == pytest.approx(1.96 * error, rel=0.1)
    assert change.high - change.gain == pytest.approx(1.96 * error, rel=0.1)


def test_seeds_that_differ_widen_the_interval_and_equal_ones_do_not_narrow_it():
    values = np.random.default_rng(3).random(60)
    one, eight = ([run_of(np.zeros(60), values)] * count for count in (1, 8))
    spread = [run_of(np.zeros(60), values + shift) for shift in np.linspace(-0.3, 0.3, 8)]
    width = [change.high - change.low for change in (figures.changes(runs)["exposed"] for runs in (one, eight, spread))]
    assert width[1] == pytest.approx(width[0], rel=0.15)  # the same problems eight times are no new problems
    assert width[2] > 1.5 * width[1]


def test_a_constant_gain_has_no_width():
    values = np.random.default_rng(3).random(40)
    runs = [run_of(values, values + 0.2)] * 3
    for found in (figures.changes(runs), figures.contrast(runs, [run_of(values, values)] * 3)):
        assert (found["exposed"].low, found["exposed"].high) == pytest.approx((20.0, 20.0))


def test_what_cannot_be_paired_is_refused():
    few, many = run_of(np.zeros(3), np.ones(3)), run_of(np.zeros(4), np.ones(4))
    with pytest.raises(UserError, match="measured on different problems, 1 of 4 are in one only"):
        figures.contrast([few], [many])
    with pytest.raises(ValueError, match="cannot be paired"):
        figures.contrast([few], [few, few])


# -- the tables, the arms ----------------------------------------------------------------------------------------------
def test_tables_have_a_line_per_arm_contrast_and_seed(tmp_path):
    for arm, exposed in (("pool", 2), ("own", 1), ("paper", 0)):
        for seed in (401, 402):
            finished(tmp_path, arm, seed, 8, exposed)
    finished(tmp_path, "pool", 403, 8, 0)
    found = benchmark.read_all(tmp_path, ["pool", "own", "paper"], range(401, 409))
    text = figures.tables(found)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    starts = [line.split(" | ")[0].strip("| ") for line in lines if "---" not in line]
    assert starts == [
        "arm",
        "pool",
        "own",
        "paper",
        "contrast",
        "pool - own",
        "pool - paper",
        "seed",
        "401",
        "402",
        "403",
    ]
    assert lines[2].startswith("| pool | 3 | 40.6 → 100.0 (")
    contrasts = [line.split(" | ") for line in lines if line.startswith("| pool - ")]
    assert [(cells[1], cells[4].split(" ")[0]) for cells in contrasts] == [("2", "+50.0"), ("2", "+100.0")]
    assert "exposed at least doubles in every seed (2 of 3): no" in text
    assert "pass@1 is at most 1 point below `own` (+0.0 (+0.0 to +0.0)): yes" in text


def test_the_page_defines_every_figure_and_arm(tmp_path):
    finished(tmp_path, "own", 401, 8, 1)
    arms = dict(map(benchmark.named, ["own", "more:game.pool_size=16,game.sparring=2"]))
    finished(tmp_path, "more", 401, 8, 1)
    text = benchmark.page(benchmark.read_all(tmp_path, arms, [401]), arms)
    assert "- `own`: `codea1 train --recipe tiny game.kill=own`" in text
    assert "- `more`: `codea1 train --recipe tiny game.pool_size=16 game.sparring=2`" in text
    assert all(f"| {name} | " in text for name in figures.NAMES)
    assert "--seeds 401 --write" in text
    assert "A run took 3 to 3 s on" in text


def test_arms_that_saw_other_steps_are_not_compared(tmp_path):
    finished(tmp_path, "pool", 401, 8, 1)
    finished(tmp_path, "own", 401, 8, 1, steps=8)
    with pytest.raises(ValueError, match=r"pool and own of seed 401 .*total_steps"):
        benchmark.read_all(tmp_path, ["pool", "own"], [401])


def test_finished_runs_are_not_run_again(tmp_path, monkeypatch, capsys):
    finished(tmp_path, "pool", 401, 8, 2)
    trained = []
    monkeypatch.setattr(benchmark, "train", lambda out, arm, seed, *_: trained.append((arm, seed)) or seed == 402)
    monkeypatch.setattr(
        sys, "argv", ["run.py", "--arms", "pool", "own", "--seeds", "401", "402", "--out", str(tmp_path)]
    )
    assert benchmark.main() == 1
    assert trained == [("own", 401), ("pool", 402), ("own", 402)]
    assert "failed: own-401" in capsys.readouterr().err


def test_only_what_the_tables_need_is_kept(tmp_path):
    write(tmp_path / "run", 0, [1], [1])
    (tmp_path / "run" / "rollouts").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    benchmark.keep(tmp_path / "run", tmp_path / "kept" / "pool" / "seed-401", 3.0)
    assert benchmark.finished(tmp_path / "kept", "pool", 401)
    kept = {file.name for file in (tmp_path / "kept").rglob("*") if file.is_file()}
    assert kept == {"metrics.jsonl", "seconds", *(f"step-000000-{role}.json" for role in ("code", "test", "near-miss"))}


def test_an_unknown_arm_is_named():
    with pytest.raises(SystemExit, match="no arm 'pol'"):
        benchmark.named("pol")
