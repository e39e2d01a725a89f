"""Golden tests: what a candidate earns, on which tests, and what a recipe may set."""

import asyncio
import json
from dataclasses import replace

import pytest

from codea1_cli.errors import UserError
from codea1_cli.judging.judge import CandidateResult
from codea1_cli.judging.step_judge import StepJudge
from codea1_cli.methods.code_a1 import UNREAD
from codea1_cli.methods.registry import method_of
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.files import load_recipe, recipe_text
from codea1_cli.recipe.resources import heldout_problems, training_problems, unmeasured, unread_problems

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


def test_problems_without_tests_are_told_before_anything_starts():
    bare = PROBLEM.model_copy(update={"id": "bare", "tests": []})
    recipe = golden("model=me/base")
    assert unread_problems(recipe, [PROBLEM, bare]) == {"bare": "it has no tests of its own"}
    assert unread_problems(load_recipe("tiny", ["model=me/base"]), [bare]) == {}
    with pytest.raises(UserError, match="none of 1 problem has a test of its own that can be read") as caught:
        unread_problems(recipe, [bare])
    assert "write-tests --problems" in caught.value.hint


def test_gpus_that_were_shared_out_among_two_policies_are_one_s():
    assert load_recipe("1.5b").code.gpus == 4
    assert load_recipe("1.5b", ["method=golden-tests"]).code.gpus is None
    assert load_recipe("1.5b", ["method=golden-tests", "code.gpus=3"]).code.gpus == 3
    assert load_recipe("1.5b", ["method=code-a1"]).code.gpus == 4


def test_a_benchmark_of_the_other_policy_is_told():
    assert unmeasured(golden("eval.benchmarks=[humaneval, ult]")) == [
        "eval.benchmarks: ult measures a policy that golden-tests does not train"
    ]
    assert unmeasured(golden("eval.benchmarks=[humaneval]")) == []


def test_sandbox_programs_never_see_an_expected_value(judge, monkeypatch):
    sent = []
    run = judge.sandbox.run
    monkeypatch.setattr(judge.sandbox, "run", lambda *rest: (sent.append(rest), run(*rest))[1])
    play(judge, PROBLEM, replies=REPLIES[:1])
    assert sent
    assert all("==" not in repr(rest) for rest in sent)
