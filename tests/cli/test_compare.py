"""`codea1 compare`: recipes, paired figures, costs, and what is not to be paired."""

import json

import pytest

from codea1_cli.cli import app
from codea1_cli.evals import statistics
from codea1_cli.recipe.files import load_recipe, recipe_text


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 500)


def make(folder, *overrides, seed=0, solved=(4, 2, 6), start=(2, 2, 2), exposed=None, data="x", gpu="", programs=None):
    """A run whose Code LLM solved `start` of 8 per problem before and `solved` after; per problem two suites."""
    (folder / "evaluation").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(recipe_text(load_recipe("tiny", [*overrides, f"seed={seed}"])))
    label = {"code[0]": {"CUDA_VISIBLE_DEVICES": gpu}, "test[0]": {"CUDA_VISIBLE_DEVICES": gpu}}
    info = {
        "seed": seed,
        "data": {"heldout_sha256": data},
        "devices": dict.fromkeys(label, ""),
        "environment": {"given": label},
    }
    (folder / "run.json").write_text(json.dumps(info))
    line = {"code": {"sampled_tokens": 600}, "test": {"sampled_tokens": 400}, "arena": {}, "timing": {"step_s": 1800.0}}
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"step": step, **line}) + "\n" for step in (1, 2)))
    suite = {"asserts": 4, "valid": 3, "correct": 2, "misstated": 1, "validity": 0.5, "unscored": False}
    for step, counts in ((0, start), (2, solved)):
        code = [
            {"problem_id": f"p{i}", "passed": [j < n for j in range(8)], "unscored": 0} for i, n in enumerate(counts)
        ]
        write(folder, step, "code", code)
        if exposed is not None:
            rows = [{"problem_id": f"p{i}", **suite, "exposed": j < n} for i, n in enumerate(exposed) for j in range(2)]
            write(folder, step, "test", rows)
    if programs is not None:
        (folder / "evaluation" / "targets.json").write_text(json.dumps(programs))
    return str(folder)


def write(folder, step, part, rows):
    (folder / "evaluation" / f"step-{step:06d}-{part}.json").write_text(json.dumps(rows))


def rows_of(data, kind="heldout"):
    return {(row["figure"], row["run"]): row for row in data["sets"][kind]}


def test_the_current_folder_is_what_it_holds(call, tmp_path, monkeypatch):
    """Not the runs below ./runs: a run, or runs over seeds, by the name of the folder."""
    for seed in (1, 2):
        make(tmp_path / "runs" / f"golden-{seed}", seed=seed)
    monkeypatch.chdir(tmp_path)
    assert "the folder . is no run" in call(app, "compare", ".").err
    monkeypatch.chdir(tmp_path / "runs")
    (both,) = call(app, "compare", ".", "--json").data["runs"]
    assert (both["run"], both["seeds"]) == ("runs", [1, 2])
    monkeypatch.chdir(tmp_path / "runs" / "golden-2")
    assert call(app, "compare", ".", "--json").data["runs"][0]["run"] == "golden-2"


def test_recipes_figures_and_costs_side_by_side(call, tmp_path):
    one = make(tmp_path / "one", exposed=(0, 1, 1), gpu="0")
    two = make(tmp_path / "two", "method=golden-tests", "optim.learning_rate=1e-5", solved=(6, 4, 8), gpu="0")
    data = call(app, "compare", one, two, "--json").data
    assert data["recipes"]["method"] == ["code-a1", "golden-tests"]
    assert data["recipes"]["optim.learning_rate"] == [7e-4, 1e-5]
    assert data["recipes"]["test.max_completion_tokens"] == [112, None]
    assert not {"name", "seed", "train.max_steps"} & set(data["recipes"])
    assert [run["tokens"] for run in data["runs"]] == [2000, 2000]
    assert [run["gpu_hours"] for run in data["runs"]] == [1.0, 1.0]  # both policies on one GPU
    rows = rows_of(data)
    first, second = rows["pass@1", one], rows["pass@1", two]
    assert (first["before"], first["after"], first["against"]) == (0.25, 0.5, None)
    assert first["gain"]["low"] < first["gain"]["mean"] == 0.25 < first["gain"]["high"]
    assert second["against"] == pytest.approx({"mean": 0.25, "low": 0.25, "high": 0.25})  # each problem by a quarter
    assert rows["pass@8", two]["after"] == 1.0
    assert rows["exposed", one]["after"] == pytest.approx(1 / 3)
    assert ("exposed", two) not in rows
    shown = call(app, "compare", one, two)
    assert "+25.0 (+25.0 to +25.0)" in shown.out
    assert "1:00:00" in shown.out


