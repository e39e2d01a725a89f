"""Benchmarks during training: when, with which settings, what is marked best, and what a fault of scoring leaves."""

import asyncio
import json
import os
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from codea1_cli.engine import arena as arena_module
from codea1_cli.engine import evaluation_in_arena as evaluators
from codea1_cli.engine.arena import Arena
from codea1_cli.engine.evaluation_in_arena import BenchmarkEvaluator
from codea1_cli.engine.resume import ResumePoint, set_aside
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.engine.trl.sampling import beside_training, engine_length, fitting, sampling_as
from codea1_cli.errors import UserError
from codea1_cli.models.sampler import SamplingSettings
from codea1_cli.recipe.files import load_recipe
from codea1_cli.recipe.resources import benchmarks_due
from codea1_cli.runs.checkpoints import best_of, figure_of, mark_best, prunable
from codea1_cli.runs.run_dir import RunDir

FIGURE = "humaneval/plus/pass@1"


def line(step, value):
    return {"step": step, "eval": {"set": "humaneval", "plus/pass@1": value}}


# -- the best checkpoint -----------------------------------------------------------------------------------------------
@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    run.create()
    return run


def commit(run, *steps):
    for step in steps:
        for part in ("code", "test", "arena"):
            (run.pending / part).mkdir(parents=True)
        run.commit(step)


def test_a_figure_is_looked_up_in_its_own_set():
    assert figure_of(line(1, 0.5), FIGURE) == 0.5
    assert figure_of(line(1, None), FIGURE) is None
    assert figure_of(line(1, 0.5), "mbpp/plus/pass@1") is None
    heldout = {"step": 1, "eval": {"set": "heldout", "code": {"pass@1": 0.25}, "test": {"kill_rate": 0.75}}}
    assert figure_of(heldout, "heldout/pass@1") == 0.25
    assert figure_of(heldout, "heldout/kill_rate") == 0.75
    heldout["eval"]["near_miss"] = {"exposed": 0.125}
    assert figure_of(heldout, "heldout/near_miss/exposed") == 0.125
    assert figure_of(heldout, "heldout/near_miss/kill_rate") is None
    assert figure_of(heldout, "heldout/exposed") is None
    assert figure_of({"step": 1, "code": {}}, "heldout/pass@1") is None


def test_the_best_is_the_earliest_of_the_highest_that_has_a_checkpoint():
    lines = [line(0, 0.9), line(1, 0.2), line(2, 0.5), line(3, 0.5)]
    assert best_of(lines, FIGURE, [1, 2, 3]) == (2, 0.5)
    assert best_of(lines, FIGURE, [1]) == (1, 0.2)
    assert best_of(lines, FIGURE, []) is None


def test_pruning_spares_the_best_and_what_is_still_scored():
    assert prunable([1, 2, 3, 4], 1, {2}) == [1, 3]
    assert prunable([1, 2, 3, 4], 0, ()) == [1, 2, 3]
    assert prunable([1], 3, ()) == []


def test_the_mark_moves_only_to_a_better_checkpoint_and_pruning_goes_round_it(run):
    for step, value in ((1, 0.3), (2, 0.6), (3, 0.6), (4, 0.1)):
        commit(run, step)
        run.append_metrics(line(step, value))
        mark_best(run, FIGURE)
        run.prune(1)
    assert run.best() == {"step": 2, "figure": FIGURE, "value": 0.6}
    assert os.readlink(run.path / "checkpoints" / "best") == "step-000002"
    assert run.committed_steps() == [2, 4]
    assert run.prune(1) == []
    # A figure that comes later than the checkpoints after it: `spared` kept its checkpoint until then.
    commit(run, 5, 6)
    assert run.prune(1, {5}) == [4]
    run.append_metrics(line(5, 0.9))
    assert mark_best(run, FIGURE) == {"step": 5, "figure": FIGURE, "value": 0.9}
    assert run.prune(1) == [2]
    assert run.committed_steps() == [5, 6]


def test_a_figure_before_its_checkpoint_marks_nothing_and_a_run_that_starts_over_has_no_best(run):
    run.append_metrics(line(1, 0.3))
    assert mark_best(run, FIGURE) is None
    commit(run, 1)
    assert mark_best(run, FIGURE)["step"] == 1
    run.delete_checkpoint(1)
    set_aside(run, ResumePoint(0, {}))
    assert mark_best(run, FIGURE) is None
    assert run.best() is None
    assert not os.path.lexists(run.path / "checkpoints" / "best")
    assert mark_best(run, None) is None


