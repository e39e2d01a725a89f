"""`codea1 mistakes`: what is shown, suggested, exported, and replayed."""

import datetime
import json
from collections import Counter, OrderedDict, deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codea1_cli.cli import app, mistakes
from codea1_cli.cli.views import show_problem
from codea1_cli.judging.compare import same
from codea1_cli.mistakes.export import pytest_file, text_source, value_source
from codea1_cli.mistakes.inspect import ProblemView, possible_lines, sparkline
from codea1_cli.mistakes.replay import traced_line
from codea1_cli.recipe.files import load_recipe, recipe_text
from codea1_cli.recipe.resources import judge_of
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.rollout_files import call_of
from tests.cli.fake_run import LETTERS, PROBLEMS, WRONG_DOUBLE, age, make_run, run_pytest

DOUBLE = "basic/double it:1"


def test_list_ranks_problems_by_their_mistakes(run, call):
    data = call(mistakes.app, "list", "--json").data
    assert data["run"] == "first"
    assert data["problems"] == [
        {"problem_id": DOUBLE, "tests": 2, "mistakes": 4, "last_step": 3, "worst": "assert double(3) == 6"},
        {
            "problem_id": "basic/letters",
            "tests": 2,
            "mistakes": 3,
            "last_step": 2,
            "worst": "assert letters('') == set()",
        },
        {"problem_id": "basic/ratio", "tests": 3, "mistakes": 3, "last_step": 3, "worst": "assert ratio(1, 0) == nan"},
    ]
    table = call(mistakes.app, "list", "--limit", "1")
    assert DOUBLE in table.out
    assert "basic/letters" not in table.out
    assert "2 problems more" in table.err


def test_inspect_gives_counts_steps_verdicts_trend_and_retired_tests(run, call):
    data = call(mistakes.app, "inspect", DOUBLE, "--json").data
    assert data["question"] == "Return twice the number."
    first, second = data["live"]
    assert (first["test"], first["count"], first["first_step"], first["last_step"]) == (
        "assert double(3) == 6",
        3,
        1,
        3,
    )
    # The rollout file names the test by its call alone: it is the same test.
    assert {
        key: first["latest"][key] for key in ("step", "candidate_index", "verdict", "expected", "failing", "candidates")
    } == {
        "step": 3,
        "candidate_index": 1,
        "verdict": "raised",
        "expected": "6",
        "failing": 1,
        "candidates": 3,
    }
    assert first["latest"]["got"].startswith("ZeroDivisionError")
    assert (second["test"], second["count"]) == ("assert double(-1) == -2", 1)
    assert (second["latest"]["step"], second["latest"]["got"], second["latest"]["code"]) == (1, "-1", WRONG_DOUBLE)
    assert (data["failing"]["step"], data["failing"]["candidate_index"], data["failing"]["lines"]) == (3, 1, [2])
    assert data["trend"] == [
        {"step": 1, "tests": 3, "mistakes": 4},
        {"step": 2, "tests": 2, "mistakes": 3},
        {"step": 3, "tests": 2, "mistakes": 4},
    ]
    assert data["retired"] == [{"test": "assert double(0) == 0", "peak": 1, "first_step": 1, "last_step": 2}]
    assert data["replay"] is None


def test_inspect_shows_it_all_to_people(run, call):
    shown = call(mistakes.app, "inspect", DOUBLE).out
    for part in (
        "Return twice the number.",
        "assert double(3) == 6",
        "raised",
        "1/3",
        "❱ 2     return 1 / 0",
        "retired tests: 1",
    ):
        assert part in shown
    assert "█▆█" in shown


def test_a_run_without_rollout_files_still_shows_the_failing_source(run, call):
    for file in (run.path / "rollouts").iterdir():
        file.unlink()
    data = call(mistakes.app, "inspect", DOUBLE, "--json").data
    assert [test["latest"] for test in data["live"]] == [None, None]
    assert (data["failing"]["code"], data["failing"]["test"]) == (WRONG_DOUBLE, "assert double(3) == 6")
    assert call(mistakes.app, "inspect", DOUBLE).code == 0


def test_a_problem_without_mistakes_is_no_error(run, call):
    data = call(mistakes.app, "inspect", "never/seen", "--json").data
    assert (data["live"], data["failing"], data["trend"], data["retired"]) == ([], None, [], [])
    assert "no live tests" in call(mistakes.app, "inspect", "never/seen").out


