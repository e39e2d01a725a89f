"""A run that learns from pairs: what it leaves out and keeps, its order; and the warm-up before another run."""

import json
import shutil

import pytest

from codea1_cli.data.pairs import Pair
from codea1_cli.engine import sft
from codea1_cli.engine.resume import ResumePoint
from codea1_cli.engine.sft import PairSetup, kept_pairs, warm_up
from codea1_cli.errors import UserError
from codea1_cli.recipe.files import load_recipe, recipe_text
from codea1_cli.runs import trained_on
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import RunOutcome

DEVICES = {"code[0]": "cpu", "test[0]": "cpu"}
CPU = {"code": [None], "test": [None]}


def pairs(role, count):
    chat = [{"role": "user", "content": "u"}]
    return [Pair(f"{role}/{number}", chat, f"c{number}") for number in range(1, count + 1)]


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "one")
    run.create()
    return run


def setup_of(run, *words):
    recipe = load_recipe("tiny", ["method=sft", "sft.role=both", "train.problems_per_step=2", *words])
    run.recipe_file.write_text(recipe_text(recipe))
    return PairSetup(recipe, run)


def test_too_long_pairs_are_left_out_and_a_resume_has_the_rest_in_the_same_order(run):
    rows = [*pairs("code", 5), *pairs("test", 7)]
    lengths = [(10, 10)] * len(rows)
    lengths[1], lengths[6] = (257, 10), (10, 113)
    setup = setup_of(run, "train.max_steps=5")
    schedule, kept = setup.fresh(rows, {}, lengths, DEVICES)
    assert kept == {}
    assert setup.skipped == {
        "longer than code.max_prompt_tokens=256": ["code/2"],
        "longer than test.max_completion_tokens=112": ["test/2"],
    }
    assert len(schedule) == 5
    for step in schedule.steps:
        assert [id.partition("/")[0] for id in step] == ["code", "code", "test", "test"]
        assert len(set(step)) == 4
    info = json.loads((run.path / "run.json").read_text())
    assert info["data"]["pairs"] == {"code": 4, "test": 6}
    assert trained_on(info["data"], "train.jsonl") == (
        "4 pairs for the Code LLM, of train.jsonl, 6 pairs for the Test LLM, of train.jsonl"
    )
    assert info["data"]["skipped"] == dict.fromkeys(setup.skipped, 1)

    again = setup_of(run, "train.max_steps=5")
    assert again.resume(kept_pairs(run), list(DEVICES)) == (schedule, {})
    assert again.pairs == setup.pairs
    with pytest.raises(UserError, match="began with the ranks"):
        again.resume(kept_pairs(run), ["code[0]"])


def test_without_a_length_the_run_is_as_long_as_the_longer_file(run):
    setup = setup_of(run, "train.max_steps=null", "train.epochs=2")
    schedule, _ = setup.fresh([*pairs("code", 5), *pairs("test", 7)], {}, [(1, 1)] * 12, DEVICES)
    assert len(schedule) == 6
    assert schedule.steps_per_epoch == 3


@pytest.mark.parametrize("preflight", ["true", "false"])
def test_where_all_pairs_of_a_policy_are_too_long_the_limit_is_named(run, preflight):
    setup = setup_of(run, f"preflight.enabled={preflight}")
    with pytest.raises(UserError, match=r"of 9 pairs 3 are longer than code.max_completion_tokens") as fault:
        setup.fresh([*pairs("code", 3), *pairs("test", 6)], {}, [(1, 400)] * 3 + [(1, 1)] * 6, DEVICES)
    assert fault.value.hint == "raise what is named"


def test_few_pairs_make_a_smaller_step_and_mostly_long_ones_no_run(run):
    setup = setup_of(run, "train.problems_per_step=4")
    schedule, _ = setup.fresh([*pairs("code", 3), *pairs("test", 7)], {}, [(1, 1)] * 10, DEVICES)
    assert len(schedule.steps[0]) == 6
    assert setup.notes == ["3 pairs per step, where the recipe asks for 4: there are 3"]
    with pytest.raises(UserError, match=r"of 4 pairs 3 are longer than code.max_prompt_tokens=256") as caught:
        setup_of(run).fresh(pairs("code", 4), {}, [(300, 1)] * 3 + [(1, 1)], {"code[0]": "cpu"})
    assert "--no-preflight" in caught.value.hint


