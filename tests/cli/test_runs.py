"""Listing, showing and pruning runs."""

import csv
import fcntl
import json

import pytest

from codea1_cli.cli import app, runs
from codea1_cli.cli.train import train
from codea1_cli.engine.resume import resume_point
from codea1_cli.errors import UserError, size_text
from codea1_cli.runs import gpu_hours
from codea1_cli.runs.checkpoints import mark_best
from codea1_cli.runs.run_dir import RunDir
from tests.cli.fake_run import age, make_run


def test_list_tells_states_apart(run, call):
    root = run.path.parent
    make_run(root, "killed", steps=2, total=5)
    make_run(root, "died", steps=1, total=5, error="test[0] died at step 2")
    make_run(root, "busy", steps=1, total=5)
    make_run(root, "early", steps=0, total=5)
    make_run(root, "unsaved", steps=0, total=5).note(stop=5)
    with open(root / "busy" / "lock", "w") as lock:
        lock.write("77\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = {row["name"]: row for row in call(runs.app, "list", "--json").data}
        assert call(runs.app, "list").code == 0
    assert {name: row["state"] for name, row in rows.items()} == {
        "first": "finished",
        "killed": "interrupted",
        "died": "failed",
        "busy": "running",
        "early": "stopped before step 1",
        "unsaved": "finished",
    }
    assert "early: stopped before step 1 of 5" in call(runs.app, "show", "early").out
    assert (rows["killed"]["step"], rows["killed"]["total"]) == (2, 5)
    assert rows["died"]["error"] == "test[0] died at step 2"
    assert all(row["recipe"] == "small" and row["bytes"] > 0 for row in rows.values())


def test_list_of_nothing_says_how_to_start(tmp_path, call):
    done = call(runs.app, "list", "--runs", tmp_path / "none")
    assert (done.code, done.out) == (0, "")
    assert "codea1 train" in done.err
    assert call(runs.app, "list", "--runs", tmp_path / "none", "--json").data == []


def test_a_broken_run_is_listed_with_its_fault(run, call):
    (run.path / "run.json").write_text("{")
    run.recipe_file.write_text("a: [")
    (row,) = call(runs.app, "list", "--json").data
    assert (row["state"], row["recipe"]) == ("failed", "?")
    assert row["error"].startswith(f"{run.path / 'run.json'}: not JSON")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"total_steps": "6"}, "total_steps is a text"),
        ({"data": 5}, "data is a number"),
        ({"environment": {"given": {"code[0]": None}}}, "environment.given.code[0] is null"),
        ({"resumed": [{"step": 1, "changed": {"seed": 3}}]}, "resumed.0.changed.seed is a number"),
    ],
)
def test_a_field_of_another_type_in_run_json_is_named(run, call, fields, says):
    (run.path / "run.json").write_text(json.dumps(run.info() | fields))
    shown = call(runs.app, "show", run.name)
    assert (shown.code, f"run.json: {says}, which no run writes" in shown.err) == (2, True)
    assert f"run.json: {says}" in call(runs.app, "list", "--json").data[0]["error"]
    assert says in call(runs.app, "watch", run.name, "--json").data["warnings"][-1]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"step": "7"}, "step is a text"),
        ({"time": None}, "time is null"),
        ({"code": {"reward": "x"}}, "code.reward is a text"),
        ({"timing": {"step_s": None}}, "timing.step_s is null"),
        ({"arena": {"sandbox_failures": 3}}, "arena.sandbox_failures is a number"),
        ({"arena": {"leaving": 3}}, "arena.leaving is a number"),
        ({"eval": {"code": {"pass@1": []}}}, "eval.code.pass@1 is a list"),
    ],
)
def test_a_line_of_metrics_with_a_field_of_another_type_is_left_out_and_named(run, fields, says):
    count, told = len(run.metrics()), []
    run.append_metrics({"step": 7, "time": 1.0} | fields)
    assert len(run.metrics(told.append)) == count
    assert told == [f"{run.metrics_file}, line {count + 1}: {says}, which no run writes; it is left out"]


