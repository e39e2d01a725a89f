"""The grader of a problem's own tests: shares, one verdict per test, and what cannot be graded."""

import pytest

from codea1_cli.judging.judge import Grade, Judge, grade_on_tests, own_calls
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import Expected, Verdict

RIGHT = "def double(n):\n    return 2 * n\n"
SQUARE = "def double(n):\n    return n ** 2\n"
TESTS = ["assert double(2) == 4", "assert double(3) == 6", "assert double(2) == 4", "print(1)"]
DOUBLE = Problem(
    id="double", question="q", declaration="def double(n):", entry_point="double", reference=RIGHT, tests=TESTS
)


@pytest.fixture(scope="module")
def judge():
    sandbox = LocalSandbox(workers=1, warm=())
    yield Judge(sandbox, limits=Limits(time_s=2.0))
    sandbox.close()


def test_the_share_is_of_distinct_well_formed_tests(judge):
    assert own_calls(DOUBLE) == ["double(2)", "double(3)"]
    right, half, none = grade_on_tests(judge, DOUBLE, [RIGHT, SQUARE, "def double(n):\n    return None\n"])
    assert [grade.share for grade in (right, half, none)] == [1.0, 0.5, 0.0]
    assert [grade.passed for grade in (right, half, none)] == [True, False, False]
    assert {call: test.verdict for call, test in half.verdicts.items()} == {
        "double(2)": Verdict.PASSED,
        "double(3)": Verdict.FAILED,
    }


def test_what_does_not_load_and_no_program_at_all_pass_nothing(judge):
    broken, empty = grade_on_tests(judge, DOUBLE, ["def double(n):\n    return (", ""])
    assert (broken.loaded, broken.share, broken.passed) == (False, 0.0, False)
    assert {test.verdict for test in broken.verdicts.values()} == {Verdict.LOAD_ERROR}
    assert empty == Grade(False, 0.0)


def test_identical_programs_run_once(judge, monkeypatch):
    asked = []
    check = judge.check
    monkeypatch.setattr(judge, "check", lambda program, *rest: (asked.append(program), check(program, *rest))[1])
    grades = grade_on_tests(judge, DOUBLE, [RIGHT, SQUARE, RIGHT])
    assert asked == [RIGHT, SQUARE]
    assert grades[0] == grades[2]


@pytest.mark.parametrize(
    "update", [{"tests": []}, {"tests": ["print(1)"]}, {"reference": "def double(n):\n    raise ValueError\n"}]
)
def test_without_an_answer_of_the_reference_nothing_is_graded(judge, update):
    grade = grade_on_tests(judge, DOUBLE.model_copy(update=update), [RIGHT])[0]
    assert (grade.loaded, grade.share, grade.passed) == (None, None, None)


def test_what_the_sandbox_failed_on_is_unscored(judge, monkeypatch):
    partly = {"double(2)": Expected("double(2)", False, reason="unscored"), "double(3)": Expected("double(3)", True, 6)}
    with monkeypatch.context() as patched:
        patched.setattr(judge, "expected", lambda *_: partly)
        assert grade_on_tests(judge, DOUBLE, [RIGHT])[0].passed is None
    lost = judge.check(RIGHT, "double", [], {}).__class__(None)
    monkeypatch.setattr(judge, "check", lambda *_: lost)
    assert grade_on_tests(judge, DOUBLE, [RIGHT])[0].passed is None
