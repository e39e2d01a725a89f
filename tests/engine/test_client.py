"""A rank's calls and the arena's answers agree: same names, same parameters."""

import inspect

import pytest

from codea1_cli.engine.arena import Arena
from codea1_cli.engine.client import ArenaClient

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