def test_show_takes_the_newest_run_or_the_named_one(run, call):
    newer = make_run(run.path.parent, "second", steps=2)
    age(run, 60)
    shown = call(runs.app, "show", "--json").data
    assert shown["name"] == newer.name
    assert [item["step"] for item in shown["checkpoints"]] == [1, 2]
    shown = call(runs.app, "show", "first", "--steps", "2", "--json").data
    assert [line["step"] for line in shown["last_steps"]] == [2, 3]
    assert [line["eval"]["code"] for line in shown["evals"]] == [{"pass@1": 0.5}]
    text = call(runs.app, "show", "first").out
    assert "first: finished at step 3 of 3" in text
    assert (
        text.index("first: finished") < text.index("checkpoints") < text.index("last steps") < text.index("made with")
    )
    steps, evaluations = text.split("last steps")[1].split("evaluations")
    assert [line.split() for line in steps.splitlines()[1:5]] == [
        ["step", "code", "reward"],
        ["1", "0.25"],
        ["2", "0.5"],
        ["3", "0.75"],
    ]
    assert [line.split() for line in evaluations.splitlines()[1:3]] == [
        ["step", "set", "pass@1"],
        ["3", "heldout", "0.5"],
    ]
    wrong = call(runs.app, "show", "frst")
    assert wrong.code == 2
    assert "first" in wrong.err


def test_prune_keeps_the_newest_and_dry_run_deletes_nothing(run, call):
    planned = call(runs.app, "prune", "--dry-run", "--json").data
    assert [entry["step"] for entry in planned["would_delete"]] == [1, 2]
    assert planned["bytes"] == sum(entry["bytes"] for entry in planned["would_delete"]) > 0
    assert run.committed_steps() == [1, 2, 3]
    assert call(runs.app, "prune", "--keep", "2", "--yes").code == 0
    assert run.committed_steps() == [2, 3]
    assert call(runs.app, "prune", "--yes", "--json").data["deleted"][0]["step"] == 2
    assert run.committed_steps() == [3]
    assert call(runs.app, "prune", "--yes", "--json").data["deleted"] == []
    assert call(runs.app, "prune", "--keep", "0").code == 2


def test_prune_does_not_count_a_damaged_checkpoint(run, call):
    (run.checkpoint(3) / "code" / "model.safetensors").unlink()
    deleted = call(runs.app, "prune", "--yes", "--json").data["deleted"]
    assert [entry["step"] for entry in deleted] == [1]
    assert run.committed_steps() == [2, 3]


def test_prune_asks_and_leaves_runs_in_progress_alone(run, call, monkeypatch):
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    refused = call(runs.app, "prune")
    assert refused.code == 2
    assert "hint: add --yes" in refused.err
    with run.locked():
        done = call(runs.app, "prune", "--yes")
        assert "in progress" in done.err
        assert call(runs.app, "prune", "--run", "first", "--yes").code == 2
        assert call(runs.app, "prune", "--run", "first", "--whole", "--yes").code == 2
    assert run.committed_steps() == [1, 2, 3]


def test_a_whole_run_goes_only_when_named(run, call):
    assert call(runs.app, "prune", "--whole", "--yes").code == 2
    other = make_run(run.path.parent, "other")
    assert call(runs.app, "prune", "--run", "first", "--whole", "--yes").code == 0
    assert [path.name for path in sorted(run.path.parent.iterdir())] == ["other", "problems.jsonl"]
    assert other.committed_steps() == [1, 2, 3]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "2 kB"), (2_500_000, "2.5 MB"), (7e9, "7.0 GB"), (3e12, "3.0 TB")],
)
def test_sizes(count, text):
    assert size_text(count) == text


def test_train_without_a_recipe_on_a_run_that_exists_suggests_to_resume_it(run, call):
    done = call(train, "--run", "first")
    assert done.code == 2
    assert "codea1 train --run first --resume" in done.err


def test_show_tells_what_each_resume_changed_and_list_where_a_run_was_to_stop(tmp_path, call, monkeypatch):
    run = make_run(tmp_path, "longer", steps=3, total=9)
    run.note(stop=3, resumed=[{"step": 1, "changed": {}}, {"step": 2, "changed": {"train.max_steps": [4, 9]}}])
    monkeypatch.setenv("CODEA1_RUNS", str(tmp_path))
    assert "resumed        after step 1; after step 2 with train.max_steps 4 -> 9" in call(runs.app, "show").out
    assert call(runs.app, "list", "--json").data[0]["state"] == "stopped"
    run.note(stop=None)
    assert call(runs.app, "list", "--json").data[0]["state"] == "interrupted"


