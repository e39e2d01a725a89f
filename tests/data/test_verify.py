"""References are verified in the real sandbox; what the sandbox itself fails at is not a verdict."""

import pytest

from codea1_cli.data.verify import Verifier
from codea1_cli.errors import EnvironmentFault
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.base import Limits, ProgramRun
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import Answer, AnswerKind

LIMITS = Limits(time_s=2.0, load_s=10.0, memory_mb=256)


@pytest.fixture(scope="module")
def verifier():
    sandbox = LocalSandbox(workers=1, warm=())
    yield Verifier(sandbox, LIMITS)
    sandbox.close()


def problem(reference, tests=("assert f(1) == 2",), **more):
    return Problem(
        id="p", question="q", declaration="", entry_point="f", reference=reference, tests=list(tests), **more
    )


REASONS = {
    "reference_does_not_load": problem("import no_such_module_at_all\ndef f(x):\n    return 2"),
    "reference_raises": problem("def f(x):\n    return undefined"),
    "reference_timeout": problem("def f(x):\n    while True: pass"),
    "fails_own_test": problem("def f(x):\n    return 3"),
    "stub_passes": problem("def f(x):\n    x.sort()", ["assert f([2, 1]) == None", "assert f([]) == None"]),
    "not_deterministic": problem("def f(x):\n    return list({'a', 'b', 'c', 'd', 'e'})", ["assert f(1) == ['a']"]),
    "answer_not_comparable": problem("def f(x):\n    return object()"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_does_not_hold(verifier, reason):
    checked = verifier.check(REASONS[reason])
    assert checked.reason == reason
    assert checked.detail


def test_an_undefined_entry_point_does_not_load(verifier):
    for tests in ([], ["assert f(1) == 2"]):
        checked = verifier.check(problem("def g(x):\n    return 2", tests))
        assert checked.reason == "reference_does_not_load"
        assert checked.detail


def test_what_holds(verifier):
    checked = verifier.check(
        problem("def f(x):\n    return x + 1.0000000001", ["assert f(1) == 2", "assert f(2) == 3"])
    )
    assert checked.reason is None
    assert verifier.check(problem("def f(x):\n    return 2", [])).reason is None
    assert (
        verifier.check(
            problem("def f(x):\n    return None if x else 0", ["assert f(1) == None", "assert f(0) == 0"])
        ).reason
        is None
    )


def test_slow_references_carry_their_time(verifier):
    checked = verifier.check(problem("import time\ndef f(x):\n    time.sleep(0.2)\n    return 2"))
    assert checked.reason is None
    assert checked.seconds >= 0.2


def test_extra_tests_are_kept_one_by_one_and_open_calls_answered(verifier):
    made = problem(
        "def f(x):\n    return {x + 1} if x else [x]",
        ["assert f(1) == {2}"],
        extra_tests=["assert f(2) == {3}", "assert f(3) == 9", "assert f('a') == 1"],
        meta={"calls": ["f(0)", "f(4)", "f('b')"]},
    )
    checked = verifier.check(made)
    assert checked.reason is None
    assert checked.extra_tests == ["assert f(2) == {3}", "assert f(0) == [0]", "assert f(4) == {5}"]
    assert checked.dropped == 2


class Failing:
    """A sandbox that fails `times` times and then answers 2."""

    def __init__(self, times):
        self.times = times

    def run(self, program, entry_point, calls, limits, hash_seed=0):
        self.times -= 1
        if self.times >= 0:
            return ProgramRun(None, answers=[Answer(AnswerKind.UNSCORED) for _ in calls])
        from codea1_cli.sandbox.verdicts import Value

        return ProgramRun(True, answers=[Answer(AnswerKind.VALUE, Value(2, "2"), "2") for _ in calls])

    def close(self):
        pass


def test_a_failing_sandbox_is_tried_again_and_then_stops_the_run(monkeypatch):
    monkeypatch.setattr("codea1_cli.data.verify.time.sleep", lambda _: None)
    good = problem("def f(x):\n    return 2")
    assert Verifier(Failing(2), LIMITS).check(good).reason is None
    verifier = Verifier(Failing(10**9), LIMITS)
    for _ in range(4):
        assert verifier.check(good).reason == "unscored"
    with pytest.raises(EnvironmentFault, match="5 problems in a row"):
        verifier.check(good)
