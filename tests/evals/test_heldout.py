"""The held-out sets: what ranks see of them, and that what the sandbox could not judge is left out of a figure."""

from types import SimpleNamespace

import pytest

from codea1_cli.evals.heldout import HeldoutAttacking, HeldoutSolving, solve_figures
from codea1_cli.judging.step_judge import SolveResult, SuiteResult
from codea1_cli.problems.problem import Problem

PROBLEMS = [
    Problem(id=name, question="q", declaration="", entry_point="f", reference="the secret", tests=["assert f() == 1"])
    for name in ("a", "b")
]


class Judge:
    """Solves what says so; finds every suite valid, and deadly where it shouts."""

    workers = 2

    def solve_rate(self, problem, texts):
        assert problem.reference == "the secret"
        return SolveResult(problem.id, tuple(text == "right" for text in texts), ("wrong",), 0)

    def suite_on_wrong(self, problem, source, text):
        return SuiteResult(problem.id, 2, 2, 2, kills=int(text == f"kill {source}"), validity=1.0, unscored=False)


def test_solutions_are_judged_by_the_whole_problem_and_sampled_without_its_reference():
    done = []
    solving = HeldoutSolving(2, PROBLEMS, Judge(), lambda: done.append(1))
    assert [(item.id, item.reference, item.tests) for item in solving.load()] == [
        ("a", "# kept by the arena", []),
        ("b", "# kept by the arena", []),
    ]
    figures, rows = solving.score({"b": ["right", "no"], "a": ["right", "right"]})
    assert (figures["pass@1"], figures["pass@2"], len(done)) == (0.75, 1.0, 2)
    assert [(row["problem_id"], row["wrong"]) for row in rows] == [("b", ("wrong",)), ("a", ("wrong",))]


def test_each_wrong_program_of_a_problem_gets_a_suite_of_its_own():
    attacking = HeldoutAttacking(2, True, PROBLEMS, Judge())
    attacking.targets = [("a", "one"), ("a", "two"), ("b", "three")]
    items = attacking.load()
    assert [(item.id, item.problem.id, item.source) for item in items] == [
        ("0", "a", "one"),
        ("1", "a", "two"),
        ("2", "b", "three"),
    ]
    chats = []

    def apply(chat, tokenize=True, **_):
        if not tokenize:
            return "".join(message["content"] for message in chat)
        chats.append(chat[-1]["content"])
        return []

    tokenizer = SimpleNamespace(chat_template="takes every role", apply_chat_template=apply)
    attacking.prompts(tokenizer, items)
    assert ["two" in chat for chat in chats] == [False, True, False]
    assert not any("the secret" in chat for chat in chats)
    figures, rows = attacking.score({"0": ["kill one"], "2": ["kill one"], "1": ["kill two"]})
    assert figures["kill_rate"] == 2 / 3
    assert [row["problem_id"] for row in rows] == ["a", "b", "a"]


def row(*passed, unscored=0):
    return {"passed": passed, "unscored": unscored}


def test_unscored_solutions_are_counted_and_left_out():
    figures = solve_figures([row(True, False, False, False, unscored=2), row(True, True, True, True)])
    assert figures["pass@1"] == pytest.approx((1 / 2 + 1) / 2)
    assert figures["pass@4"] == 1.0, "two scored solutions say nothing about four"
    assert figures["unscored"] == 2


@pytest.mark.parametrize("rows", [[], [row(False, False, unscored=2)]])
def test_a_figure_over_nothing_is_none(rows):
    assert solve_figures(rows)["pass@1"] is None
