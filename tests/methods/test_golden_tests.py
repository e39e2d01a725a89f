"""Golden tests: what a candidate earns, on which tests, and what a recipe may set."""

import asyncio
import json
from dataclasses import replace

import pytest

from codea1_cli.cli.plan import guessed
from codea1_cli.errors import UserError
from codea1_cli.judging.judge import CandidateResult
from codea1_cli.judging.step_judge import StepJudge
from codea1_cli.methods.code_a1 import UNREAD
from codea1_cli.methods.registry import method_of
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.files import load_recipe, recipe_text, resumed_recipe
from codea1_cli.recipe.resources import heldout_problems, training_problems, unread_problems

ASSERTS = ["assert double(3) == 6", "assert double(2) == 4", "assert double(0) == 0", "assert double(-1) == -2"]
MODULE = "from solution import double\n\ndef test_it():\n    assert double(3) == 6\n    assert double(2) == 4\n"
PROBLEM = Problem(id="double", question="q", declaration="def double(n):", entry_point="double", tests=ASSERTS)
RIGHT, HALF, RAISES = ("def double(n):\n    " + body for body in ("return 2 * n", "return n * n", "raise ValueError"))
REPLIES = [f"```python\n{code}\n```" for code in (RIGHT, HALF, RAISES, "def double(n)\n    return")]


def golden(*overrides):
    return load_recipe("tiny", ["method=golden-tests", *overrides])


class Step:
    def __init__(self, candidates):
        self.loaded = candidates

    async def candidates(self, problem_id):
        return self.loaded


def play(judge, problem, *overrides, replies=REPLIES):
    """The outcome of one problem, and the step's figures."""
    recipe = golden(*overrides)
    method = method_of(recipe)
    step_judge = StepJudge(recipe.game, judge, method.own_tests(recipe.game))
    assert method.problem_fault(step_judge, problem) is None
    judged = asyncio.run(method.judge(Step(step_judge.load_candidates(problem, replies)), problem.id))
    outcome = method.score(recipe.game, (), judged, problem.id)
    return outcome, method.figures(recipe.game, {problem.id: outcome})


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        PROBLEM.model_copy(update={"reference": RIGHT}),
        PROBLEM.model_copy(update={"tests": [], "test_code": MODULE}),
    ],
    ids=["no reference", "a reference", "a pytest file"],
)
def test_the_reward_is_the_share_of_own_tests_passed_or_all_or_nothing(judge, problem):
    outcome, figures = play(judge, problem)
    assert outcome.code_rewards == [1.0, 0.5, 0.0, 0.0]
    assert (figures["solved_share"], figures["loaded_share"], figures["code_signal_share"]) == (0.25, 0.75, 1.0)
    assert figures["passed_share"] == 0.5
    assert figures["unscored"] == 0
    assert play(judge, problem, "game.golden=all")[0].code_rewards == [1.0, 0.0, 0.0, 0.0]


def test_more_than_eight_own_tests_all_count(judge):
    tests = [f"assert double({n}) == {2 * n}" for n in range(3, 23)]
    program = "```python\ndef double(n):\n    return 2 * n if n < 22 else 0\n```"
    assert play(judge, PROBLEM.model_copy(update={"tests": tests}), replies=[program])[0].code_rewards == [0.95]


def test_equal_rewards_are_no_signal(judge):
    assert play(judge, PROBLEM, replies=REPLIES[:1] * 4)[1]["code_signal_share"] == 0.0


@pytest.mark.parametrize("problem", [PROBLEM, PROBLEM.model_copy(update={"reference": RIGHT})])
def test_a_failure_of_the_sandbox_is_no_verdict(judge, problem, monkeypatch):
    recipe = golden()
    method = method_of(recipe)
    candidates = StepJudge(recipe.game, judge, None).load_candidates(problem, REPLIES)
    failed = [replace(test, verdict=type(test.verdict).UNSCORED) for test in candidates[0].own[:1]]
    candidates[0] = replace(candidates[0], own=(*failed, *candidates[0].own[1:]))
    candidates[1] = replace(candidates[1], own=())  # the reference had an answer once, and timed out today
    candidates[2] = replace(candidates[2], loaded=None, own=())
    judged = asyncio.run(method.judge(Step(candidates), problem.id))
    assert [one.game.loaded for one in judged.candidates] == [None, None, None, False]  # what stops a run in an outage
    outcome = method.score(recipe.game, (), judged, problem.id)
    assert outcome.code_rewards == [None, None, None, 0.0]
    assert method.figures(recipe.game, {problem.id: outcome})["unscored_share"] == 0.75
    monkeypatch.setattr(judge, "check", lambda *_: CandidateResult(None))
    candidates = StepJudge(recipe.game, judge, None).load_candidates(problem, REPLIES[:1])
    assert asyncio.run(method.judge(Step(candidates), problem.id)).candidates[0].game.loaded is None


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"tests": []}, "it has no tests of its own"),
        ({"tests": ["print(1)"]}, UNREAD),
        ({"tests": [], "test_code": "def test(): pass"}, UNREAD),
        ({"tests": ["assert double(1) == other(2)"]}, "none of its own tests states an answer that can be read"),
        ({"reference": "def other(): pass"}, "its reference does not load"),
    ],
)
def test_a_problem_that_cannot_be_used_is_named_with_its_reason(judge, update, said):
    method = method_of(golden())
    assert method.problem_fault(StepJudge(golden().game, judge, None), PROBLEM.model_copy(update=update)) == said


