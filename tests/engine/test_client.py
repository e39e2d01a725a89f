"""A rank's calls and the arena's answers agree: same names, same parameters."""

import inspect

import pytest

from codea1_cli.engine.arena import Arena
from codea1_cli.engine.client import ArenaClient
from codea1_cli.methods.base import CandidateView
from codea1_cli.problems.prompts import KnownNames

CALLS = [name for name, value in inspect.getmembers(ArenaClient, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_the_parameters_of_the_method_that_answers_it(name):
    asked = inspect.signature(getattr(ArenaClient, name)).parameters
    answered = inspect.signature(getattr(Arena, name)).parameters
    assert [(p.name, p.kind) for p in asked.values()] == [(p.name, p.kind) for p in answered.values()]
    assert inspect.iscoroutinefunction(getattr(Arena, name))


def test_calls_go_out_under_their_own_names():
    class Remote:
        def __getattr__(self, name):
            def remote(*arguments):
                sent.append(name)
                return name

            return type("Call", (), {"remote": staticmethod(remote)})

    sent: list[str] = []
    client = ArenaClient(Remote())
    client._wait = lambda answer: answer  # type: ignore[method-assign]
    for name in CALLS:
        count = len(inspect.signature(getattr(ArenaClient, name)).parameters) - 1
        getattr(client, name)(*[None] * count)
    assert sent == CALLS


def test_names_change_on_the_way_for_a_model_that_knows_one():
    class Remote:
        def __getattr__(self, name):
            return type("Call", (), {"remote": staticmethod(lambda *given: sent.append(given) or answers.get(name))})

    sent: list[tuple] = []
    code, own = "def total(xs):\n    return total(xs[1:])", "def solve(xs):\n    return solve(xs[1:])"
    answers = {"next_candidates": {"p": [CandidateView(code, True)]}, "preflight_programs": {"p": code}}
    client = ArenaClient(Remote(), KnownNames("solve"), {"p": "total"})
    client._wait = lambda answer: answer  # type: ignore[method-assign]
    client.post_candidates(1, {"p": [own]})
    client.post_suites(1, [("p", 0, ["assert solve([]) == 0"])])
    client.post_preflight("code[0]", "code", None, [("p", [own])])
    assert sent == [
        (1, {"p": [code]}),
        (1, [("p", 0, ["assert total([]) == 0"])]),
        ("code[0]", "code", None, [("p", [code])]),
    ]
    assert client.next_candidates(1, ["p"])(True) == {"p": [CandidateView(own, True)]}
    assert client.preflight_programs() == {"p": own}
