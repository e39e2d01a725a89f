"""A failure of the sandbox is no verdict: the row is unscored, left out of every figure, and tried again."""

import json

from codea1_cli.evals.test_generation import one_shot
from codea1_cli.evals.test_generation.evaluation import Scorer, score_all, score_published
from codea1_cli.evals.test_generation.execution import TestRunner
from codea1_cli.evals.test_generation.figures import PUBLISHED, Scoring
from codea1_cli.evals.test_generation.sampling import suite_of_text
from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import ProgramRun
from codea1_cli.sandbox.verdicts import Answer, AnswerKind
from tests.evals.test_generation.hand_made import ADD, NEG, QUICK, SIGN, function

SUITE = "assert add(2, 2) == 4"


class Failing:
    """Passes on to a sandbox but for the runs whose numbers are given."""

    def __init__(self, sandbox, failing=()):
        self.sandbox, self.failing, self.runs = sandbox, set(failing), 0

    def run(self, program, entry_point, calls, limits, hash_seed=0):
        self.runs += 1
        if self.runs in self.failing:
            return ProgramRun(None, "gone", [Answer(AnswerKind.UNSCORED, detail="gone") for _ in calls])
        return self.sandbox.run(program, entry_point, calls, limits, hash_seed)

    def close(self):
        pass


def test_each_run_of_the_sandbox_may_fail(box):
    whole = Failing(box)
    good = score_published(TestRunner(whole, QUICK), function(ADD), [SUITE], 1)
    assert (good.unscored, good.killed) == (False, 9)
    for number in range(1, whole.runs + 1):
        row = score_published(TestRunner(Failing(box, [number]), QUICK), function(ADD), [SUITE], 1)
        assert row.unscored or row == good, number


def test_each_run_of_the_judge_may_fail(box):
    def once(failing):
        sandbox = Failing(box, failing)
        row = one_shot.score(Judge(sandbox, limits=QUICK), TestRunner(sandbox, QUICK), function(ADD, SUITE), SUITE, 4)
        return sandbox.runs, row

    runs, good = once([])
    assert (good.unscored, good.killed, good.lines) == (False, 9, 2)
    for number in range(1, runs + 1):
        row = once([number])[1]
        assert row.unscored or row == good, number


def test_unscored_rows_are_tried_again(box, tmp_path):
    functions = [function(ADD), function(NEG), function(SIGN)]
    suites = {"add": suite_of_text("add", SUITE)}
    file = tmp_path / "rows.jsonl"
    scorer = Scorer(Failing(box, [1]), Scoring(k=1))
    rows = score_all(scorer, PUBLISHED, functions, suites, file, workers=1)
    assert [row.unscored for row in rows] == [True, False, False]
    again = score_all(Scorer(box, Scoring(k=1)), PUBLISHED, functions, suites, file, workers=2)
    assert [row.unscored for row in again] == [False, False, False]
    assert [json.loads(line)["row"]["id"] for line in file.read_text().splitlines()] == ["add", "neg", "sign"]


def test_a_function_is_not_said_to_fail_when_the_sandbox_does(box):
    assert Scorer(Failing(box, [1]), Scoring()).faults([function(ADD), function("def f(:\n")], 1).keys() == {"f"}
