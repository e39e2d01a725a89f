"""Tests as statements in the sandbox: what passes, what does not, and that nothing reaches beyond its own test."""

from pathlib import Path

import pytest

from codea1_cli.errors import EnvironmentFault
from codea1_cli.evals.test_generation import Mutant, make_mutants
from codea1_cli.evals.test_generation.execution import MutantLimits, Outcome, TestRunner
from tests.evals.test_generation.hand_made import ADD, NEG, QUICK, SIGN
from tests.sandbox.ends import ENDS, HEAD, at_load, in_a_call, indented

COUNTS = "seen = []\ndef count(x):\n    seen.append(x)\n    return len(seen)\n"


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("assert sign(5) == 1", "passed"),
        ("assert sign(5)", "passed"),
        ("x = 5\nassert sign(x) == 1 and not sign(-x) == 1", "passed"),
        ("assert math.isclose(sign(5), 1) and np.sign(3) == sign(3)", "passed"),
        ("assert isinstance(sign(5), int), 'no'", "passed"),
        ("assert all(sign(n) == 1 for n in range(1, 4))", "passed"),
        ("assert sign(5) == 2", "failed"),
        ("assert sign('a') == 1", "failed"),
        ("assert missing(5) == 1", "failed"),
        ("assert exit() is None", "failed"),
        ("raise SystemExit(0)\nassert True", "failed"),
        ("return\nassert sign(5) == 2", "failed"),
        ("yield 1\nassert sign(5) == 2", "failed"),
        ("import os\nassert os._exit(0) is None", "crashed"),
        ("import os\nassert os._exit(77) is None", "crashed"),
        ("import os\nassert os.kill(os.getpid(), 9) is None", "crashed"),
        ("import os\nassert os.kill(os.getpid(), 40) is None", "crashed"),
        ("import os, signal\nassert os.abort() is None", "crashed"),
        ("while True:\n    pass\nassert sign(5) == 1", "timeout"),
        ("assert len('x' * 10 ** 10) > 1", "failed"),
        ("print('x' * 10_000_000)\nassert sign(5) == 1", "output_limit"),
        ("import os\nfor fd in range(3, 60):\n    try:\n        os.write(fd, b'V' * 99)\n"
         "    except OSError:\n        pass\nassert sign(5) == 2", "crashed"),
        ("sign = lambda x: 9\nassert sign(5) == 9", "redefined"),
        ("globals()['sign'] = lambda x: 9\nassert sign(5) == 9", "redefined"),
        ("import sys\nsys.modules[sign.__module__].sign = print\nassert True", "redefined"),
        ("sign.__code__ = (lambda x: 9).__code__\nassert sign(5) == 9", "redefined"),
        ("import builtins\nbuiltins.len = lambda x: 9\nassert sign(5) == 1", "redefined"),
        ("__builtins__['abs'] = lambda x: 9\nassert abs(1) == 9", "redefined"),
        ("assert open('/etc/passwd').read()", "failed"),
        ("assert __import__('subprocess').run(['true']).returncode == 1", "failed"),
        ("assert __import__('socket').create_connection(('127.0.0.1', 80))", "failed"),
        ("import os\nos.fork()\nassert sign(5) == 1", "passed"),
        ("import os\nassert os.fork() or sign(5) == 2", "passed"),
        ("import os\nassert not os.fork()", "failed"),
        (None, "no_test"),
        ("assert (", "no_test"),
    ],
)  # fmt: skip
def test_outcomes(runner, test, outcome):
    assert runner.run(SIGN, "sign", test).outcome.value == outcome


def test_a_function_that_does_not_load_is_named(runner):
    assert runner.load("import nowhere\ndef f(): pass\n", "f").startswith("load_error: ModuleNotFoundError")
    assert runner.load("def f(): pass\n", "g").startswith("load_error: KeyError")
    assert runner.load("def f(x: Missing): pass\n", "f").startswith("load_error: NameError")
    assert runner.load("def f(:\n", "f").startswith("load_error: SyntaxError")
    assert runner.load("def f(): return np.zeros(1), math.pi\n", "f") is None


def test_names_that_begin_with_underscores(runner):
    assert runner.run("def __f(x):\n    return x\n", "__f", "assert __f(1) == 1").passed
    assert runner.run("def __f__(x):\n    return x\n", "__f__", "assert __f__(1) == 1").passed


