"""`codea1 plan`, and the head of `train`."""

import json

import pytest

from codea1_cli.cli import app


def test_the_paper_run_fits_and_says_what_it_takes(call):
    done = call(app, "plan", "--recipe", "1.5b", "--gpu", "h100", "--json")
    assert done.code == 0
    data = done.data
    assert data["fits"]
    assert [place["ranks"] for place in data["places"]] == [["code"]] * 4 + [["test"]] * 4
    memory = data["roles"]["code"]["memory"]
    assert memory["training_peak"] == sum(memory["held"].values()) + sum(memory["update"].values())
    assert data["steps"] == 111
    assert data["slices"][0]["code"] + data["slices"][0]["test"] == 8
    assert not data["slices"][0]["shared"]
    assert any("TFLOP/s" in line for line in data["assumptions"])


@pytest.mark.parametrize("name", ["3b", "7b"])
def test_what_does_not_fit_exits_3_with_numbers_and_ways(call, name):
    done = call(app, "plan", "-r", name, "--gpu", "h100", "train.sharding=ddp")
    assert done.code == 3
    assert "GiB, one NVIDIA H100" in done.err
    assert "train.sharding=fsdp2" in done.err
    assert "slices (code + test), shortest step first with" in done.out


def test_both_policies_on_all_gpus_is_a_way_to_share_them(call):
    shown = call(app, "plan", "-r", "0.5b", "--gpu", "h100", "--gpus", "2").out
    assert "both on 2: " in shown
    assert "(code.gpus=[0,1] test.gpus=[0,1])" in shown


def test_one_gpu_for_both_7b(call):
    done = call(app, "plan", "-r", "7b", "--gpu", "h200", "--gpus", "1", "code.gpus=[0]", "test.gpus=[0]", "--json")
    assert done.code == 3
    assert not done.data["fits"]
    assert done.data["error"]


@pytest.mark.parametrize(
    ("recipe", "gpus", "code", "words"),
    [("1.5b", 2, 0, "code.gpus=[0] test.gpus=[1]"), ("7b", 1, 3, "code.gpus=[0] test.gpus=[0]")],
)
def test_fewer_gpus_than_the_recipe_asks_for_are_planned_with(call, recipe, gpus, code, words):
    done = call(app, "plan", "-r", recipe, "--gpu", "h100", "--gpus", gpus)
    assert done.code == code
    assert f"4 + 4 GPUs (code + test), the plan offers {gpus}: planned with {words}" in done.err
    assert ("would need" in done.err) == bool(code)


def test_unknown_things_are_named(call):
    assert "one of h100" in call(app, "plan", "-r", "tiny", "--gpu", "b300").err
    done = call(app, "plan", "-r", "tiny", "model=nobody/nothing")
    assert done.code == 2
    assert "the shape of nobody/nothing is not known here" in done.err


def test_what_no_run_could_be_is_refused(call):
    done = call(app, "plan", "-r", "1.5b", "--gpu", "h200", "--problems", "3")
    assert done.code == 2
    assert "3 problems cannot fill a step that 4 ranks of a policy" in done.err
    assert call(app, "plan", "-r", "1.5b", "--gpu", "h200", "--gpus", "100000").code == 2


def test_a_step_follows_the_problems_that_there_are(call):
    done = call(app, "plan", "-r", "1.5b", "--gpu", "h200", "--problems", "100")
    assert done.code == 0
    assert "100 problems per step, where the recipe asks for 256: there are 100" in done.out + done.err
    done = call(app, "train", "-r", "tiny", "--dry-run", "--json", "data.limit=7")
    assert done.code == 0
    assert "7 problems per step, where the recipe asks for 12" in done.data["notes"][-1]
    assert done.data["code"]["rows trained a step"] == 56


def test_assumed_lengths_can_be_set(call):
    short, long = (
        call(app, "plan", "-r", "135m", "--gpu", "a100", "--problems", 100, "--mean-completion", n, "--json").data
        for n in (50, 500)
    )
    assert short["step_s"] < long["step_s"]
    assert short["steps"] == long["steps"] == 6


def test_the_dry_run_carries_the_estimate(call):
    done = call(app, "train", "-r", "tiny", "--dry-run", "--json")
    assert done.code == 0
    assert done.data["ahead"]["fits"]
    assert done.data["code"]["rows trained a step"] == 96


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            ("data.limit=1", "train.updates_per_step=5"),
            "1 problem cannot fill a step that 1 rank of a policy and train.updates",
        ),
        (("--run", "../../evil"), "'../../evil' is no name for a run"),
        (("--run", ""), "--run is empty"),
        (("--run", "a/b c"), "'a/b c' is no name for a run"),
        (("train.max_steps=",), "override 'train.max_steps=' has no value\nhint: write train.max_steps=null for none"),
        (("model=",), "override 'model=' has no value\nhint: write model=VALUE, or leave it out"),
        (("data.source.name=",), "hint: write data.source.name=VALUE, or leave it out"),
    ],
)
def test_what_cannot_start_is_refused_by_the_dry_run_too(call, tmp_path, words, more, says):
    done = call(app, "train", "-r", "tiny", "--runs", tmp_path / "runs", *words, *more)
    assert done.code == 2
    assert says in done.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [("plan",), ("train", "--dry-run"), ("train",)])
