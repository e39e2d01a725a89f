"""The honest protocol's figures, each worked out on paper (see hand_made)."""

import pytest

from codea1_cli.evals.test_generation import Mutant
from codea1_cli.evals.test_generation.execution import MutantLimits, TestRunner
from codea1_cli.evals.test_generation.figures import FunctionScore
from codea1_cli.evals.test_generation.figures import one_shot_figures as figures
from codea1_cli.evals.test_generation.one_shot import CallRunner, score
from tests.evals.test_generation.hand_made import ADD, NEG, SIGN, function

SUITE = """```python
assert sign(5) == 1
assert sign(-3) == 1
assert sign(5) == 1
assert sign('a') == 1
```"""


def test_a_suite_with_one_of_each_kind(suite_judge, runner):
    row = score(suite_judge, runner, function(SIGN, "assert sign(-3) == 0"), SUITE, 4)
    assert (row.asserts, row.valid, row.right) == (4, 2, 1)
    assert row.validity == pytest.approx(0.25)  # min(2 / 4, 1 - 3 / 4)
    assert row.invalid == {"duplicate": 1, "raised": 1}
    assert (row.killed, row.killed_by_calls, row.mutants) == (6, 13, 16)
    assert (row.wrong, row.exposed) == (8, 8)  # sign(-3) exposes 10, of which 8 are kept; the suite asks it too
    assert (row.lines, row.all_lines, row.branches, row.all_branches) == (4, 4, 2, 2)


def test_a_suite_that_misses_wrong_candidates(suite_judge, runner):
    row = score(suite_judge, runner, function(SIGN, "assert sign(-3) == -1"), "assert sign(5) == 1", 4)
    assert (row.right, row.killed) == (1, 6)
    assert row.wrong == 8
    assert row.exposed <= 3  # of those that sign(-3) exposes, sign(5) exposes <, <= and the `not`


def test_no_tests_kill_nothing(suite_judge, runner):
    row = score(suite_judge, runner, function(NEG), "I cannot write tests.", 4)
    assert (row.asserts, row.valid, row.killed, row.mutants, row.validity) == (0, 0, 0, 4, 0.0)
    assert (row.lines, row.all_lines) == (1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "assert __import__('os')._exit(0) == 1",
        "assert sign(exit()) == 1",
        "assert sign(5) == sign(5)",
        "assert sign(5) is 1",
        "import builtins\nbuiltins.len = 3\nassert len([]) == 3",
        "while True: assert sign(5) == 1",
        "'" * 5000 + "assert sign(5) == 1",
        "assert sign(" + "(" * 3000,
    ],
)
def test_hostile_suites_earn_nothing(suite_judge, runner, text):
    row = score(suite_judge, runner, function(SIGN), text, 4)
    assert (row.right, row.killed, row.unscored) == (0, 0, False)


def test_only_the_first_k_count_for_mutants(suite_judge, runner):
    text = "assert add(1, 0) == 1\nassert add(2, 2) == 4"
    assert score(suite_judge, runner, function(ADD), text, 1).killed == 5
    assert score(suite_judge, runner, function(ADD), text, 2).killed == 10


def test_a_function_that_forgets_its_imports(suite_judge, runner):
    source = "def root(x: List[int]):\n    return math.sqrt(x[0])\n"
    row = score(suite_judge, runner, function(source), "assert root([4]) == 2.0", 4)
    assert (row.valid, row.right) == (1, 1)


def test_mutants_that_loop_crash_and_answer_oddly(suite_judge):
    expected = suite_judge.expected(ADD, "add", ["add(1, 2)", "add(0.1, 0.2)"])
    sources = [
        ADD,
        "def add(a, b):\n    while True: pass\n",
        "import os\ndef add(a, b):\n    os._exit(0)\n",
        "def add(a, b):\n    return lambda: 3\n",
        "def add(a, b):\n    return a + b + 1e-9\n",
        "seen = []\ndef add(a, b):\n    seen.append(1)\n    return a + b + len(seen) - 1\n",
        None,
    ]
    mutants = [Mutant("made", number, 1, source) for number, source in enumerate(sources)]
    found = CallRunner(suite_judge, ADD, expected).exposed(mutants, list(expected))
    assert found == [False, True, True, True, False, False, True]
    assert CallRunner(suite_judge, ADD, expected).exposed(mutants, []) == [False] * 7


def test_a_mutant_has_the_seconds_that_were_asked_for(suite_judge, runner, monkeypatch):
    asked, answers = set[float](), CallRunner._answers

    def noted(self, sources, calls, seconds):
        asked.add(seconds)
        return answers(self, sources, calls, seconds)

    monkeypatch.setattr(CallRunner, "_answers", noted)
    limited = TestRunner(runner.sandbox, runner.limits, MutantLimits(least_s=7.5, most_s=7.5))
    score(suite_judge, limited, function(NEG, "assert neg(1) == -1"), "assert neg(2) == -2", 1)
    assert asked == {suite_judge.limits.time_s, 7.5}


def test_figures():
    rows = [
        FunctionScore(
            "a",
            asserts=4,
            valid=4,
            right=2,
            validity=0.5,
            mutants=10,
            killed=5,
            killed_by_calls=8,
            wrong=4,
            exposed=3,
            lines=9,
            all_lines=10,
            branches=2,
            all_branches=4,
            invalid={"raised": 1},
        ),
        FunctionScore(
            "b",
            asserts=2,
            valid=0,
            right=0,
            validity=0.0,
            mutants=20,
            killed=0,
            killed_by_calls=0,
            wrong=0,
            exposed=0,
            lines=1,
            all_lines=10,
            branches=0,
            all_branches=0,
            invalid={"raised": 1, "syntax": 1},
        ),
        FunctionScore(
            "c",
            asserts=4,
            valid=2,
            right=2,
            validity=0.25,
            mutants=0,
            killed=0,
            killed_by_calls=0,
            wrong=2,
            exposed=2,
            lines=5,
            all_lines=5,
            branches=2,
            all_branches=2,
        ),
        FunctionScore("d", unscored=True),
    ]
    found = figures(rows, 4)
    assert (found["functions"], found["unscored"]) == (3, 1)
    assert found["validity"] == pytest.approx(25.0)
    assert found["valid_tests"] == pytest.approx(100 * (1 + 0 + 0.5) / 3)
    assert found["right_tests"] == pytest.approx(100 * (0.5 + 0 + 0.5) / 3)
    assert found["stated_correctly"] == pytest.approx(100 * 4 / 6)
    assert found["distinct_calls"] == pytest.approx(2.0)
    assert found["mutation"] == pytest.approx(25.0)  # c has no mutants
    assert found["mutation_by_calls"] == pytest.approx(40.0)
    assert (found["kill_rate"], found["kill_rate_functions"]) == (pytest.approx(87.5), 2)
    assert found["line_coverage"] == pytest.approx(60.0)
    assert found["branch_coverage"] == pytest.approx(100 * 4 / 6)
    assert found["invalid"] == {"raised": 2, "syntax": 1}
