"""Curves: what metrics.jsonl becomes, intervals, thinning, events, and a picture."""

import math

import numpy as np
import pytest

from codea1_cli.evals.statistics import levels
from codea1_cli.report.curves import PANELS, events, picture, tables, thinned, with_intervals
from codea1_cli.runs.summary import Measured


def step(number, **arena):
    timing = {"step_s": 10.0, "code_waiting_s": 4.0, "test_waiting_s": 12.0}
    return {"step": number, "time": 1.0, "code": {"reward": number / 10}, "test": {}, "arena": arena, "timing": timing}


def evaluation(number, solved):
    code = {"problems": 3, "n": 8, "pass@1": solved, "pass@8": 0.9}
    return {"step": number, "eval": {"set": "heldout", "code": code, "test": {"exposed": 0.1}}}


def test_every_number_has_its_table_and_waiting_is_an_idle_share():
    found = tables(
        [evaluation(0, 0.2), step(1, book_tests=3, leaving=[]), step(2), evaluation(2, 0.4), step(2, book_tests=5)]
    )
    steps, heldout = found["steps"], found["heldout"]
    assert steps["x"] == [1, 2]
    assert steps["y"]["code.reward"] == [0.1, 0.2]
    assert steps["y"]["arena.book_tests"] == [3, 5]  # a line that stands twice counts as it stands last
    assert steps["y"]["idle.code"] == [0.4, 0.4]
    assert steps["y"]["idle.test"] == [1.0, 1.0]
    assert "time" not in steps["y"]
    assert heldout["y"]["code.pass@n"] == [0.9, 0.9]
    assert set(PANELS[2].figures) <= set(heldout["y"])


@pytest.mark.parametrize(
    "line",
    [{}, {"step": None}, {"step": 1, "eval": 3}, {"step": 1, "arena": math.nan}, {"step": 2, "eval": {"set": []}}],
)
def test_a_line_of_another_shape_breaks_nothing(line):
    tables([line, step(3)])
    events([line, step(3)], {})


def test_thinned_curves_keep_their_extremes():
    table = tables([step(number, book_tests=100 if number == 7 else 1) for number in range(1, 1001)])["steps"]
    assert thinned(table, 1000) is table
    few = thinned(table, 300)
    assert len(few["x"]) <= 300
    assert few["bucket"] == 4
    assert few["x"][-1] == 1000
    assert max(few["high"]["arena.book_tests"]) == 100
    assert few["y"]["arena.book_tests"][1] == pytest.approx(103 / 4)


def test_intervals_are_of_the_rows_and_exact_where_all_agree():
    table = tables([evaluation(0, 0.5), evaluation(4, 1.0)])["heldout"]
    problems = frozenset("abcd")
    first = {"pass@1": {pid: (share, 1.0) for pid, share in zip("abcd", (0, 1, 0, 1), strict=True)}}
    last = {"pass@1": dict.fromkeys("abcd", (1.0, 1.0)), "exposed": {}}
    found = with_intervals(
        table, {0: Measured(problems, first), 4: Measured(problems, last), 9: Measured(problems, last)}
    )
    low, high = found["low"]["code.pass@1"], found["high"]["code.pass@1"]
    assert low[0] < 0.5 < high[0]
    assert (round(low[1], 2), high[1]) == (0.4, 1.0)
    assert found["low"]["test.exposed"] == [None, None]
    early = tables([{"step": 0, "eval": {"set": "heldout", "code": {"n": 4}}}])["heldout"]
    assert with_intervals(early, {0: Measured(problems, first)})["y"]["code.pass@1"] == [0.5]  # what it left out
    assert levels(np.array([[[1.0, 2.0], [0.0, 2.0]]]))[0] == (0.0, 0.5)


def test_what_happened_is_told_in_order_and_once():
    lines = [
        step(1, short_share=0.9, sandbox_failures={"timeout": 2}),
        step(2, short_share=0.9, sandbox_failures={"timeout": 2}, unscored=3),
        step(3, sandbox_failures={"timeout": 5}, leaving=["p"]),
    ]
    info = {
        "error": "test[0] died",
        "resumed": [{"step": 1, "changed": {"train.max_steps": [3, 9]}}, {"step": 2, "changed": {}}],
    }
    told = [(one["step"], one["kind"], one["text"]) for one in events(lines, info)]
    assert told == [
        (1, "resumed", "resumed after step 1 with train.max_steps 3 -> 9"),
        (1, "warning", "sandbox failures: 2 timeout"),
        (1, "warning", "more than half of the suites have fewer asserts than asked"),
        (2, "resumed", "resumed after step 2"),
        (2, "warning", "unscored: 3"),
        (3, "warning", "sandbox failures: 3 timeout"),
        (3, "warning", "p leaves the schedule: its reference runs out of time"),
        (3, "fault", "test[0] died"),
    ]


def test_a_picture_has_the_panels_that_have_figures():
    text = picture("a run", tables([evaluation(0, 0.2), step(1), step(2), evaluation(2, 0.4)]), "svg").decode()
    assert ">Held-out: problems solved (%)<" in text
    assert "Entropy" not in text
