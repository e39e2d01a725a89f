import asyncio

import pytest

from codea1_cli.engine.preflight import PreflightCounts, PreflightGate, findings, problem_choice
from codea1_cli.errors import UserError
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.files import load_recipe
from codea1_cli.runs.run_dir import RunDir

GOOD = PreflightCounts(replies=8, clipped=4, usable=1, prompts=4, too_long=2, longest_prompt=99)


def said(code=GOOD, test=GOOD, *overrides):
    return findings(load_recipe("tiny", overrides), {"code": code, "test": test})


def test_half_is_not_more_than_half():
    assert said() == []


@pytest.mark.parametrize("role", ["code", "test"])
def test_clipped_replies_name_the_key(role):
    bad = {role: PreflightCounts(replies=8, clipped=5, usable=3, prompts=4)}
    (found,) = said(**bad)
    assert f"5 of 8 {role} replies do not end within {role}.max_completion_tokens" in found.what
    assert f"raise {role}.max_completion_tokens" in found.advice


def test_prompts_that_are_too_long_name_the_length():
    (found,) = said(test=PreflightCounts(replies=2, usable=2, prompts=4, too_long=3, longest_prompt=777))
    assert "3 of 4 test prompts exceed test.max_prompt_tokens=384" in found.what
    assert "777" in found.advice


def test_no_suite_parses():
    (found,) = said(test=PreflightCounts(replies=8, usable=0, prompts=4))
    assert found.what.startswith("no suite parses: none of 8 replies")


def test_several_reasons_come_together():
    assert len(said(PreflightCounts(replies=1, clipped=1), PreflightCounts(replies=1, clipped=1))) == 3


@pytest.mark.parametrize(("ids", "count", "ranks"), [(100, 4, 1), (100, 4, 3), (2, 4, 4), (1, 1, 2), (5, 4, 2)])
def test_every_rank_gets_a_problem_and_none_is_left_out(ids, count, ranks):
    names = [f"p{i}" for i in range(ids)]
    shares = [problem_choice(names, count, rank, ranks) for rank in range(ranks)]
    assert all(shares)
    together = [name for share in shares for name in share]
    assert len(set(together)) == min(count, ids)
    assert set(together) == set(problem_choice(names, count, 0, 1))


@pytest.mark.parametrize("suite", ["assert f(1) == 1", "nothing of the kind"])
def test_one_rank_that_plays_both_roles_posts_both_before_the_verdict(tmp_path, suite):
    """Its own programs are handed back to it in between."""
    problem = Problem(id="p", question="q", declaration="def f(n):", entry_point="f", reference="hidden")
    seen = PreflightCounts(replies=1, prompts=1)

    async def play():
        gate = PreflightGate(load_recipe("tiny", ["method=self-play"]), RunDir(tmp_path), ["code[0]"], {"p": problem})
        gate.post("code[0]", "code", seen, [("p", ["def f(n):\n    return n"])])
        assert await gate.programs() == {"p": "def f(n):\n    return n"}
        gate.post("code[0]", "test", seen, [("p", [suite])])
        await gate.verdict()

    if suite.startswith("assert"):
        asyncio.run(play())
        return
    with pytest.raises(UserError, match="no suite parses: none of 1 reply "):
        asyncio.run(play())
