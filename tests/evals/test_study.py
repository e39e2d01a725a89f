"""The study's arithmetic: figures by problem, honest intervals, arms that are paired, aims, runs that are skipped."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "study"))

import protocol
import run as benchmark
import tables

from codea1_cli.errors import UserError
from codea1_cli.evals import statistics
from codea1_cli.recipe.files import load_recipe
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import Measured

STUDY = protocol.Study.model_validate(
    {
        "title": "What is learnt",
        "recipe": "tiny",
        "seeds": list(range(401, 409)),
        "arms": {
            "pool": {"about": "the recipe as it is"},
            "own": {"settings": ["game.kill=own"]},
            "paper": {"settings": ["game.mode=paper", "game.share_identical=false"]},
        },
        "aims": [
            {"figure": "exposed", "arm": "pool", "times": 2},
            {"figure": "pass@1", "arm": "pool", "over": "own", "gain": -1},
            {"figure": "exposed", "arm": "pool", "above": 0},
            {"figure": "exposed", "arm": "pool", "over": "paper", "above": 0},
            {"figure": "false alarm", "arm": "pool", "at_most": 0},
            {"figure": "humaneval/plus pass@1", "arm": "pool", "gain": 0},
        ],
    }
)
FIGURES = (
    "pass@1", "pass@8", "exposed", "near-miss exposed", "false alarm", "suite validity", "stated rightly", "asserts per suite",
)  # fmt: skip


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
    found = tables.gains([tables.read_run(tmp_path)])
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
    found = tables.gains([tables.read_run(tmp_path)])
    assert found["pass@1"].after == pytest.approx(80.0)
    assert (found["exposed"].before, found["exposed"].after) == pytest.approx((50.0, 100.0))


def test_an_evaluation_without_near_misses_has_a_dash_and_no_column(tmp_path):
    run = finished(tmp_path, "pool", 1, 8, 2)
    for file in run.glob("evaluation/*near-miss*"):
        file.unlink()
    one = tables.read_run(run)
    assert "near-miss exposed" not in tables.gains([one])
    assert "near-miss" not in tables.tables(STUDY, {"pool": {1: one}})


@pytest.mark.parametrize(
    ("steps", "fault"), [({0: 2}, "no evaluation after step 1"), ({0: 2, 9: 3}, "same problems before and after")]
)
def test_two_evaluations_of_the_same_problems_are_needed(tmp_path, steps, fault):
    for step, problems in steps.items():
        write(tmp_path, step, [1] * problems, [0] * problems)
    with pytest.raises(ValueError, match=fault):
        tables.read_run(tmp_path)


def test_a_run_can_be_read_at_an_earlier_evaluation_and_without_its_end(tmp_path):
    run = finished(tmp_path, "pool", 401, 8, 2)
    write(run, 5, [4, 4, 4, 4], [1, 1, 1, 1])
    (run / "seconds").unlink()
    run.parent.joinpath("..", "running").mkdir()
    run.rename(tmp_path / "running" / "pool-401")
    assert benchmark.read_all(tmp_path, STUDY, ["pool"], [401]) == {}
    found = benchmark.read_all(tmp_path, STUDY, ["pool"], [401], at=5)
    assert tables.gains([found["pool"][401]])["pass@1"].after == pytest.approx(50.0)


def test_arms_without_a_beginning_have_that_of_the_base(tmp_path):
    finished(tmp_path, "pool", 401, 8, 2)
    own = finished(tmp_path, "own", 401, 4, 1)
    for file in own.glob("evaluation/step-000000-*"):
        file.unlink()
    read = benchmark.read_all(tmp_path, STUDY, ["pool", "own"], [401])
    assert tables.gains([read["own"][401]]) == {}
    with_base = tables.with_base(read, "pool")
    assert tables.gains([with_base["own"][401]])["pass@1"].before == pytest.approx(40.625)


# -- the bootstrap -----------------------------------------------------------------------------------------------------
def run_of(before: np.ndarray, after: np.ndarray) -> tables.Run:
    """A run whose every figure is the mean of one value per problem."""
    sides = []
    for values in (before, after):
        parts = {f"p{i}": (float(value), 1.0) for i, value in enumerate(values)}
        sides.append({"heldout": Measured(frozenset(parts), dict.fromkeys(FIGURES, parts))})
    return tables.Run(Path(), 9, *sides)


def test_the_interval_of_one_seed_is_that_of_resampled_problems(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 4000)
    values = np.random.default_rng(3).random(60)
    change = tables.gains([run_of(np.zeros(60), values)])["exposed"]
    error = 100 * values.std() / 60**0.5
    assert change.gain == pytest.approx(100 * values.mean())
    assert change.gain - change.low == pytest.approx(1.96 * error, rel=0.1)
    assert change.high - change.gain == pytest.approx(1.96 * error, rel=0.1)


def test_seeds_that_differ_widen_the_interval_and_equal_ones_do_not_narrow_it():
    values = np.random.default_rng(3).random(60)
    one, eight = ([run_of(np.zeros(60), values)] * count for count in (1, 8))
    spread = [run_of(np.zeros(60), values + shift) for shift in np.linspace(-0.3, 0.3, 8)]
    width = [change.high - change.low for change in (tables.gains(runs)["exposed"] for runs in (one, eight, spread))]
    assert width[1] == pytest.approx(width[0], rel=0.15)  # the same problems eight times are no new problems
    assert width[2] > 1.5 * width[1]


def test_a_constant_gain_has_no_width():
    values = np.random.default_rng(3).random(40)
    runs = [run_of(values, values + 0.2)] * 3
    for found in (tables.gains(runs), tables.contrast(runs, [run_of(values, values)] * 3)):
        assert (found["exposed"].low, found["exposed"].high) == pytest.approx((20.0, 20.0))


def test_what_cannot_be_paired_is_refused():
    few, many = run_of(np.zeros(3), np.ones(3)), run_of(np.zeros(4), np.ones(4))
    with pytest.raises(UserError, match="measured on different problems, 1 of 4 are in one only"):
        tables.contrast([few], [many])
    with pytest.raises(ValueError, match="cannot be paired"):
        tables.contrast([few], [few, few])


# -- the tables, the arms ----------------------------------------------------------------------------------------------
def test_tables_have_a_line_per_arm_contrast_and_seed(tmp_path):
    for arm, exposed in (("pool", 2), ("own", 1), ("paper", 0)):
        for seed in (401, 402):
            finished(tmp_path, arm, seed, 8, exposed)
    finished(tmp_path, "pool", 403, 8, 0)
    found = benchmark.read_all(tmp_path, STUDY, ["pool", "own", "paper"], range(401, 409))
    text = tables.tables(STUDY, found)
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
        "arm",
        "pool",
        "own",
        "paper",
    ]
    assert lines[2].startswith("| pool | 3 | 40.6 → 100.0 (")
    contrasts = [line.split(" | ") for line in lines if line.startswith("| pool - ")]
    assert [(cells[1], cells[4].split(" ")[0]) for cells in contrasts] == [("2", "+50.0"), ("2", "+100.0")]
    assert "`pool`: exposed ends 2 times as high in every seed (2 of 3): no" in text
    assert "`pool`: pass@1 over `own` is -1 or more (+0.0 (+0.0 to +0.0)): yes" in text
    assert "`pool`: exposed over `paper` is more than +0 (+100.0 (+100.0 to +100.0), p 0.0050 after Holm's" in text
    assert "`pool`: false alarm over its start is +0 or less (+0.0 (+0.0 to +0.0)): yes" in text
    assert "`pool`: humaneval/plus pass@1 over its start: not measured: no" in text


def test_tests_of_a_study_are_corrected_together():
    assert tables.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert tables.holm([]) == []


def test_the_page_defines_every_figure_and_arm(tmp_path):
    finished(tmp_path, "own", 401, 8, 1)
    arms = dict(benchmark.named(STUDY, arm) for arm in ("own", "more:game.pool_size=16,game.sparring=2"))
    finished(tmp_path, "more", 401, 8, 1)
    text = benchmark.page(STUDY, Path("rewards.yaml"), benchmark.read_all(tmp_path, STUDY, arms, [401]), arms)
    assert text.startswith("# What is learnt\n")
    assert (
        "benchmarks/study/rewards.yaml --write PAGE` made this page from the runs of `codea1 train --recipe tiny`"
        in text
    )
    assert "- `own` (`game.kill=own`)" in text
    assert "- `more` (`game.pool_size=16 game.sparring=2`)" in text
    assert all(name.replace("pass@8", "pass@n") in text for name in FIGURES)


def test_arms_that_saw_other_steps_are_not_compared(tmp_path):
    finished(tmp_path, "pool", 401, 8, 1)
    finished(tmp_path, "own", 401, 8, 1, steps=8)
    with pytest.raises(ValueError, match=r"pool and own of seed 401 .*total_steps"):
        benchmark.read_all(tmp_path, STUDY, ["pool", "own"], [401])


def test_arms_with_problems_of_their_own_are_compared_where_the_study_says_so(tmp_path):
    for arm in ("pool", "own"):
        run = finished(tmp_path, arm, 401, 8, 1)
        info = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(info | {"problem_ids": [arm]}))
    with pytest.raises(ValueError, match="problem_ids differ"):
        benchmark.read_all(tmp_path, STUDY, ["pool", "own"], [401])
    own = STUDY.model_copy(update={"own_problems": True})
    assert set(benchmark.read_all(tmp_path, own, ["pool", "own"], [401])) == {"pool", "own"}


def test_finished_runs_are_not_run_again(tmp_path, monkeypatch, capsys):
    finished(tmp_path, "pool", 401, 8, 2)
    file = tmp_path / "rewards.yaml"
    file.write_text(yaml.safe_dump(STUDY.model_dump()))
    trained = []
    monkeypatch.setattr(
        benchmark.Runs, "train", lambda _, arm, __, seed, *___: trained.append((arm, seed)) or seed == 402
    )
    wish = ["--arms", "pool", "own", "--seeds", "401", "402", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["run.py", str(file), *wish])
    assert benchmark.main() == 1
    assert trained == [("own", 401), ("pool", 402), ("own", 402)]
    assert "failed: own-401" in capsys.readouterr().err


def test_a_run_that_fails_is_started_again_and_its_settings_are_in_order(tmp_path, monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command)
        if len(asked) == 2:
            write(Path(command[command.index("--runs") + 1], "pool-7"), 0, [1], [1])
        return SimpleNamespace(returncode=2 - len(asked))

    monkeypatch.setattr(benchmark.subprocess, "run", run)
    runs = benchmark.Runs(tmp_path, STUDY.model_copy(update={"settings": ["a=1"]}), ["c=3"], tries=2)
    assert runs.train("pool", protocol.Arm(settings=["b=2"]), 7, benchmark.Slot("1", (0, 1)))
    assert runs.finished("pool", 7)
    assert asked[0][:3] == ["taskset", "-c", "0,1"]
    assert asked[0][-4:] == ["seed=7", "a=1", "b=2", "c=3"]


def test_runs_share_the_wrong_programs_that_the_first_one_finds(tmp_path):
    runs = benchmark.Runs(tmp_path, STUDY, [])
    assert runs._targets("pool-1") == []
    folder = tmp_path / "running" / "pool-1" / "evaluation"
    folder.mkdir(parents=True)
    for name in ("targets.json", "near_miss.json"):
        (folder / name).write_text("{}")
    assert runs._targets("own-1") == [f"eval.targets={tmp_path / 'targets'}"]
    assert (tmp_path / "targets" / "evaluation" / "targets.json").is_file()


def test_the_wrong_programs_of_a_finished_run_are_those_of_the_study(tmp_path):
    folder = tmp_path / "pool" / "seed-1" / "evaluation"
    folder.mkdir(parents=True)
    for name in ("targets.json", "near_miss.json"):
        (folder / name).write_text("{}")
    (tmp_path / "targets.first").write_text("pool-1")
    assert benchmark.Runs(tmp_path, STUDY, [])._targets("own-1") == [f"eval.targets={tmp_path / 'targets'}"]


def test_a_run_that_fails_leaves_the_wrong_programs_to_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    study = STUDY.model_copy(update={"share_targets": True})
    wanted = {arm: study.arms[arm] for arm in ("pool", "own")}
    failed = benchmark.train_all(benchmark.Runs(tmp_path, study, []), wanted, [1], [benchmark.Slot("", (0,))])
    assert failed == ["pool-1", "own-1"]


def test_an_interrupt_starts_nothing_anew(tmp_path, monkeypatch):
    started = []
    runs = benchmark.Runs(tmp_path, STUDY, [], tries=3)

    def run(command, **_):
        started.append(command[command.index("--run") + 1])
        runs.stopped.set()
        return SimpleNamespace(returncode=130)

    monkeypatch.setattr(benchmark.subprocess, "run", run)
    benchmark.train_all(runs, STUDY.arms, [1], [benchmark.Slot("", (0,))])
    assert started == ["pool-1"]


def test_a_run_that_is_still_trained_is_left_alone(tmp_path):
    run = RunDir(tmp_path / "running" / "pool-1")
    run.path.mkdir(parents=True)
    with run.locked(), pytest.raises(SystemExit, match="pool-1 is still being trained, by process"):
        benchmark.train_all(benchmark.Runs(tmp_path, STUDY, []), STUDY.arms, [1], [benchmark.Slot("", (0,))])
    assert run.path.is_dir()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"aims": [{"figure": "exposed", "arm": "pol", "gain": 1}]}, "there is no arm 'pol'"),
        ({"aims": [{"figure": "exposed", "arm": "pool", "over": "x", "gain": 1}]}, "no arm 'x' to compare pool with"),
        ({"aims": [{"figure": "exposed", "arm": "pool"}]}, "one of above, gain, at_most, times"),
        ({"seed": [1]}, "seed: Extra inputs are not permitted"),
    ],
)
def test_a_study_that_cannot_be_meant_is_refused(tmp_path, change, told):
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(STUDY.model_dump() | change))
    with pytest.raises(SystemExit, match=told):
        protocol.read_study(file)


def test_the_studies_of_the_repository_are_whole():
    folder = Path(benchmark.__file__).parent
    assert {file.stem for file in folder.glob("*.yaml")} >= {"tiny-rewards", "tiny-methods", "qwen-0.5b", "qwen-1.5b"}
    for file in folder.glob("*.yaml"):
        study = protocol.read_study(file)
        for arm in study.arms.values():
            load_recipe(study.recipe, [*study.settings, *arm.settings])


def test_what_arms_need_is_made_before_they_run_where_it_is_missing(tmp_path, monkeypatch):
    before = [
        {"makes": "$out/model-$seed", "run": "train --run model-$seed --runs $out"},
        {"makes": "$out/there-$seed", "run": "train --run there-$seed"},
        {"makes": "$out/tests-$seed", "run": "write-tests --model $out/model-$seed"},
    ]
    study = STUDY.model_copy(update={"before": [protocol.Before(**one) for one in before]})
    runs = benchmark.Runs(tmp_path, study, ["train.max_steps=2"])
    (tmp_path / "there-7").touch()
    ran, ends = [], [0, 0, 1]
    monkeypatch.setattr(
        benchmark.Runs, "codea1", lambda _, words, *__: ran.append(" ".join(words)) or (ends.pop(0), 1.0)
    )
    assert runs.prepare(7, benchmark.Slot("", (0,)))
    assert ran == [
        f"train --run model-7 --runs {tmp_path} train.max_steps=2",
        f"write-tests --model {tmp_path}/model-7",
    ]
    assert not runs.prepare(8, benchmark.Slot("", (0,)))
    assert len(ran) == 3, "nothing goes on from what failed"


def test_only_what_the_tables_need_is_kept(tmp_path):
    write(tmp_path / "run", 0, [1], [1])
    (tmp_path / "run" / "rollouts").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    benchmark.keep(tmp_path / "run", tmp_path / "kept" / "pool" / "seed-401", 3.0)
    assert benchmark.Runs(tmp_path / "kept", STUDY, []).finished("pool", 401)
    kept = {file.name for file in (tmp_path / "kept").rglob("*") if file.is_file()}
    assert kept == {"metrics.jsonl", "seconds", *(f"step-000000-{role}.json" for role in ("code", "test", "near-miss"))}


def test_an_unknown_arm_is_named():
    with pytest.raises(SystemExit, match="no arm 'pol'"):
        benchmark.named(STUDY, "pol")


def test_a_page_with_marks_gets_the_first_table_between_them(tmp_path):
    page = tmp_path / "methods.md"
    parts = "## Before and after\n\n| arm |\n| --- |\n\n## What a run took\n\n| minutes |\n"
    benchmark.put(page, "rewards", "# Whole\n", parts)
    assert page.read_text() == "# Whole\n"
    page.write_text("Text.\n<!-- rewards -->\nold\n<!-- /rewards -->\nMore.\n")
    for _ in range(2):
        benchmark.put(page, "rewards", "# Whole\n", parts)
        assert page.read_text() == "Text.\n<!-- rewards -->\n| arm |\n| --- |\n<!-- /rewards -->\nMore.\n"