def test_a_run_refused_before_its_first_step_begins_anew_with_other_keys(call, tmp_path, monkeypatch):
    monkeypatch.setattr("codea1_cli.cli.train._train", lambda *_: 0)
    refused = RunDir(tmp_path / "refused")
    words = ("train", "--recipe", "tiny", "--run", "refused", "--runs", tmp_path)
    assert call(app, *words).code == 0
    refused.append_metrics({"step": 0, "eval": {"set": "heldout"}})
    for name in ("run.json", "preflight.json"):
        (refused.path / name).write_text('{"error": "before the first step: ..."}')
    again = call(app, *words, "seed=5")
    assert again.code == 0
    assert "run refused had not come to its first step: it begins anew with this recipe; 1 line of metrics" in again.err
    assert refused.recipe().seed == 5
    assert not refused.info()
    assert not refused.metrics()
    assert not (refused.path / "preflight.json").exists()

    refused.append_metrics({"step": 1})
    done = call(app, *words, "seed=6")
    assert done.code == 2
    assert "run refused exists already" in done.err
    assert refused.recipe().seed == 5
    refused.recipe_file.rename(tmp_path / "kept")
    assert "refused is there already, and is no run (no recipe.yaml)" in call(app, *words).err
    assert (
        "refused is no run: there is no recipe.yaml"
        in call(app, "train", "--run", "refused", *words[-2:], "--resume").err
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    done = call(app, "train", "--recipe", "tiny", "--run", "other", "--runs", tmp_path)
    assert done.code == 2
    assert "other is there already, and is no run" in done.err


def test_show_tells_what_the_gpus_waited_for(run, call):
    """One GPU for each policy; then both policies on one; then none."""

    def shown(*gpus):
        given = {f"{role}[0]": {"CUDA_VISIBLE_DEVICES": gpu} for role, gpu in zip(("code", "test"), gpus, strict=True)}
        run.note(environment={"given": given})
        return call(runs.app, "show").out, call(runs.app, "show", "--json").data["spent"]

    parts = {"code_sampling_s": 10, "code_waiting_s": 70, "code_updating_s": 10}
    parts |= {"test_sampling_s": 50, "test_waiting_s": 20, "test_updating_s": 20}
    (run.path / "metrics.jsonl").write_text(
        json.dumps({"step": 1, "timing": {"step_s": 100, "judge_tail_s": 10, **parts}}) + "\n"
    )
    text, spent = shown("0", "1")
    assert spent["waits"] == {"code": 0.05, "judge": 0.1, "rest": 0.1, "test": 0.3}
    assert (spent["gpu_hours"], spent["idle_gpu_hours"]) == (pytest.approx(200 / 3600), pytest.approx(90 / 3600))
    assert (
        "0.06, 0.03 of them waiting (the Code LLM 5.0%, the judge 10.0%, the Test LLM 30.0%); evaluations, saving and"
        in text
    )
    assert "idled" not in text
    _, spent = shown("0", "0")
    assert spent["waits"] == {"judge": 0.1}
    text, spent = shown("", "")
    assert (spent["gpu_hours"], spent["waits"]) == (0, {})
    assert "GPU hours" not in text


def test_one_policy_in_both_roles_waits_for_neither(run, call):
    """Self-play on one GPU: the sampling of both roles is its own work."""
    run.note(environment={"given": {"code[0]": {"CUDA_VISIBLE_DEVICES": "0"}}})
    parts = {"code_sampling_s": 10, "test_sampling_s": 30, "test_waiting_s": 20, "code_updating_s": 35}
    line = {"step": 1, "timing": {"step_s": 100, "judge_tail_s": 10, **parts}}
    (run.path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    spent = call(runs.app, "show", "--json").data["spent"]
    assert spent["waits"] == {"judge": 0.2, "rest": 0.05}
    assert spent["idle_gpu_hours"] == pytest.approx(20 / 3600)


def test_gpus_that_idle_most_of_the_time_are_told_with_what_to_change():
    spent = {"gpu_hours": 2.0, "idle_gpu_hours": 1.2, "waits": {"judge": 0.1, "rest": 0.2, "test": 0.5}}
    _, told = gpu_hours(spent)
    assert "idled 60.0% of their time, most of it for the Test LLM: give test.gpus more" in told
    assert len(gpu_hours(spent | {"idle_gpu_hours": 1.0})) == 1


def test_figures_of_runs_are_one_csv_table(run, call, tmp_path):
    other = make_run(run.path.parent, "second", steps=1)
    other.append_metrics({"step": 2, "arena": {"leaving": ["a,b", 'c"'], "unscored": 3}})
    with open(other.metrics_file, "a") as torn:
        torn.write('{"step": 3, "ti')
    done = call(runs.app, "export", "first", "second", "--csv")
    rows = list(csv.DictReader(done.out.splitlines()))
    assert [(row["run"], row["step"], row["code.reward"]) for row in rows[:3]] == [
        ("first", "1", "0.25"), ("first", "2", "0.5"), ("first", "3", "0.75"),
    ]  # fmt: skip
    assert (rows[3]["eval.set"], rows[3]["eval.code.pass@1"], rows[3]["eval.test.validity"]) == ("heldout", "0.5", "")
    assert (rows[-1]["run"], json.loads(rows[-1]["arena.leaving"]), rows[-1]["arena.unscored"]) == (
        "second", ["a,b", 'c"'], "3",
    )  # fmt: skip
    assert [row["step"] for row in call(runs.app, "export", "second", "--json").data] == [1, 1, 2]
    file = tmp_path / "figures.csv"
    assert call(runs.app, "export", "first", "second", "--out", file).code == 0
    assert file.read_text() == done.out
    assert call(runs.app, "export", "first", "--out", file).code == 2
    assert call(runs.app, "export", "first", "--out", file, "--force", "--json").data["rows"] == 4
    assert call(runs.app, "export", "first").code == call(runs.app, "export", "first", "--csv", "--json").code == 2
    make_run(run.path.parent, "early", steps=0).metrics_file.write_text("")
    assert "no figures yet" in call(runs.app, "export", "early", "--csv").err


def test_an_unwritable_place_is_named_as_it_was_given(run, call, tmp_path):
    for place in (tmp_path / "none" / "curves.svg", run.path / "run.json" / "curves.svg"):
        done = call(app, "runs", "show", run.name, "--plot", place)
        assert (done.code, str(place) in done.err, ".tmp" in done.err) == (2, True, False)


def test_a_long_list_has_a_limit_and_says_what_is_left(run, call):
    for number in range(40):
        more = run.path.with_name(f"more-{number}")
        more.mkdir()
        (more / "recipe.yaml").write_text("name: small\n")
    shown = call(runs.app, "list")
    assert len(shown.out.splitlines()) == 31
    assert "and 11 runs more: --limit 0 shows all" in shown.err
    assert len(call(runs.app, "list", "--limit", "0").out.splitlines()) == 42
    assert len(call(runs.app, "list", "--json").data) == 41


def test_the_steps_of_golden_tests_have_their_own_columns(run, call):
    figures = {"solved_share": 0.25, "passed_share": 0.5, "book_tests": 0}
    run.append_metrics({"step": 9, "time": 1.0, "code": {"reward": 0.5}, "arena": figures, "timing": {"step_s": 1.0}})
    shown = call(runs.app, "show", "--steps", "1").out
    assert "solved" in shown
    assert "passed" in shown
    assert "book" not in shown


BEST = {"step": 2, "figure": "heldout/pass@1", "value": 0.5}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (BEST | {"step": "2"}, "step is a text, which no run writes"),
        (BEST | {"value": None}, "value is null, which no run writes"),
        (BEST | {"figure": ["a"]}, "figure is a list, which no run writes"),
        ({"step": 2}, "figure is missing"),
        ([BEST], "it is a list, which no run writes"),
        (None, "it is null, which no run writes"),
    ],
)
def test_a_best_json_with_another_type_is_named_and_nothing_is_deleted_by_it(run, call, tmp_path, content, says):
    (run.path / "best.json").write_text(json.dumps(content))
    told = f"{run.path / 'best.json'}: {says}"
    for words in ((), ("--json",)):
        shown = call(runs.app, "show", run.name, *words)
        assert (shown.code, f"warning: {told}" in shown.err) == (0, True), shown.err
    assert shown.data["best"] is None
    pruned = call(runs.app, "prune", "--keep", "1", "--yes")
    assert (pruned.code, told in pruned.err) == (2, True), pruned.err
    assert run.committed_steps() == [1, 2, 3]
    assert call(app, "report", run.name, "--out", tmp_path / "r.html").code == 0
    assert mark_best(run, "heldout/pass@1") == BEST | {"step": 3}, "a run that goes on writes it anew"
    assert run.best() == BEST | {"step": 3}