# -- the recipe --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("best", ["humaneval/plus/pass@1", "nonsense", "heldout/"])
def test_a_best_that_is_not_measured_is_refused(best):
    with pytest.raises((UserError, ValidationError), match="no figure of this run"):
        load_recipe("tiny", [f"eval.best={best}"])


def test_a_held_out_best_needs_held_out_problems():
    assert load_recipe("tiny", ["eval.best=heldout/pass@1"]).eval.best == "heldout/pass@1"
    with pytest.raises((UserError, ValidationError), match=r"data\.heldout"):
        load_recipe("tiny", ["eval.best=heldout/pass@1", "data.heldout=null"])


@pytest.mark.parametrize(
    ("wish", "steps"),
    [
        ([], []),
        (["eval.benchmarks=[ult]"], [0, 9]),
        (["eval.benchmarks=[ult]", "eval.every=4"], [0, 4, 8, 9]),
        (["eval.benchmarks=[ult]", "eval.every=4", "eval.benchmark_every=5"], [0, 5, 9]),
    ],
)
def test_when_benchmarks_are_due(wish, steps):
    recipe = load_recipe("tiny", wish)
    assert [step for step in range(10) if benchmarks_due(recipe, step, 9)] == steps


# -- sampling ----------------------------------------------------------------------------------------------------------
def _trainer(vllm):
    def single():
        raise AssertionError("not called here")

    single.seen = {(1,): 2}
    settings = {"temperature": 1.0, "top_p": 0.9, "top_k": 5}
    return SimpleNamespace(
        use_vllm=vllm,
        vllm_generation=SimpleNamespace(**settings, max_completion_length=72),
        generation_config=SimpleNamespace(**settings, max_new_tokens=72),
        _generate_single_turn=single,
    )


@pytest.mark.parametrize("vllm", [False, True])
def test_the_engine_samples_by_other_settings_and_gets_its_own_back(vllm):
    trainer = _trainer(vllm)
    engine = trainer.vllm_generation if vllm else trainer.generation_config
    other = trainer.generation_config if vllm else trainer.vllm_generation
    before, untouched = dict(vars(engine)), dict(vars(other))
    longest = "max_completion_length" if vllm else "max_new_tokens"

    def fail():
        with beside_training(trainer, 0), sampling_as(trainer, SamplingSettings(1, 0.7, 0.95, 48)):
            assert vars(engine) == {"temperature": 0.7, "top_p": 0.95, "top_k": 0, longest: 48}
            trainer._generate_single_turn.seen[(1,)] = 7
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert vars(engine) == before
    assert vars(other) == untouched
    assert trainer._generate_single_turn.seen == {(1,): 2}


def test_trls_engines_have_the_settings_that_are_set():
    """What `sampling_as` sets is what TRL's sampling reads."""
    import inspect

    from transformers import GenerationConfig
    from trl.generation import vllm_generation

    source = inspect.getsource(vllm_generation.VLLMGeneration.generate)
    for name in ("temperature", "top_p", "top_k", "max_completion_length"):
        assert f"self.{name}" in source
    assert all(hasattr(GenerationConfig(), name) for name in ("temperature", "top_p", "top_k", "max_new_tokens"))


@pytest.mark.parametrize("settings", [None, SamplingSettings(max_new_tokens=72)])
def test_a_prompt_without_room_is_answered_by_an_empty_text(settings):
    """Of the held-out problems too: vLLM raises there, and the run ended."""
    from codea1_cli.engine.trl.rank import TrainingRank

    recipe, asked, posted = load_recipe("tiny"), [], []
    items = [SimpleNamespace(id=name, entry_point="f") for name in ("short", "long")]
    prompts = {"short": [1] * 256, "long": [1] * 257}
    rank = SimpleNamespace(
        spec=SimpleNamespace(rank=0, ranks=1, policy="code"),
        phase=lambda *_: None,
        recipe=recipe,
        trainer=_trainer(True),
        tokenizer=SimpleNamespace(batch_decode=lambda group, **_: ["text"] * len(group), init_kwargs={}),
        shares={"set": items},
        arena=SimpleNamespace(post_evaluation=lambda *found: posted.append(found)),
        sample_aside=lambda role, prompts, *_, **__: asked.append(prompts) or [[[5]] * 2 for _ in prompts],
    )
    chosen = SimpleNamespace(
        name="set",
        role="code",
        n=2,
        seed=0,
        sampling=lambda: settings,
        prompts=lambda _, items: [prompts[item.id] for item in items],
    )
    TrainingRank._sample_share(rank, chosen, 0)
    assert asked == [[prompts["short"]]]
    ((_, _, _, texts, too_long),) = posted
    assert (texts["long"], too_long) == (["", ""], 1)
    assert texts["short"] == ["text", "text"]