def test_a_place_that_takes_no_run_is_told_before_anything_is_done(call, words):
    done = call(app, *words, "-r", "tiny", "--runs", "/proc/runs")
    assert (done.code, done.err.splitlines()[-2:]) == (3, ["error: cannot write /proc/runs: No such file or directory",
                                                           "hint: choose another --runs"])  # fmt: skip


def test_train_refuses_before_it_launches(call, monkeypatch, tmp_path):
    from codea1_cli.planning import gpu_assignment

    monkeypatch.setattr(gpu_assignment.os, "sysconf", lambda name: 1024)  # a machine of one MiB
    done = call(app, "train", "-r", "tiny", "--runs", tmp_path / "runs")
    assert done.code == 3
    assert "would need" in done.err
    assert not (tmp_path / "runs").exists()


def test_the_dry_run_counts_the_steps_of_the_published_batch():
    from codea1_cli.cli.plan_view import run_data
    from codea1_cli.recipe.files import load_recipe

    data = run_data(load_recipe("1.5b", ["data.train=x.jsonl"]), 9688, {"code": [None] * 4, "test": [None] * 4}, None)
    assert data["steps"] == "111 of 256 problems, 37 an epoch"


def test_a_method_with_one_policy_is_planned_and_shown(call):
    words = ("-r", "tiny", "method=tests.methods.one_role:OneRole")
    data = call(app, "train", *words, "--dry-run", "--json").data
    assert "test" not in data
    assert list(data["ahead"]["roles"]) == list(data["slices"]) == ["code"]
    assert "plan: code[0] need" in call(app, "train", *words, "--dry-run").out
    shown = call(app, "plan", *words, "--gpu", "h100", "--gpus", "2")
    assert shown.code == 0
    assert "slices (code), shortest step first: 2 " in shown.out


def test_a_plan_says_that_solve_rates_are_measured_first(call, tmp_path):
    row = {"id": "p", "question": "Double.", "declaration": "def f(n):", "entry_point": "f", "reference": "def f(n):\n    return 2 * n\n", "tests": ["assert f(2) == 4"]}  # fmt: skip
    rows = [{**row, "id": f"p{i}", **({"solve_rate": 0.5} if i < 3 else {})} for i in range(20)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    words = [f"data.train={tmp_path / 'train.jsonl'}", "data.heldout=null", "train.problems_per_step=4"]
    notes = call(app, "plan", "--recipe", "tiny", *words, "data.solve_rate=[0.1,0.9]", "--json").data["notes"]
    (note,) = [note for note in notes if "solve rates" in note]
    assert note.startswith("the solve rates of 17 problems are measured first")
    assert "as in 5 steps" in note
    assert not any(
        "solve rates" in note for note in call(app, "plan", "--recipe", "tiny", *words, "--json").data["notes"]
    )


def test_a_plan_counts_no_problem_whose_stated_solve_rate_lies_outside(call, tmp_path):
    row = {"question": "Double.", "declaration": "def f(n):", "entry_point": "f", "reference": "def f(n):\n    return 2 * n\n", "tests": ["assert f(2) == 4"]}  # fmt: skip
    rows = [{**row, "id": f"p{i}", "solve_rate": 0.5 if i < 8 else 1.0} for i in range(20)]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    words = ["--recipe", "tiny", f"data.train={file}", "data.heldout=null", "train.problems_per_step=4"]
    notes = call(app, "plan", *words, "data.solve_rate=[0.1,0.9]", "--json").data["notes"]
    assert any(note.startswith("left out 12 problems, solve rate above 0.9") for note in notes)
    for command in (["plan"], ["train", "--dry-run"], ["train"]):
        refused = call(app, *command, *words, "data.solve_rate=[0.1,0.2]")
        assert refused.code == 2
        assert f"no problem of {file} can be used: 20 solve rate above 0.2" in refused.err
        assert "widen data.solve_rate" in refused.err


def test_a_plan_of_two_policies_pairs_has_steps_that_both_can_fill(call, tmp_path):
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({"prompt": "u", "completion": "c"}) + "\n")
    words = ["--recipe", "tiny", "method=sft", "sft.role=both", f"sft.code={file}", "train.problems_per_step=4"]
    told = call(app, "train", *words, "--dry-run", "--json").data
    assert "1 pair per step, where the recipe asks for 4: there are 1" in told["notes"]