def test_one_run_is_compared_with_its_beginning(call, tmp_path):
    one = make(tmp_path / "runs" / "one", solved=(3, 3, 3))
    shown = call(app, "compare", "one", "--runs", str(tmp_path / "runs"))
    assert "+12.5 (+12.5 to +12.5)" in shown.out
    assert "against" not in shown.out
    assert one


def test_folders_of_seeds_are_paired_by_seed(call, tmp_path):
    for arm, more in (("base", 0), ("better", 2)):
        for seed in (3, 1, 2):
            overrides = () if arm == "base" else ("optim.kl=0.1",)
            make(tmp_path / arm / f"s{seed}", *overrides, seed=seed, solved=[seed + more] * 3)
    arms = str(tmp_path / "base"), str(tmp_path / "better")
    data = call(app, "compare", *arms, "--json").data
    assert [run["seeds"] for run in data["runs"]] == [[1, 2, 3], [1, 2, 3]]
    assert data["recipes"] == {"optim.kl": [0.0, 0.1]}
    row = rows_of(data)["pass@1", arms[1]]
    assert row["after"] == pytest.approx(0.5)
    assert row["against"] == pytest.approx({"mean": 0.25, "low": 0.25, "high": 0.25})
    make(tmp_path / "better" / "s4", "optim.kl=0.1", seed=4, solved=[4] * 3)
    wider = rows_of(call(app, "compare", *arms, "--json").data)["pass@1", arms[1]]["against"]
    assert wider["low"] < wider["mean"] < wider["high"]  # no longer the same seeds: each side draws its own
    make(tmp_path / "better" / "s5", "optim.kl=0.2", seed=5)
    refused = call(app, "compare", *arms)
    assert refused.code == 2
    assert "differ in optim.kl, not only in their seeds" in refused.err


@pytest.mark.parametrize(
    ("other", "said"),
    [({"solved": (1, 2), "start": (1, 1)}, "1 of 3 are in one only"), ({"data": "y"}, "their files differ")],
)
def test_what_was_measured_on_different_problems_is_refused(call, tmp_path, other, said):
    one, two = make(tmp_path / "one"), make(tmp_path / "two", **other)
    done = call(app, "compare", one, two)
    assert done.code == 2
    assert f"heldout in {one} and {two}: measured on different problems, {said}" in done.err


def test_suites_against_other_programs_are_shown_and_not_paired(call, tmp_path):
    one = make(tmp_path / "one", exposed=(0, 1, 1), programs=[["p0", "a"]])
    two = make(tmp_path / "two", exposed=(2, 2, 2), programs=[["p0", "b"]])
    rows = rows_of(call(app, "compare", one, two, "--json").data)
    assert rows["exposed", two]["after"] == 1.0
    assert rows["exposed", two]["against"] is None
    assert rows["pass@1", two]["against"] is not None
    assert "not paired" in call(app, "compare", one, two).err


def test_benchmarks_are_compared_by_task_and_column(call, tmp_path):
    folders = []
    for name, plus in (("one", 2), ("two", 4)):
        folders.append(make(tmp_path / name))
        tasks = {
            f"t{i}": {"n": 4, "unscored": 0, "not_run": 0, "timeouts": 0, "base": 4, "plus": plus} for i in range(3)
        }
        write(tmp_path / name, 2, "humaneval", tasks)
        write(
            tmp_path / name,
            2,
            "ult",
            {"f": {"validity": plus / 4, "mutation": None}, "g": {"validity": 1, "mutation": 0.5}},
        )
    data = call(app, "compare", *folders, "--json").data
    plus = rows_of(data, "humaneval")["plus pass@1", folders[1]]
    assert (plus["before"], plus["after"], plus["gain"]) == (None, 1.0, None)
    assert plus["against"] == pytest.approx({"mean": 0.5, "low": 0.5, "high": 0.5})
    ult = rows_of(data, "ult")
    assert (ult["validity", folders[0]]["after"], ult["mutation", folders[0]]["after"]) == (0.75, 0.5)


def test_a_run_without_evaluations_and_a_broken_one_are_told(call, tmp_path):
    one = make(tmp_path / "one")
    (tmp_path / "one" / "evaluation" / "step-000002-code.json").write_text("[{")
    done = call(app, "compare", one)
    assert done.code == 2
    assert "step-000002-code.json" in done.err
    for file in (tmp_path / "one" / "evaluation").iterdir():
        file.unlink()
    assert "no evaluation of these runs is kept by problem" in call(app, "compare", one).err
    assert call(app, "compare", "nobody", "--runs", str(tmp_path)).code == 2


def unfinished(folder, **options):
    """A run that was measured before its first step alone."""
    path = make(folder, **options)
    for file in (folder / "evaluation").glob("step-000002-*.json"):
        file.unlink()
    return path