def test_rows_need_no_reference_where_the_method_needs_none(tmp_path):
    row = PROBLEM.model_dump()
    del row["reference"]
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps({**row, "id": "m", "tests": [], "test_code": MODULE}) + "\n")
    data = [f"data.train={file}", f"data.heldout={file}"]
    assert training_problems(golden(*data)) == heldout_problems(golden(*data)) != []
    with pytest.raises(UserError, match=r"rows\.jsonl:1: lacks the field reference"):
        training_problems(load_recipe("tiny", data))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("method=golden-tests", "game.alpha=0.3"), "game.alpha=0.3: method=golden-tests ignores game.alpha"),
        (("game.n_test=4", "method=golden-tests"), "game.n_test=4: method=golden-tests ignores game.n_test"),
        (("method=golden-tests", "test.gpus=1"), "test.gpus=1: method=golden-tests ignores test.gpus"),
        (("method=golden-tests", "test={gpus: 1}"), "ignores test.gpus"),
        (("game.golden=all",), "game.golden=all: method=code-a1 ignores game.golden"),
    ],
)
def test_a_key_that_the_method_ignores_is_refused(words, said):
    with pytest.raises(UserError) as caught:
        load_recipe("tiny", words)
    assert said in caught.value.what


def test_one_word_changes_the_method_of_any_recipe(tmp_path):
    """What a recipe below sets for its own method is left out; what is set beside or above the new one is not."""
    mine, above = tmp_path / "mine.yaml", tmp_path / "above.yaml"
    mine.write_text("extends: tiny\nmethod: golden-tests\n")
    recipe = load_recipe(str(mine))
    assert recipe == golden().model_copy(update={"name": "mine"})
    assert recipe.game.tests_per_suite == 8  # tiny has 4
    again = tmp_path / "again.yaml"
    again.write_text(recipe_text(recipe))
    assert load_recipe(str(again)) == load_recipe(str(again), of_run=True) == recipe
    above.write_text("extends: mine\ngame: {alpha: 0.5}\n")
    with pytest.raises(UserError, match=rf"{above}: method=golden-tests ignores game\.alpha"):
        load_recipe(str(above))
    assert load_recipe(str(above), ["method=code-a1"]).game.alpha == 0.5
    assert load_recipe(str(again), ["method=code-a1", "game.n_test=3"]).game.n_test == 3


def test_what_ones_own_file_sets_is_not_left_out_in_silence(tmp_path):
    base, above, full = (tmp_path / f"{name}.yaml" for name in ("base", "above", "full"))
    base.write_text("extends: tiny\ngame: {alpha: 0.4, n_test: 8}\ncode: {gpus: 1}\n")  # 8 is the default
    above.write_text("extends: base\nmethod: golden-tests\n")
    for file, words in ((above, []), (base, ["method=golden-tests"])):
        with pytest.raises(UserError) as caught:
            load_recipe(str(file), words)
        assert caught.value.what == f"{base}: method=golden-tests ignores game.alpha"
        assert caught.value.hint == "leave it out, take it back with game.alpha=null, or set another method"
        assert load_recipe(str(file), [*words, "game.alpha=null"]).code.gpus == 1
    above.write_text("extends: base\nmethod: golden-tests\ngame: {alpha: null}\n")
    assert load_recipe(str(above)).method == "golden-tests"
    full.write_text(recipe_text(load_recipe("tiny")))
    with pytest.raises(UserError, match=r"full\.yaml: .* ignores game\.tests_per_suite, game\.share_identical, test"):
        load_recipe(str(full), ["method=golden-tests"])
    taken = ["game.tests_per_suite=null", "game.share_identical=null", "test=null"]
    recipe = load_recipe(str(full), ["method=golden-tests", *taken])
    assert recipe.dump() == golden().dump()


def test_problems_without_tests_are_told_before_anything_starts():
    bare = PROBLEM.model_copy(update={"id": "bare", "tests": []})
    recipe = golden("model=me/base")
    assert unread_problems(recipe, [PROBLEM, bare]) == {"bare": "it has no tests of its own"}
    assert unread_problems(load_recipe("tiny", ["model=me/base"]), [bare]) == {}
    said = "^builtin:tiny/train: none of 1 problem has a test of its own that can be read"
    with pytest.raises(UserError, match=said) as caught:
        unread_problems(recipe, [bare])
    assert "write-tests --problems" in caught.value.hint


