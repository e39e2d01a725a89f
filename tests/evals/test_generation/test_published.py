"""The published protocol's figures, each worked out on paper (see hand_made), and the paper's own Mul."""

import pytest

from codea1_cli.evals.test_generation.evaluation import score_published as score
from codea1_cli.evals.test_generation.figures import PUBLISHED, FunctionScore, mul, values
from codea1_cli.evals.test_generation.figures import published_figures as figures
from tests.evals.test_generation.hand_made import ADD, NEG, SIGN, function

ROWS = {  # pass@5, mut@5, Mul of the paper's Test LLMs: base, SFT, self-play, Code-A1 at 1.5B, 3B, 7B
    "1.5B": [(16.29, 22.30, 3.63), (14.76, 29.45, 4.35), (23.39, 28.91, 6.76), (27.05, 26.41, 7.14)],
    "3B": [(20.93, 42.55, 8.91), (23.51, 36.29, 8.53), (29.64, 50.92, 15.09), (30.86, 49.56, 15.29)],
    "7B": [(28.73, 51.25, 14.72), (28.72, 50.85, 14.60), (35.13, 55.57, 19.52), (37.15, 53.14, 19.74)],
}


@pytest.mark.parametrize("size", ROWS)
def test_the_papers_mul_from_its_own_figures(size):
    for pass_at_5, mut_at_5, stated in ROWS[size]:
        assert mul(pass_at_5, mut_at_5) == pytest.approx(stated, abs=0.0051)  # stated to two digits


@pytest.fixture(scope="module")
def rows(runner):
    return [
        score(runner, function(ADD), ["assert add(2, 2) == 4", "assert add(1, 0) == 1"], 2),
        score(runner, function(SIGN), ["assert sign(5) == 1", "assert sign(-3) == 1"], 2),
        score(runner, function(NEG), [None], 2),
    ]


def test_counts_of_each_function(rows):
    add, sign, neg = rows
    assert add.outcomes == ["passed", "passed"]
    assert (add.killed, add.mutants) == (10, 11)  # `**` survives both
    assert (add.lines, add.all_lines, add.branches, add.all_branches) == (2, 2, 0, 0)
    assert sign.outcomes == ["passed", "failed"]
    assert (sign.killed, sign.mutants) == (6, 16)  # by the passing test alone
    assert (sign.lines, sign.all_lines, sign.branches, sign.all_branches) == (4, 4, 2, 2)  # the failing one covers too
    assert neg.outcomes == ["no_test", "no_test"]
    assert (neg.killed, neg.mutants, neg.lines, neg.all_lines) == (0, 4, 1, 2)


def test_figures(rows):
    found = figures(rows, 2, {"add", "sign", "neg"})
    assert found["functions"] == 3
    assert found["pass@1"] == pytest.approx(100 * 2 / 3)
    assert found["pass@2"] == pytest.approx(100 * 3 / 6)
    assert found["line_coverage"] == pytest.approx(100 * 7 / 8)
    assert found["branch_coverage"] == 100
    assert found["mut@2_functions"] == 1
    assert found["mut@2"] == pytest.approx(100 * 10 / 11)
    assert found["mul"] == pytest.approx(50 * (100 * 10 / 11) / 100)
    assert found["mutation_unconditional"] == pytest.approx(100 * (10 / 11 + 6 / 16 + 0) / 3)
    assert found["outcomes"]["no_test"] == 2


def test_an_empty_conditional_set_is_no_zero(rows):
    found = figures(rows, 2, {"sign", "neg"})
    assert found["sample"] == 2
    assert found["mut@2_functions"] == 0
    assert found["mut@2"] is None
    assert found["mul"] is None
    assert found["mut@2_all_functions"] == 1
    assert found["mut@2_all"] == pytest.approx(100 * 10 / 11)


def test_figures_of_bare_counts():
    rows = [
        FunctionScore("a", ["passed"] * 5, lines=10, all_lines=10, branches=4, all_branches=4, mutants=20, killed=15),
        FunctionScore("b", ["passed"] * 5, lines=5, all_lines=10, branches=1, all_branches=4, mutants=10, killed=10),
        FunctionScore("c", ["passed"] * 5, lines=1, all_lines=1, branches=0, all_branches=0, mutants=0, killed=0),
        FunctionScore(
            "d",
            ["failed", "passed", "passed", "timeout", "crashed"],
            lines=4,
            all_lines=9,
            branches=1,
            all_branches=2,
            mutants=10,
            killed=5,
        ),
        FunctionScore("e", ["unscored"] * 5, unscored=True),
    ]
    found = figures(rows, 5, {"a", "c", "d", "e"})
    assert (found["functions"], found["unscored"]) == (4, 1)
    assert (found["pass@1"], found["pass@2"], found["pass@5"]) == (75.0, 87.5, 85.0)
    assert found["line_coverage"] == pytest.approx(100 * 20 / 30)
    assert found["branch_coverage"] == pytest.approx(100 * 6 / 10)
    assert found["mut@5"] == pytest.approx((75 + 100) / 2)  # a, and c where no mutant survives
    assert found["mut@5_all"] == pytest.approx((75 + 100 + 100) / 3)
    assert found["mul"] == pytest.approx(85 * 87.5 / 100)
    assert found["mutation_unconditional"] == pytest.approx(100 * (0.75 + 1 + 0.5) / 3)


def test_nothing_scored_gives_no_figures():
    found = figures([], 5, set())
    assert found["pass@5"] is None
    assert found["mul"] is None
    assert found["mutation_unconditional"] is None


def test_missing_tests_count_as_failing(runner):
    row = score(runner, function(ADD), ["assert add(2, 2) == 4"], 5)
    assert row.outcomes == ["passed", "no_test", "no_test", "no_test", "no_test"]
    assert not row.all_pass
    assert row.killed == 9


def test_one_functions_shares():
    row = {"outcomes": ["passed", "failed"], "lines": 1, "all_lines": 4, "branches": 0, "all_branches": 0}
    assert values(PUBLISHED, {**row, "killed": 1, "mutants": 2}, 8) == {
        "pass": 0.5,
        "all pass": 0.0,
        "line coverage": 0.25,
        "branch coverage": None,
        "mutation, unconditional": 0.5,
    }


def test_hostile_rounds_leave_the_others_alone(runner):
    tests = ["assert __import__('os')._exit(0)", "assert sign(5) == 1", "while 1: pass\nassert 1", "assert exit(0)"]
    row = score(runner, function(SIGN), tests, 4)
    assert row.outcomes == ["crashed", "passed", "timeout", "failed"]
    assert row.killed == 6