@pytest.mark.parametrize("words", [("inspect", "basic/double it:2"), ("export", "--problem", "Double it:1")])
def test_unknown_ids_suggest_near_ones(run, call, words):
    done = call(mistakes.app, *words)
    assert done.code == 2
    assert "did you mean 'basic/double it:1'" in done.err
    assert done.out == ""


def test_no_run_and_unknown_run_are_usage_errors(run, call, tmp_path):
    assert call(mistakes.app, "list", "--runs", tmp_path / "empty").code == 2
    done = call(mistakes.app, "list", "--run", "frist")
    assert done.code == 2
    assert "did you mean first" in done.err


def test_the_newest_run_is_the_default_and_data_may_be_gone(run, call):
    make_run(run.path.parent, "second")
    assert call(mistakes.app, "list", "--json").data["run"] == "second"
    (run.path.parent / "problems.jsonl").unlink()
    done = call(mistakes.app, "inspect", DOUBLE, "--run", "first", "--json")
    assert done.code == 0
    assert done.data["question"] == ""
    assert "cannot be read" in done.err


def test_a_newer_run_that_never_came_to_its_first_step_hides_no_book(run, call):
    early = make_run(run.path.parent, "early", steps=0)  # its book is there all the same
    age(run, 60)
    done = call(mistakes.app, "list", "--json")
    assert done.data["run"] == "first"
    assert "early has no book yet" in done.err
    early.mistakes_file.unlink()
    assert call(mistakes.app, "list", "--json").data["run"] == "first"
    named = call(mistakes.app, "list", "--run", "early")
    assert named.code == 2
    assert "hint: the newest run with one: --run first" in named.err
    assert "it has not come to its first step" in named.err
    gone = make_run(run.path.parent, "gone", steps=1)
    gone.mistakes_file.unlink()
    assert "mistakes.sqlite is gone" in call(mistakes.app, "list", "--run", "gone").err
    gone.recipe_file.write_text(recipe_text(load_recipe("tiny", ["method=sft"])))
    assert "it learns from pairs" in call(mistakes.app, "list", "--run", "gone").err


@pytest.mark.parametrize(
    "words",
    [
        ("mistakes", "list"), ("mistakes", "inspect", "basic/add:1"), ("mistakes", "export"), ("runs", "show"),
        ("runs", "watch"), ("runs", "prune", "--dry-run"), ("runs", "track"), ("export", "--role", "code", "--to", "x"),
    ],
)  # fmt: skip
def test_a_run_is_named_with_or_without_its_option(run, call, words):
    plain, option = call(app, *words, "nosuch"), call(app, *words, "--run", "nosuch")
    assert plain == option
    assert (plain.code, "no run named 'nosuch'" in plain.err) == (2, True)
    both = call(app, *words, run.name, "--run", "nosuch")
    assert (both.code, f"two runs are named, {run.name} and --run nosuch" in both.err) == (2, True)


@pytest.mark.parametrize("words", [("compare",), ("report", "--out", "x.html"), ("runs", "export", "--csv")])
def test_runs_side_by_side_stand_without_an_option(run, call, words):
    done = call(app, *words, "--run", run.name)
    command = "runs export" if words[0] == "runs" else words[0]
    assert (done.code, f"without --run: codea1 {command} RUN" in done.err) == (2, True)


def test_jsonl_export_has_a_line_a_live_test(run, call, tmp_path):
    to = tmp_path / "book.jsonl"
    done = call(mistakes.app, "export", "--to", to, "--json")
    assert done.data == {"run": "first", "file": str(to), "format": "jsonl", "tests": 7, "skipped": []}
    rows = [json.loads(line) for line in to.read_text().splitlines()]
    assert len(rows) == 7
    assert {
        "problem_id": DOUBLE,
        "entry_point": "double",
        "test": "assert double(3) == 6",
        "call": "double(3)",
        "count": 3,
        "first_step": 1,
        "last_step": 3,
    } in rows
    assert call(mistakes.app, "export").out == to.read_text()
    assert [
        json.loads(line)["test"] for line in call(mistakes.app, "export", "--problem", "basic/letters").out.splitlines()
    ] == list(LETTERS)
    refused = call(mistakes.app, "export", "--to", to)
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert call(mistakes.app, "export", "--to", to, "--force").code == 0
    assert call(mistakes.app, "export", "--json").code == 2


