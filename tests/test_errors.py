"""The name that was meant, and commands that a shell takes."""

import re
import shlex
from pathlib import Path

import pytest

import codea1_cli
from codea1_cli.errors import UserError, command, counted, did_you_mean, left_out, near
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


def test_one_of_a_thing_is_no_plural() -> None:
    assert [counted(n, "step") for n in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert counted(1, "reply", "replies") == "1 reply"
    assert counted(3, "reply", "replies") == "3 replies"


_THINGS = (
    "(?:answer|assert|candidate|checkpoint|core|evaluation|file|function|GPU|job|line|mutant|node|pair|problem|program"
)
_THINGS += "|prompt|rank|row|run|sample|solution|step|suite|task|test|warning)s|entries|replies"
_COUNT = re.compile(rf"\{{(?P<number>[^{{}}:]+)\}} (?:{_THINGS})\b")
_MORE_THAN_ONE = ("k", "SUITES", "max(counts)", "ranks", "self.others", "len(missing)")
_AS_EVER = ("count",)  # what the Test LLM is asked
_NO_NUMBER = ("policy", "role", "address", "self.user")


def test_no_message_counts_without_the_helper() -> None:
    """A number beside a plural comes out as `1 steps` one day; `counted` knows both forms."""
    found = [
        f"{file.name}: {hit[0]}"
        for file in sorted(Path(codea1_cli.__file__).parent.rglob("*.py"))
        for hit in _COUNT.finditer(file.read_text(encoding="utf-8"))
        if hit["number"] not in (*_MORE_THAN_ONE, *_AS_EVER, *_NO_NUMBER) and "join(" not in hit[0]
    ]
    assert found == []
