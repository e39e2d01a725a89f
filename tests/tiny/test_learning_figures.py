"""The learning benchmark's arithmetic: pairs by problem, honest intervals, and what counts as learnt."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "tiny_learning"))

import figures
import run as benchmark
from figures import Change


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(figures, "RESAMPLES", 400)


def write(run: Path, step: int, solved: list[int], kills: list[int]) -> None:
    folder = run / "evaluation"
    folder.mkdir(parents=True, exist_ok=True)
    code = [
        {"problem_id": f"p{i}", "passed": [j < count for j in range(8)], "unscored": 0}
        for i, count in enumerate(solved)
    ]
    test = [
        {"problem_id": f"p{i}", "valid": 3, "correct": 2, "kills": count, "validity": 0.5, "unscored": False}
        for i, count in enumerate(kills)
        for _ in range(2)
    ]
    (folder / f"step-{step:06d}-code.json").write_text(json.dumps(code))
    (folder / f"step-{step:06d}-test.json").write_text(json.dumps(test))


def test_figures_are_those_of_the_first_and_last_evaluation(tmp_path):
    write(tmp_path, 0, [0, 4, 8], [0, 0, 3])
    write(tmp_path, 5, [0, 0, 0], [0, 0, 0])
    write(tmp_path, 9, [4, 8, 8], [3, 0, 3])
    found = figures.changes(tmp_path, tests_per_suite=4)
    assert (found["pass@1"].before, found["pass@1"].after) == pytest.approx((50.0, 250 / 3))
    assert (found["pass@8"].before, found["pass@8"].after) == pytest.approx((200 / 3, 100.0))
    assert found["suite validity"].before == pytest.approx(50.0)
    assert found["valid asserts"].before == pytest.approx(75.0)
    assert (found["kill rate"].before, found["kill rate"].after) == pytest.approx((100 / 3, 200 / 3))
    assert (found["kills per valid assert"].before, found["stated rightly"].before) == pytest.approx((100 / 3, 200 / 3))


def test_the_interval_holds_the_gain_and_is_empty_for_a_constant_one():
    uneven = figures.change([(0, 1), (0, 0), (1, 1), (0, 1)] * 5, lambda values: sum(values) / len(values))
    assert uneven.gain == pytest.approx(50.0)
    assert uneven.low < 50.0 < uneven.high
    same = figures.change([(0.2, 0.4)] * 10, lambda values: sum(values) / len(values))
    assert (same.low, same.high) == pytest.approx((20.0, 20.0))


def test_evaluations_of_different_problems_are_refused(tmp_path):
    write(tmp_path, 0, [1, 2], [0, 0])
    write(tmp_path, 9, [1, 2, 3], [0, 0, 0])
    with pytest.raises(ValueError, match="same problems"):
        figures.changes(tmp_path, tests_per_suite=4)


def test_one_evaluation_alone_is_refused(tmp_path):
    write(tmp_path, 0, [1, 2], [0, 0])
    with pytest.raises(ValueError, match="before and after"):
        figures.changes(tmp_path, tests_per_suite=4)


@pytest.mark.parametrize(
    ("code", "validity", "kill", "learnt"),
    [
        (Change(40, 60, 10, 30), Change(70, 85, 5, 25), Change(40, 40, -5, 5), True),
        (Change(40, 60, 10, 30), Change(70, 72, 1, 3), Change(40, 55, 5, 25), True),
        (Change(40, 60, 10, 30), Change(70, 72, 1, 3), Change(40, 42, -5, 5), False),
        (Change(40, 50, 5, 15), Change(70, 85, 5, 25), Change(40, 55, 5, 25), False),
        (Change(70, 90, 10, 30), Change(70, 85, 5, 25), Change(40, 55, 5, 25), False),
        (Change(40, 60, -1, 41), Change(70, 85, 5, 25), Change(40, 55, 5, 25), False),
    ],
)
def test_learnt_needs_both_roles_and_a_weak_start(code, validity, kill, learnt):
    assert benchmark.has_learnt({"pass@1": code, "suite validity": validity, "kill rate": kill}) is learnt


def test_the_table_has_a_line_for_each_seed_and_one_for_the_mean(tmp_path):
    write(tmp_path, 0, [0, 4, 8], [0, 0, 3])
    write(tmp_path, 9, [4, 8, 8], [3, 0, 3])
    found = figures.changes(tmp_path, tests_per_suite=4)
    lines = benchmark.table({101: (found, 200.0), 102: (found, float("nan"))}).splitlines()
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1
    assert "| 101 |" in lines[2]
    assert "200" in lines[2]
    assert "nan" not in lines[3]