def test_a_resume_that_would_not_write_best_json_anew_names_it(run):
    (run.path / "run.json").write_text(json.dumps(run.info() | {"problem_ids": [], "devices": {}, "data": {}}))
    run.mistakes_file.unlink()  # those of the checkpoints are empty
    assert resume_point(run).step == 3
    (run.path / "best.json").write_text('{"step": "2"}')
    with pytest.raises(UserError, match=r"best\.json: step is a text"):
        resume_point(run)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("arena/state.json", {"step": 3, "book": []}),
        ("arena/state.json", {"step": "3", "book": {}}),
        ("arena/state.json", {"step": 3, "book": {}, "late": {"a": 3}}),
        ("arena/state.json", {"step": 3, "book": {}, "flat": ["a"]}),
        ("arena/state.json", [3]),
        ("code/trainer_state.json", []),
        ("code/trainer_state.json", {"global_step": "3"}),
        ("code/rollouts-0.json", {"step": 4, "groups": {"a": {"prompt": ["x"], "completions": [], "logprobs": None}}}),
        ("code/rollouts-0.json", {"step": 4}),
        ("COMMITTED", {"step": "3", "files": {}}),
        ("COMMITTED", {"step": 3, "files": {"code/config.json": "x"}}),
        ("COMMITTED", [3]),
    ],
)
def test_a_checkpoint_whose_small_files_hold_other_types_is_damaged(run, file, content):
    (run.path / "run.json").write_text(json.dumps(run.info() | {"problem_ids": [], "devices": {}, "data": {}}))
    run.mistakes_file.unlink()  # those of the checkpoints are empty
    note = json.loads((run.checkpoint(3) / "COMMITTED").read_text())
    place = run.checkpoint(3) / file
    place.write_text(json.dumps(content))
    if file != "COMMITTED":
        note["files"][file] = place.stat().st_size
        (run.checkpoint(3) / "COMMITTED").write_text(json.dumps(note))
    point = resume_point(run)
    assert point.step == 2
    assert file.rpartition("/")[2] in point.damaged[3] or "of x bytes" in point.damaged[3]
    whole = {"step": 4, "groups": {"a": {"prompt": [1], "completions": [[1, 2]], "logprobs": [[-0.5, float("nan")]]}}}
    if "rollouts" in file:
        place.write_text(json.dumps(whole))
        note["files"][file] = place.stat().st_size
        (run.checkpoint(3) / "COMMITTED").write_text(json.dumps(note))
        assert resume_point(run).step == 3


def test_show_of_a_run_in_its_warm_up_has_no_empty_part_and_says_how_it_goes_on(tmp_path, call, monkeypatch):
    monkeypatch.setenv("CODEA1_RUNS", str(tmp_path))
    run = make_run(tmp_path, "warming", steps=0)
    (run.path / "run.json").unlink()
    bare = call(runs.app, "show", "warming")
    assert ("made with" in bare.out, "next:" in bare.err) == (False, False), "nothing of it is saved"
    make_run(run.path, "warmup", steps=2, total=5)
    next_ = "next: codea1 train --run warming --resume\n"
    shown = call(runs.app, "show", "warming")
    assert "interrupted at step 2 of 5" in shown.out
    assert ("made with" in shown.out, shown.err) == (False, next_)
    assert call(runs.app, "show", str(run.warmup.path)).err == next_, "a warm-up goes on with the run that it is for"
    with run.locked():
        assert "next:" not in call(runs.app, "show", "warming").err
    make_run(tmp_path, "killed", steps=2, total=5)
    assert "next: codea1 train --run killed --resume" in call(runs.app, "show", "killed").err
    make_run(tmp_path, "whole")
    assert "next:" not in call(runs.app, "show", "whole").err
