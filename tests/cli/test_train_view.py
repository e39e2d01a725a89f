"""What a run shows, and what it warns of."""

import re

import pytest

from codea1_cli.cli import console
from codea1_cli.cli.train_view import TrainView
from codea1_cli.recipe.files import load_recipe
from codea1_cli.recipe.resources import BUILTIN
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import RunOutcome


@pytest.fixture
def view(tmp_path):
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    run.create()
    with TrainView(load_recipe("tiny"), run, {"code": [None], "test": [None]}) as view:
        view.event({"kind": "length", "total": 10, "last": 10})
        yield view


def step(number, reward=0.5, **arena):
    figures = {
        "code_signal_share": 1.0,
        "valid_share": 0.9,
        "kill_share": None,
        "book_tests": 3,
        "unscored": 0,
        "short_share": 0.0,
        "repeated_share": 0.0,
        **arena,
    }
    return {
        "kind": "step",
        "line": {
            "step": number,
            "code": {"reward": reward},
            "test": {"reward": None},
            "arena": figures,
            "timing": {"step_s": 1.0},
        },
    }


SUITES = {
    "exposed": 0.26,
    "false_alarm": 1.0,
    "soundly_exposed": 0.11,
    "validity": 0.44,
    "stated_correctly": 0.5,
    "asserts": 3.44,
}


def whole_evaluation(number, solved):
    """As a run writes it."""
    parts = {
        "code": {"problems": 1, "n": 8, "pass@1": solved, "pass@8": 0.9},
        "test": SUITES,
        "near_miss": {"exposed": 0.21},
    }
    return {"step": number, "eval": {"set": "heldout", **parts}}


def evaluation(number, solved, problems=96):
    code = {"n": 8, "pass@1": solved, "pass@8": 0.9, "problems": problems}
    return {"kind": "eval", "line": {"step": number, "eval": {"code": code}}}


@pytest.mark.parametrize(("tail", "shown"), [(0.25, True), (0.1, False), (None, False)])
def test_a_judge_that_holds_the_step_is_shown(view, capsys, tail, shown):
    event = step(1)
    if tail is not None:
        event["line"]["timing"]["judge_tail_s"] = tail
    view.event(event)
    assert ("judge tail 0.2 s" in capsys.readouterr().err) == shown


def test_a_problem_that_leaves_is_named(view, capsys):
    view.event(step(1, leaving=["gcd"]))
    assert "gcd leaves the schedule" in capsys.readouterr().err
    view.event(step(2, leaving_flat=["gcd", "lcm"]))
    assert "out of the schedule, as all candidates earn the same (data.leave_flat): gcd, lcm" in capsys.readouterr().err


def test_a_line_a_step_without_a_terminal(view, capsys):
    view.event(step(1))
    view.event(step(2, unscored=4))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("step")] == ["1/10", "2/10"]
    assert "exposed n/a" in lines[-1]
    assert "unscored 4" in lines[-1]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("sign", ["short_share", "repeated_share"])
def test_degenerate_suites_are_told_once(view, capsys, sign):
    for number in (1, 2, 3):
        view.event(step(number, **{sign: 0.6}))
    assert capsys.readouterr().err.count("warning: more than half") == 1


@pytest.mark.parametrize(
    ("rewards", "solved", "warns"), [((0.2, 0.8), 0.3, True), ((0.8, 0.2), 0.3, False), ((0.2, 0.8), 0.5, False)]
)
def test_rewards_that_rise_while_held_out_problems_fall(view, capsys, rewards, solved, warns):
    view.event(evaluation(0, 0.5))
    for number, reward in enumerate(rewards, 1):
        view.event(step(number, reward=reward))
    view.event(evaluation(2, solved))
    assert ("held-out pass@1 fell" in capsys.readouterr().err) is warns


def test_rewards_are_what_is_told_where_too_few_problems_are_held_out(view, capsys):
    """One problem of eight samples falls by an eighth when one sample does."""
    steps = [step(number, reward=number / 10) for number in range(1, 7)]
    for event in (evaluation(0, 0.5, problems=2), *steps, evaluation(6, 0.3, problems=2)):
        view.event(event)
    for event in steps:
        view.run.append_metrics(event["line"])
    view.finish(RunOutcome(6, 10, 6, False, {}))
    told = capsys.readouterr().err
    assert "held-out pass@1 fell" not in told
    assert "code reward from 0.20 to 0.50 (means of the first and the last 3 steps)" in told


def test_an_evaluation_that_nothing_could_score_is_shown_as_such(view, capsys):
    view.event(evaluation(0, 0.5))
    view.event(step(1))
    view.event(evaluation(1, None))
    assert "held-out at step 1:  pass@1 n/a" in capsys.readouterr().err


def test_a_run_that_stops_early_counts_to_its_stop(view, capsys):
    view.run.path.mkdir(exist_ok=True)
    (view.run.path / "run.json").write_text('{"total_steps": 10}')
    view.event({"kind": "length", "total": 10, "last": 3})
    assert view.run.info() == {"total_steps": 10, "until": 3}
    view.event(step(1))
    view.event(step(2))
    out = capsys.readouterr().err
    assert "stops after step 3 of 10 (--max-steps)" in out
    assert "step 2/3" in out