class Trained:
    """Stands for the training of a warm-up."""

    def __init__(self, monkeypatch):
        self.asked = []
        self.state = "finished"
        monkeypatch.setattr(sft, "export_policy", lambda run, role, to: to.mkdir(parents=True))

    def __call__(self, recipe, stage, done):
        self.asked.append((recipe.train.max_steps, stage.recipe().method, done))
        (stage.path / "run.json").write_text(
            json.dumps({"problem_ids": [], "devices": {}, "data": {}, "total_steps": recipe.train.max_steps})
        )
        return RunOutcome(2 if self.state == "interrupted" else 5, 5, 5, self.state != "finished", {})


def test_a_warm_up_is_trained_once_and_again_for_another_recipe(run, monkeypatch):
    trained = Trained(monkeypatch)
    words = ["warmup.steps=5", "sft.learning_rate=0.01"]
    recipe = load_recipe("tiny", words)
    run.recipe_file.write_text(recipe_text(recipe))
    trained.state = "interrupted"
    assert warm_up(recipe, run, trained, CPU).interrupted
    assert run.recipe().model_of("code") == "builtin:tiny"
    trained.state = "finished"
    assert warm_up(recipe, run, trained, CPU) is None
    assert run.recipe().model_of("test") == str(run.path / "warmup" / "model" / "test")
    assert "warmup/model" not in recipe_text(run.recipe())
    warm_up(recipe, run, trained, CPU)
    warm_up(load_recipe("tiny", [*words, "eval.n=3", "faults.deadline_s=9", "judge.workers=1"]), run, trained, CPU)
    assert trained.asked == [(5, "sft", 0)] * 2
    assert not (run.path / "set-aside").exists()
    warm_up(load_recipe("tiny", [*words, "seed=3"]), run, trained, CPU)
    assert len(trained.asked) == 3
    assert (run.path / "set-aside" / "warmup" / "model" / "code").is_dir()


def test_an_interrupt_in_the_last_step_of_a_warm_up_ends_the_run_which_then_goes_on_without_it(run, monkeypatch):
    trained, recipe = Trained(monkeypatch), load_recipe("tiny", ["warmup.steps=5"])
    run.recipe_file.write_text(recipe_text(recipe))
    trained.state = "late"
    outcome = warm_up(recipe, run, trained, CPU)
    assert outcome.state == "finished"
    assert outcome.interrupted
    monkeypatch.setattr(sft, "resume_point", lambda stage: ResumePoint(5, {}))
    monkeypatch.setattr(sft, "set_aside", lambda *_: None)
    assert warm_up(recipe, run, trained, CPU) is None
    assert len(trained.asked) == 1
    assert run.warmed(("code", "test"))


def test_a_warm_up_measures_itself_where_the_run_has_no_engine_of_its_own(run, monkeypatch):
    trained, recipe = Trained(monkeypatch), load_recipe("tiny", ["warmup.steps=5"])
    assert recipe.data.heldout
    warm_up(recipe, run, trained, CPU)
    assert run.warmup.recipe().data.heldout == recipe.data.heldout
    monkeypatch.setattr(sft, "wants_vllm", lambda recipe, gpu: gpu is not None)
    warm_up(recipe, run, trained, {"code": ["a GPU"], "test": ["a GPU"]})
    assert len(trained.asked) == 1, "what is measured decides nothing"
    shutil.rmtree(run.warmup.path)
    warm_up(recipe, run, trained, {"code": ["a GPU"], "test": ["a GPU"]})
    assert run.warmup.recipe().data.heldout is None


def test_a_lost_model_is_written_again_from_the_checkpoint(run, monkeypatch):
    trained = Trained(monkeypatch)
    recipe = load_recipe("tiny", ["warmup.steps=5"])
    warm_up(recipe, run, trained, CPU)
    shutil.rmtree(run.path / "warmup" / "model" / "test")
    assert run.warmed(("code", "test")) == {}
    monkeypatch.setattr(sft, "resume_point", lambda stage: ResumePoint(5, {}))
    assert warm_up(recipe, run, trained, CPU) is None
    assert len(trained.asked) == 1
    assert set(run.warmed(("code", "test"))) == {"code", "test"}


def test_messages_of_a_warm_up_name_the_run_that_it_is_for(run):
    assert RunDir(run.path / "warmup", within=run).options == run.options