def test_pytest_export_passes_on_the_reference_and_fails_on_wrong_code(run, call, tmp_path):
    to = tmp_path / "test_book.py"
    done = call(mistakes.app, "export", "--to", to, "--json")
    assert done.code == 0
    assert (done.data["format"], done.data["tests"]) == ("pytest", 6)
    (skipped,) = done.data["skipped"]  # its call raises on the reference: nothing to expect
    assert skipped["test"] == "assert ratio(1, 'x') == 0"
    passed = run_pytest(to)
    assert passed.returncode == 0, passed.stdout
    assert "6 passed" in passed.stdout
    assert "import codea1" not in to.read_text()
    to.write_text(to.read_text().replace(text_source(PROBLEMS[0].reference), text_source(WRONG_DOUBLE)))
    failed = run_pytest(to)
    assert "2 failed, 4 passed" in failed.stdout


def test_replay_judges_the_failing_candidates_again(run, call):
    data = call(mistakes.app, "inspect", DOUBLE, "--replay", "--json").data
    assert [(row["test"], row["before"], row["verdict"], row["expected"]) for row in data["replay"]] == [
        ("assert double(3) == 6", "raised", "raised", "6"),
        ("assert double(-1) == -2", "failed", "failed", "-2"),
    ]
    assert data["replay"][1]["got"] == "-1"
    assert [row["line"] for row in data["replay"]] == [2, 3]
    assert "replayed now" in call(mistakes.app, "inspect", DOUBLE, "--replay").out


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes(timezones=st.just(datetime.UTC))
    | st.timedeltas(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner)
        | st.sets(st.integers() | st.text())
        | st.frozensets(st.integers())
        | st.lists(inner).map(deque)
        | st.dictionaries(st.text(), st.integers()).map(Counter)
        | st.dictionaries(st.text(), inner).map(OrderedDict)
    ),
    max_leaves=6,
)


NAMES: dict = {}
exec(pytest_file("a run", 1, {}, {}, 1e-6), NAMES)


@given(values)
def test_a_value_s_source_builds_that_value_in_the_exported_file(value):
    built = eval(value_source(value), NAMES)
    assert type(built) is type(value)
    assert NAMES["same"](built, value)
    assert same(built, value)


@given(values, values)
@example(Counter(), Counter({"": 0}))
def test_the_exported_comparison_agrees_with_the_judge(one, other):
    assert NAMES["same"](one, other) == same(one, other)


def test_integers_too_long_for_repr_have_a_source():
    assert eval(value_source(-(10**6000))) == -(10**6000)
    with pytest.raises(TypeError, match="object"):
        value_source(object())


@given(st.text())
def test_a_text_s_source_is_that_text(text):
    assert eval(text_source(text)) == text


@given(st.text(max_size=40))
def test_any_text_has_a_call(text):
    assert isinstance(call_of(text), str)
    assert call_of(f"assert f({text!r}) == 1") == f"f({text!r})"


BRANCHES = """import os

def f(x):
    def g():
        return 7
    if x > 3:
        return x
    return [g() for _ in range(x)]

def h():
    return 1"""


@pytest.mark.parametrize(
    ("verdict", "detail", "lines"),
    [
        ("raised", "ValueError: bad (line 3)", [3]),
        ("raised", "ValueError: bad", []),
        ("raised", "ValueError at line 99", []),
        ("load_error", "SyntaxError: invalid syntax (<candidate>, line 4)", [4]),
        ("failed", "5", [7, 8]),
        ("timeout", "", []),
    ],
)
def test_where_a_candidate_may_have_failed(verdict, detail, lines):
    assert possible_lines(BRANCHES, "f", verdict, detail) == lines


TRACED = """def f(n):
    if n == 0:
        return 0
    if n > 100:
        return helper(n)
    return f(n - 1) + 1

def helper(n):
    x = n
    return x // 0"""


@pytest.mark.parametrize(
    ("test", "line"), [("assert f(0) == 1", 3), ("assert f(2) == 9", 6), ("f(101)", 10), ("assert f('a') == 1", 4)]
)
def test_the_line_is_found_by_running_it(test, line):
    with judge_of(Recipe(model="builtin:tiny")) as judge:
        assert traced_line(judge, TRACED, "f", test) == line


def test_sparklines_scale_to_their_maximum():
    assert sparkline([0, 4, 8]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(100)), width=60)) == 60


def test_a_run_that_keeps_no_book_says_so(capfd):
    show_problem(ProblemView("p", "", "f", [], None, [], [], []), None, 5, kept=False)
    assert "no live tests: the run keeps no Mistake Book" in capfd.readouterr().out