def test_a_prompt_needs_room_for_a_whole_reply():
    prompts = [[0] * 10, [0] * 11, [0] * 5]
    assert fitting(prompts, 6, 16) == [0, 2]
    assert fitting(prompts, 6, None) == [0, 1, 2]
    recipe = load_recipe("tiny")
    assert engine_length(_trainer(True), recipe, "code") == 256 + 72
    trainer = _trainer(False)
    trainer.model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=1024))
    assert engine_length(trainer, recipe, "code") == 1024


# -- the arena's evaluator --------------------------------------------------------------------------------------------------
class Set:
    """Two tasks; the reply `break` cannot be scored."""

    name, role = "humaneval", "code"

    def __init__(self):
        self.closed, self.scored = False, []

    def load(self):
        return ["a", "b", "c"]

    def score(self, texts):
        self.scored.append(texts)
        if "break" in texts["a"]:
            raise RuntimeError("the sandbox is gone\nfor good")
        return {"plus/pass@1": sum("good" in group for group in texts.values()) / len(texts)}, {"a": {"n": 1}}

    def close(self):
        self.closed = True


@pytest.fixture
def arena(tmp_path, monkeypatch):
    chosen = Set()
    judge = SimpleNamespace(workers=4, close=lambda: None, canary=lambda: None)
    monkeypatch.setattr(arena_module, "run_judge", lambda *_, **__: judge)
    monkeypatch.setattr(evaluators, "benchmark_sets", lambda recipe, workers: [chosen])
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    run.create()
    wish = ["eval.benchmarks=[humaneval]", "eval.benchmark_every=2", f"eval.best={FIGURE}", "checkpoint.every=100"]
    arena = Arena(load_recipe("tiny", wish), str(run.path), ["code[0]", "code[1]", "test[0]"])
    arena.chosen = chosen
    return arena


async def begin(arena, resume_step=0):
    await arena.start(Schedule(tuple(("p",) for _ in range(5)), 0), {}, [], resume_step, 5)


async def post(arena, step, reply):
    await arena.post_evaluation(step, "humaneval", 1, {"b": ["bad"]}, 0)
    assert arena.benchmarks.pending_steps() == {step}
    await arena.post_evaluation(step, "humaneval", 0, {"a": [reply], "c": ["good"]}, 1)


def test_all_ranks_texts_become_one_line_and_a_best_checkpoint(arena):
    async def go():
        await begin(arena)
        assert await arena.evaluation_share("humaneval", 1, 2) == ["b"]
        commit(arena.run, 2)
        await post(arena, 2, "good")
        await arena.close()

    asyncio.run(go())
    (written,) = arena.run.metrics()
    assert written["step"] == 2
    told = written["eval"]
    assert (told["set"], told["tasks"], told["n"], told["prompts_too_long"]) == ("humaneval", 3, 1, 1)
    assert told["plus/pass@1"] == 2 / 3
    assert arena.chosen.scored == [{"a": ["good"], "b": ["bad"], "c": ["good"]}]
    assert arena.chosen.closed
    assert arena.run.best() == {"step": 2, "figure": FIGURE, "value": 2 / 3}
    assert [event["kind"] for event in arena.events] == ["eval"]
    assert [p.name for p in (arena.run.path / "evaluation").iterdir()] == ["step-000002-humaneval.json"]


def test_what_cannot_be_scored_is_a_note_and_is_tried_again_after_a_resume(arena):
    async def fail():
        await begin(arena)
        await post(arena, 2, "break")
        while not await arena.benchmarks_scored(5.0):
            pass

    asyncio.run(fail())
    assert arena.run.metrics() == []
    assert arena.benchmarks.pending_steps() == set()
    assert [event for event in arena.events if event["kind"] == "note"] == [
        {"kind": "note", "text": "humaneval at step 2 could not be scored: RuntimeError: the sandbox is gone"}
    ]
    file = arena.run.path / "evaluation" / "step-000002-humaneval-texts.json"
    content = json.loads(file.read_text())
    content["texts"]["a"] = ["good"]
    file.write_text(json.dumps(content))

    async def resume():
        arena.benchmarks = BenchmarkEvaluator(arena)
        await arena.benchmarks.open(2)
        await arena.benchmarks.close()

    asyncio.run(resume())
    assert [written["eval"]["plus/pass@1"] for written in arena.run.metrics()] == [2 / 3]
    assert not file.exists()


def test_a_step_whose_figure_may_be_the_best_is_saved(arena):
    async def decisions():
        await begin(arena)
        return [(await arena.step_ended("code[0]", step)).save for step in range(1, 6)]

    assert asyncio.run(decisions()) == [False, True, False, True, True]