def test_what_was_measured_before_training_alone_is_no_result(call, tmp_path):
    done, begun = make(tmp_path / "done"), unfinished(tmp_path / "begun", start=(8, 8, 8))
    rows = rows_of(call(app, "compare", done, begun, "--json").data)
    row = rows["pass@1", begun]
    assert (row["before"], row["after"], row["gain"], row["against"]) == (1.0, None, None, None)
    assert rows_of(call(app, "compare", begun, done, "--json").data)["pass@1", done]["against"] is None


def test_a_run_of_several_that_was_not_measured_as_late_is_left_out_and_named(call, tmp_path):
    for seed, kind in ((1, make), (2, unfinished), (3, make)):
        kind(tmp_path / "pool" / f"r{seed}", seed=seed)
    call_ = call(app, "compare", str(tmp_path / "pool"), "--json")
    assert "r2 is left out: it was last evaluated at step 0, the others at step 2" in call_.err
    assert call_.data["runs"][0]["seeds"] == [1, 3]
    assert rows_of(call_.data)["pass@1", str(tmp_path / "pool")]["after"] == 0.5
    make(tmp_path / "pool" / "again", seed=3)
    assert "again and r3 both have seed 3" in call(app, "compare", str(tmp_path / "pool")).err


def test_a_run_without_run_json_has_the_seed_of_its_recipe(call, tmp_path):
    """As one in its warm-up, and one that was refused before its first step, whose run.json has an error alone."""
    one = make(tmp_path / "one", seed=7)
    for name, info in (("warming", None), ("refused", {"error": "before the first step: no"})):
        other = tmp_path / name
        make(other, seed=7)
        for file in (other / "metrics.jsonl", other / "run.json", *(other / "evaluation").iterdir()):
            file.unlink()
        if info:
            (other / "run.json").write_text(json.dumps(info))
        data = call(app, "compare", one, str(other), "--json").data
        assert (data["runs"][1]["seeds"], data["recipes"]) == ([7], {})
    for seed in (1, 2):  # nor is it the same for all of a folder
        (folder := tmp_path / "bare" / f"r{seed}").mkdir(parents=True)
        (folder / "recipe.yaml").write_text(recipe_text(load_recipe("tiny", [f"seed={seed}"])))
    assert call(app, "compare", str(tmp_path / "bare"), "--json").data["runs"][0]["seeds"] == [1, 2]
    assert call(app, "report", str(tmp_path / "bare"), "--out", tmp_path / "page.html").code == 0


def test_a_run_without_a_result_is_named_and_not_what_is_not_paired(call, tmp_path):
    done, begun = make(tmp_path / "done"), unfinished(tmp_path / "begun")
    bare = make(tmp_path / "bare")
    for file in (tmp_path / "bare" / "evaluation").iterdir():
        file.unlink()
    for names, lack in (((done, begun), begun), ((begun, done), begun), ((begun,), begun), ((bare, done), bare)):
        told = call(app, "compare", *names).err
        assert f"heldout: {lack} has no figures after its first step" in told
        assert (told.count("no figures after"), "not paired" in told, " step 2" in told) == (1, False, False)
    pool = tmp_path / "pool"
    for seed in (1, 2):
        make(pool / f"r{seed}", seed=seed)
    write(pool / "r1", 2, "humaneval", {"t": {"n": 4, "unscored": 0, "not_run": 0, "timeouts": 0, "base": 4}})
    assert f"humaneval: r2 of {pool} has no figures after its first step" in call(app, "compare", str(pool)).err


def test_steps_that_differ_stand_beside_the_runs(call, tmp_path):
    short, long = make(tmp_path / "short"), make(tmp_path / "long")
    folder = tmp_path / "long" / "evaluation"
    (folder / "step-000004-code.json").write_text((folder / "step-000002-code.json").read_text())
    shown = call(app, "compare", short, long)
    assert f"{long} (after step 4)" in shown.out
    assert f"heldout: `after` is step 2 of {short}, step 4 of {long}" in shown.err
    row = rows_of(call(app, "compare", short, long, "--json").data)["pass@1", long]
    assert row["steps"] == {"before": [0], "after": [4]}
    assert row["against"], "runs of another length are paired all the same"
    (folder / "step-000000-code.json").unlink()
    assert f"heldout: `before` is step 2 of {long}" in call(app, "compare", long).err
    assert f"{long} (before step 2, after step 4)" in call(app, "compare", short, long).out
    same = call(app, "compare", short, make(tmp_path / "same"))
    assert (same.err, "step 2" in same.out) == ("", False)


def test_runs_whose_problem_file_is_not_known_are_not_said_to_have_another(call, tmp_path):
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    (tmp_path / "two" / "run.json").unlink()
    told = call(app, "compare", one, two).err
    assert (
        "measured on different problems, run.json of one does not tell their file\nhint: restore its run.json" in told
    )