def test_tests_that_cannot_be_read_are_counted_before_anything_starts():
    other = PROBLEM.model_copy(update={"id": "b", "tests": [*ASSERTS, "assert double(1)", "assert double(2) > 3"]})
    module = f"{MODULE}    assert double(1)\n    assert double(2) > 3\n    assert True\n"
    third = PROBLEM.model_copy(update={"id": "c", "tests": [], "test_code": module})
    said = "4 tests of 2 problems cannot be read as a call and the value that it equals: they are not run"
    assert guessed(golden("model=me/base"), [PROBLEM, other, third]) == [said]
    assert guessed(golden("model=me/base"), [PROBLEM]) == []
    assert guessed(load_recipe("tiny", ["model=me/base"]), [other]) == []


def test_gpus_that_were_shared_out_among_two_policies_are_one_s():
    assert load_recipe("1.5b").code.gpus == 4
    assert load_recipe("1.5b", ["method=golden-tests"]).code.gpus is None
    assert load_recipe("1.5b", ["method=golden-tests", "code.gpus=3"]).code.gpus == 3
    assert load_recipe("1.5b", ["method=code-a1"]).code.gpus == 4


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (
            "method=golden-tests eval.benchmarks=[humaneval,ult]",
            "eval.benchmarks: ult does not measure the Code LLM, which method=golden-tests trains",
            "humaneval, mbpp, bigcodebench can be measured",
        ),
        (
            "method=sft sft.role=test eval.benchmarks=[humaneval]",
            "humaneval does not measure the Test LLM, which method=sft with sft.role=test trains",
            "ult can be measured",
        ),
        (
            "method=golden-tests eval.best=heldout/exposed",
            "eval.best=heldout/exposed is no figure of this run: method=golden-tests trains the Code LLM, and measures "
            "heldout/pass@1, heldout/pass@8",
            "set eval.best=null",
        ),
        ("method=sft sft.role=test eval.best=heldout/pass@1", "and measures heldout/exposed, ", "set eval.best=null"),
        ("eval.best=heldout/near_miss/exposd", "no figure of this run", "did you mean heldout/near_miss/exposed?"),
        (
            "eval.best=heldout/pass@8 eval.n=4",
            "measures heldout/pass@1, heldout/pass@4, heldout/exposed",
            "did you mean",
        ),
        ("eval.best=heldout/pass@1 checkpoint.every=null", "checkpoint.every=null saves none", "set checkpoint.every"),
        (
            "data.train=null data.heldout=null data.source.name=mbpp data.source.val=0 eval.best=heldout/pass@1",
            "eval.best=heldout/pass@1 needs held-out problems: set data.heldout",
            "or eval.best=null",
        ),
        ("method=sft train.sharding=fsdp2", "under ddp alone", "data.heldout=null, and eval-code"),
        (
            "method=sft train.sharding=fsdp2 data.heldout=null eval.benchmarks=[mbpp]",
            "under ddp alone",
            "eval.benchmarks=[]",
        ),
    ],
)
def test_what_a_run_would_never_measure_is_refused(words, said, hint):
    with pytest.raises(UserError) as caught:
        load_recipe("tiny", words.split())
    assert said in caught.value.what
    assert hint in caught.value.hint


def test_what_a_run_measures_may_be_named():
    for words in (
        "method=golden-tests eval.best=heldout/pass@8 eval.benchmarks=[humaneval]",
        "method=sft sft.role=test eval.best=heldout/near_miss/exposed eval.benchmarks=[ult]",
        "method=self-play eval.best=heldout/soundly_exposed eval.benchmarks=[mbpp,ult]",
        "method=sft train.sharding=fsdp2 data.heldout=null",
    ):
        load_recipe("tiny", words.split())


def test_a_recorded_run_is_read_whatever_it_named_and_may_be_mended(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe_text(golden()).replace("best: null", "best: heldout/exposed"))
    assert load_recipe(str(file), of_run=True).eval.best == "heldout/exposed"
    assert resumed_recipe(file, ["train.max_steps=30"])[0].eval.best == "heldout/exposed"
    assert resumed_recipe(file, ["eval.best=null"])[0].eval.best is None
    with pytest.raises(UserError, match="heldout/kill_rate is no figure of this run"):
        resumed_recipe(file, ["eval.best=heldout/kill_rate"])


def test_sandbox_programs_never_see_an_expected_value(judge, monkeypatch):
    sent = []
    run = judge.sandbox.run
    monkeypatch.setattr(judge.sandbox, "run", lambda *rest: (sent.append(rest), run(*rest))[1])
    play(judge, PROBLEM, replies=REPLIES[:1])
    assert sent
    assert all("==" not in repr(rest) for rest in sent)