@pytest.mark.parametrize(
    ("reached", "last", "interrupted", "word"),
    [(10, 10, False, "finished at step 10 of 10"), (3, 3, False, "stopped and saved at step 3 of 10"),
     (2, 3, True, "interrupted and saved at step 2 of 10")],
)  # fmt: skip
def test_the_closing_line_says_how_a_run_ended(view, capsys, reached, last, interrupted, word):
    view.finish(RunOutcome(reached, 10, last, interrupted, {}))
    out = capsys.readouterr().err
    assert word in out
    assert ("--resume" in out) == (reached < 10)


def test_a_test_llm_alone_has_its_closing_table_too(view, capsys):
    for number in (0, 10):
        view.run.append_metrics({"step": number, "eval": {"set": "heldout", "test": SUITES | {"suites": 12}}})
    view.finish(RunOutcome(10, 10, 10, False, {}))
    told = capsys.readouterr().err
    assert "12 held-out suites, step 0 and step 10" in told
    assert "Test LLM suite validity" in told
    assert "Code LLM" not in told


def test_what_suites_are_worth_is_shown_together(view, capsys):
    first, last = whole_evaluation(0, 0.44), whole_evaluation(10, 0.78)
    view.event({"kind": "eval", "line": last})
    told = capsys.readouterr().err
    assert told.splitlines()[-3:] == [
        "held-out at step 10:  pass@1 78.0%  pass@8 90.0%  validity 44.0%  asserts 3.4",
        "  exposed 26.0%  near-miss 21.0%  soundly 11.0%",
        "  false alarm 100.0%  stated rightly 50.0%",
    ]
    # A run begun by a version that had neither these figures nor the second set.
    first["eval"]["test"] = {"validity": 0.33, "kill_rate": 0.4}
    del first["eval"]["near_miss"]
    for line in (first, last):
        view.run.append_metrics(line)
    view.finish(RunOutcome(10, 10, 10, False, {}))
    table = capsys.readouterr().err
    plain = [re.sub("[|│]", " ", line).strip() for line in table.splitlines() if "LLM" in line]
    assert [re.split(r"\s{2,}", line) for line in plain] == [
        ["Code LLM pass@1", "44.0%", "78.0%"],
        ["Code LLM pass@8", "90.0%", "90.0%"],
        ["Test LLM wrong programs exposed", "n/a", "26.0%"],
        ["Test LLM near-miss programs exposed", "n/a", "21.0%"],
        ["Test LLM exposed without a false alarm", "n/a", "11.0%"],
        ["Test LLM suites that raise a false alarm", "n/a", "100.0%"],
        ["Test LLM suite validity", "33.0%", "44.0%"],
        ["Test LLM answers stated rightly", "n/a", "50.0%"],
        ["Test LLM asserts per suite", "n/a", "3.4"],
    ]
    shown = [line for line in (told + table).splitlines() if "LLM" in line or "held-out" in line or "exposed" in line]
    assert max(map(len, shown)) <= 80


def test_the_closing_table_of_a_run_on_own_functions_says_what_it_is_of(view, capsys):
    for line in (whole_evaluation(0, 0.44), whole_evaluation(10, 0.78)):
        view.run.append_metrics(line)
    for train, says in (
        ("builtin:tiny/train", "1 held-out problem, step 0"),
        ("mine.jsonl", f"of {BUILTIN}heldout, step 0"),
    ):
        data = view.recipe.data.model_copy(update={"train": train, "heldout": f"{BUILTIN}heldout"})
        view.recipe = view.recipe.model_copy(update={"data": data})
        view.finish(RunOutcome(10, 10, 10, False, {}))
        assert says in capsys.readouterr().err


AT_WORK = {"code[0]": ("waiting", 4, 90.0), "test[0]": ("sampling", 4, 95.0), "test[1]": ("updating", 3, 99.0)}


def test_the_live_line_says_what_each_side_does_and_how_far_the_step_is(view, capsys, monkeypatch):
    monkeypatch.setattr("codea1_cli.cli.train_view.time.time", lambda: 104.0)
    capsys.readouterr()
    assert view.__rich__().plain == "starting"
    view.event({"kind": "doing", "ranks": AT_WORK, "counts": {"attacked": (24, 96), "judged": (18, 96)}})
    whole = "step 4  code waiting 0:14  test 1 sampling and 1 updating step 3 0:05  24/96 attacked  18/96 judged"
    monkeypatch.setattr(type(console.err()), "width", property(lambda _: 200))
    assert view.__rich__().plain == whole
    monkeypatch.setattr(type(console.err()), "width", property(lambda _: 80))
    assert view.__rich__().plain == "step 4  code waiting 0:14  test 1 sampling and 1 updating step 3 0:05"
    view.phase("scoring benchmarks")
    view.event({"kind": "doing", "ranks": {"code[0]": ("waiting", 4, 90.0)}, "counts": {}})
    assert view.__rich__().plain == "scoring benchmarks"
    assert capsys.readouterr().err.splitlines() == ["scoring benchmarks (0 s)"]  # a pipe has no live line


def test_a_step_is_one_line_in_a_pipe_and_folds_on_a_terminal(view, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()
    view.event(step(1))
    assert len(capsys.readouterr().err.splitlines()) == 1
    monkeypatch.setattr(type(console.err()), "is_terminal", property(lambda _: True))
    monkeypatch.setattr(type(console.err()), "width", property(lambda _: 80))
    view.event(step(2))
    shown = capsys.readouterr().err.splitlines()
    assert max(map(len, shown)) <= 80
    assert [line.split("  ")[:2] for line in shown[1:]] == [["", "test reward n/a"], ["", "asserts n/a"]]