def test_no_test_sees_what_another_left(runner):
    for _ in range(2):
        assert runner.run(COUNTS, "count", "assert count(1) == 1").passed
    keep = "open('/tmp/left.txt', 'w').write('x')\nassert count(1) == 1"
    assert runner.run(COUNTS, "count", keep).passed
    assert not Path("/tmp/left.txt").exists()
    assert runner.run(COUNTS, "count", "import os\nassert not os.path.exists('/tmp/left.txt')").passed


def test_a_hostile_test_takes_no_mutant_of_another_test_along(runner):
    mutants = make_mutants(SIGN)
    bad = "import os\nif sign(5) != 1:\n    os._exit(77)\nassert sign(5) == 1"
    base = runner.on_mutants("sign", [("assert sign(5) == 1", 0.0)], mutants)
    assert set(runner.on_mutants("sign", [(bad, 0.0)], mutants)) == {Outcome.PASSED, Outcome.CRASHED}
    assert runner.on_mutants("sign", [("assert sign(5) == 1", 0.0)], mutants) == base
    assert runner.run(SIGN, "sign", "assert sign(5) == 1").passed


@pytest.mark.corpus
def test_every_end_of_a_test_and_of_a_function(runner):
    for name, (body, allowed) in ENDS.items():
        test = runner.run(SIGN, "sign", f"{HEAD}def g(*_):\n{indented(body)}g()\nassert sign(5) == 1")
        functions = [runner.run(make(body), "f", "assert f(1) == 2") for make in (in_a_call, at_load)]
        for run in (test, *functions):
            assert run.outcome is not Outcome.UNSCORED, (name, run)
            assert allowed != "crashed" or run.outcome is Outcome.CRASHED, (name, run)
        assert runner.run(SIGN, "sign", "assert sign(5) == 1").passed, name


def test_killed_and_survived_by_hand(runner):
    mutants = make_mutants(SIGN)
    first = runner.on_mutants("sign", [("assert sign(5) == 1", 0.0)], mutants)
    second = runner.on_mutants("sign", [("assert sign(-3) == -1", 0.0)], mutants)
    assert sum(outcome is not Outcome.PASSED for outcome in first) == 6
    assert sum(outcome is not Outcome.PASSED for outcome in second) == 10
    tests = [("assert sign(5) == 1", 0.0), ("assert sign(-3) == -1", 0.0)]
    apart = [("x = 5\nassert sign(x) == 1", 0.0), ("x = -3\nassert sign(x) == -1", 0.0)]
    assert runner.kill("sign", tests, mutants) == runner.kill("sign", apart, mutants)
    killed = runner.kill("sign", tests, mutants)
    assert killed.count(True) == 13
    alive = [mutant for mutant, dead in zip(mutants, killed, strict=True) if not dead]
    assert sorted(m.source.splitlines()[1].strip().replace("  ", " ") for m in alive) == [
        "if x > -1:",
        "if x > 1:",
        "if x >= 0:",
    ]


def test_plain_tests_share_a_fork_and_no_state(runner):
    tests = [("assert count(1) == 1", 0.0), ("assert count(2) == 1", 0.0)]
    assert runner.kill("count", tests, [Mutant("none", 0, 1, COUNTS)]) == [False]


def test_without_tests_every_mutant_lives(runner):
    assert runner.kill("neg", [], make_mutants(NEG)) == [False] * 4


def test_mutants_that_loop_crash_or_do_not_compile_are_killed(runner):
    sources = ["def add(a, b):\n    while True: pass\n", "def add(a, b:\n", "import os\nos._exit(0)\n", None, ADD]
    mutants = [Mutant("made", number, 1, source) for number, source in enumerate(sources)]
    outcomes = runner.on_mutants("add", [("assert add(1, 2) == 3", 0.0)], mutants)
    assert [outcome.value for outcome in outcomes] == ["timeout", "load_error", "crashed", "load_error", "passed"]


def test_a_mutants_time_follows_the_functions():
    limits = MutantLimits(factor=20, least_s=1, most_s=10)
    assert [limits.seconds(s) for s in (0.0, 0.01, 0.2, 3.0)] == [1, 1, 4, 10]


def test_an_interpreter_without_coverage_is_named(box):
    class Bare:
        def run(self, program, *rest, **more):
            return box.run(
                program.replace("import coverage", "raise ImportError(\"No module named 'coverage'\")"), *rest
            )

    with pytest.raises(EnvironmentFault, match="has no coverage"):
        TestRunner(Bare(), QUICK).run(SIGN, "sign", "assert sign(5) == 1", trace=True)
