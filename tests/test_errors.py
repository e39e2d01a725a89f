"""The name that was meant, and commands that a shell takes."""

import shlex

import pytest

from codea1_cli.errors import UserError, command, did_you_mean, left_out, near
from codea1_cli.evals.registry import names as benchmarks
from codea1_cli.recipe import ALIASES
from codea1_cli.recipe.files import all_keys


def test_suggestions_forgive_case_and_prefix() -> None:
    names = ["mbpp/1", "basic/double it:1", "thealgorithms/maths/volume:vol_cube"]
    assert near("Basic/Double it:1", names)[0] == "basic/double it:1"
    assert near("double it:1", names) == ["basic/double it:1"]
    assert near("volume:vol_cub", names) == ["thealgorithms/maths/volume:vol_cube"]
    assert did_you_mean("mbpp/l", names) == "did you mean mbpp/1?"
    assert did_you_mean("basic/duble it:1", names) == "did you mean 'basic/double it:1'?"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("humaneavl", "humaneval"), ("human-eval", "humaneval"), ("MBPP", "mbpp"), ("bigcodebnch", "bigcodebench")],
)
def test_a_slip_of_the_fingers_is_seen(typed: str, meant: str) -> None:
    assert near(typed, benchmarks()) == [meant]


@pytest.mark.parametrize("typed", ["livecodebench", "apps", "swebench", "x", "", "evalplus", "codecontests", "zzzzzz"])
def test_nothing_is_better_than_nonsense(typed: str) -> None:
    assert did_you_mean(typed, benchmarks()) is None


def test_an_alias_leads_to_keys_that_exist_and_is_none_itself() -> None:
    known = set(all_keys())
    assert {key for keys in ALIASES.values() for key in keys} <= known
    assert not known & set(ALIASES)


def test_commands_are_quoted_for_a_shell() -> None:
    words = ["mistakes", "list", "--run", "run é 1", "--runs", "/a b/it's"]
    assert shlex.split(command(*words)) == ["codea1", *words]


def test_what_is_left_out_is_a_line_a_reason_and_one_for_the_rest() -> None:
    found = {f"reason {n}": [f"p{n}/{i}" for i in range(n)] for n in range(1, 12)}
    lines = left_out(found)
    assert lines[0] == "left out 11 problems, reason 11: p11/0, p11/1, p11/2 and 8 more"
    assert lines[-1] == "left out 6 problems more, for 3 other reasons: p3/0, p3/1, p3/2 and 3 more"
    assert len(lines) == 9
    assert left_out({"too long": ["a"]}, "pair") == ["left out 1 pair, too long: a"]


def test_nobody_s_login_is_shown() -> None:
    fault = UserError(
        "https://me:a@hub.example/x is away, as ftp://you@there", hint="see http://me:p@w@host:1/a@b and a@b"
    )
    assert fault.what == "https://hub.example/x is away, as ftp://there"
    assert fault.hint == "see http://host:1/a@b and a@b"
    assert str(fault) == fault.what
    assert UserError("x").hint is None
