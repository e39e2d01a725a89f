"""Programs on tasks, through the sandbox: EvalPlus' ways with state, mutated inputs, time, large values and cheats."""

import os
import resource
import subprocess
import sys
import time

import pytest

from codea1_cli.evals.evalplus import in_jail
from codea1_cli.evals.evalplus.checking import Checker, PartAnswers, environment
from codea1_cli.evals.evalplus.oracle import arguments_of, shipped
from codea1_cli.evals.evalplus.tasks import PlusTask
from codea1_cli.sandbox.base import ProgramRun
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import Answer, AnswerKind
from tests.sandbox.ends import ENDS, at_load, in_a_call

ADD = "def f(x, y):\n    return x + y\n"


@pytest.fixture(scope="module")
def checker():
    with LocalSandbox(workers=1, environment=environment()) as sandbox:
        yield Checker("mbpp", sandbox)


def task(reference=ADD, base=((1, 2),), plus=((3, 4), (5, 6)), atol=0.0, entry="f"):
    inputs = {"base": [list(one) for one in base], "plus": [list(one) for one in plus]}
    return PlusTask("Mbpp/1", "", reference, entry, inputs, atol)


def verdict(checker, problem, solution):
    expected = checker.expected(problem)
    assert checker.reference_fault(problem, expected) == ""
    found = checker.check(problem, solution, expected)
    return str(found["base"]), str(found["plus"])


def test_right_and_wrong(checker):
    problem = task()
    assert verdict(checker, problem, ADD) == ("pass", "pass")
    assert verdict(checker, problem, "def f(x, y):\n    return 3\n") == ("pass", "fail")
    assert verdict(checker, problem, "def f(x, y):\n    return 7 if x == 3 else 11\n") == ("fail", "pass")
    assert verdict(checker, problem, "def g(x, y):\n    return x + y\n") == ("fail", "fail")
    assert verdict(checker, problem, "def f(x, y)\n") == ("fail", "fail")
    assert verdict(checker, problem, "import os\nos._exit(0)\n" + ADD) == ("fail", "fail")


def of_two(source):
    """A program of `ends` under the name and arguments of the task here."""
    return source + "g_of_one = f\ndef f(x, y): return g_of_one(x) - 1 + y\n"


def try_ends(checker, names):
    problem = task()
    for name in names:
        body, allowed = ENDS[name]
        for make in (in_a_call, at_load):
            found = verdict(checker, problem, of_two(make(body)))
            assert "unscored" not in found, name
            assert allowed != "crashed" or found[0] in ("fail", "timeout"), (name, found)
        assert verdict(checker, problem, ADD) == ("pass", "pass"), name


def test_a_program_may_end_in_any_way(checker):
    try_ends(checker, ["exit 77", "real-time signal"])


@pytest.mark.corpus
def test_every_end(checker):
    try_ends(checker, ENDS)


def test_calls_share_a_process_as_in_evalplus(checker):
    second = "n = 0\ndef f(x, y):\n    global n\n    n += 1\n    return x + y if n < 2 else None\n"
    assert verdict(checker, task(), second) == ("pass", "fail")
    assert verdict(checker, task(plus=((3, 4),)), second) == ("pass", "pass")  # base and plus are apart


def test_what_evalplus_switches_off_is_off(checker):
    assert verdict(checker, task(), "open('/dev/null')\n" + ADD) == ("fail", "fail")
    assert verdict(checker, task(), "import os\n" + ADD.replace("return", "os.getcwd(); return")) == ("fail", "fail")
    assert verdict(checker, task(), ADD.replace("return", "print(x); return")) == ("pass", "pass")


def test_a_candidate_is_compiled_as_python_compiles_it(checker):
    """With none of the settings of the module that runs it: annotations are evaluated, asserts and docstrings are there."""
    assert verdict(checker, task(), ADD.replace("x, y", "x: Missing, y", 1)) == ("fail", "fail")
    assert verdict(checker, task(), ADD.replace("):", ") -> List[int]:", 1)) == ("fail", "fail")
    assert verdict(checker, task(), "a: Missing = 1\n" + ADD) == ("fail", "fail")
    assert verdict(
        checker, task(), "from __future__ import annotations\n" + ADD.replace("x, y", "x: Missing, y", 1)
    ) == (
        "pass",
        "pass",
    )
    assert verdict(checker, task(), ADD.replace("return", "assert False; return")) == ("fail", "fail")
    documented = ADD.replace("return", "'doc'; return") + "assert f.__doc__ == 'doc'\n"
    assert verdict(checker, task(), documented) == ("pass", "pass")


def test_recursion_reaches_as_deep_as_in_evalplus(checker):
    """Its own process fails the first program from 967 on, the second from 966 (evalplus 0.3.1, Python 3.11)."""
    program = "def d(n):\n    return n and d(n - 1)\ndef f(n):\n    try:\n        d(n)\n        return True\n    except RecursionError:\n        return False\n"
    reference = "def f(n):\n    return True\n"
    deepest = task(reference, base=((1,),), plus=((966,),))
    assert verdict(checker, deepest, program) == ("pass", "pass")
    assert verdict(checker, task(reference, base=((1,),), plus=((967,),)), program) == ("pass", "fail")
    loading = reference + "def d(n):\n    return n and d(n - 1)\nd(%d)\n"
    assert verdict(checker, deepest, loading % 965) == ("pass", "pass")
    assert verdict(checker, deepest, loading % 966) == ("fail", "fail")


def test_time_limits_follow_the_reference(checker):
    slow = ADD.replace("return", "import time; time.sleep(2 if x == 3 else 0); return")
    assert verdict(checker, task(), slow) == ("pass", "fail")
    expected = checker.expected(task())["plus"]
    assert expected.limits == [1.0, 1.0]
    assert expected.total == 4.0


class Recorder:
    """A sandbox that keeps which calls each run had."""

    def __init__(self, sandbox):
        self.sandbox, self.runs = sandbox, []

    def run(self, program, entry, calls, limits, hash_seed=0, **more):
        self.runs.append([call.partition(",")[0] for call in calls])
        return self.sandbox.run(program, entry, calls, limits, hash_seed, **more)


LOOKS, BASE = ["part('base'", "part('plus'"], ["part('base')"]


@pytest.mark.parametrize(
    ("solution", "verdicts", "runs"),
    [
        ("while x < 4: pass", ("fail", "fail"), [LOOKS, BASE]),
        ("import time\n    while x == 1:\n        try: time.sleep(9)\n        except Exception: return 3", ("pass", "pass"), [LOOKS, BASE]),
        ("import os; x > 1 or os._exit(0)", ("fail", "pass"), [LOOKS, BASE]),
    ],
)  # fmt: skip
def test_what_outlasts_its_first_look_is_run_whole_where_it_counts(checker, solution, verdicts, runs):
    recorder = Recorder(checker.sandbox)
    problem = task(base=((1, 2), *((5, y) for y in range(8))))
    program = ADD.replace("return", f"{solution}\n    return")
    found = Checker("mbpp", recorder).check(problem, program, checker.expected(problem))
    assert (tuple(map(str, found.values())), recorder.runs) == (verdicts, runs)


def test_a_long_plus_is_run_once_and_after_base_has_passed(checker):
    expected = {"base": PartAnswers(["3"], [0.0]), "plus": PartAnswers(["7", "11"], [0.6, 0.6])}
    looked, plus = ["part('base'"], ["part('plus')"]
    for solution, verdicts, runs in [
        (ADD, ("pass", "pass"), [looked, plus]),
        ("def f(x, y):\n    return 3\n", ("pass", "fail"), [looked, plus]),
        ("def f(x, y):\n    return 7\n", ("fail", "fail"), [looked]),
    ]:
        recorder = Recorder(checker.sandbox)
        found = Checker("mbpp", recorder).check(task(), solution, expected)
        assert (tuple(map(str, found.values())), recorder.runs) == (verdicts, runs)


@pytest.mark.slow
def test_a_program_that_catches_its_alarm_has_the_time_of_all_inputs(checker):
    stuck = "import time\n    while x == 1:\n        try: time.sleep(9)\n        except BaseException: pass\n    return"
    began = time.monotonic()
    assert verdict(checker, task(), ADD.replace("return", stuck)) == ("timeout", "pass")
    assert time.monotonic() - began < 100  # it would go on for ever


def test_other_work_makes_no_call_late_and_sleep_does():
    watch = in_jail.Stopwatch()
    time.sleep(0.05)
    assert watch.seconds() >= 0.05
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    rival = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        rival.stdout.readline()
        watch = in_jail.Stopwatch()
        while time.perf_counter() - watch.wall < 0.3:
            pass
        seconds, waits = watch.seconds(), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - watch.waits
        assert waits or seconds < 0.25
    finally:
        os.sched_setaffinity(0, cores)
        rival.kill()
        rival.communicate()


def test_a_program_that_never_loads_is_loaded_once_and_for_no_longer_than_base_takes():
    runs = []

    class Stuck:
        def run(self, program, entry, calls, limits, hash_seed=0, **more):
            runs.append((len(calls), limits.load_limit_s))
            late = [Answer(AnswerKind.TIMEOUT, detail="while loading") for _ in calls]
            return ProgramRun(False, "late", late, load_kind=AnswerKind.TIMEOUT)

    expected = {"base": PartAnswers(["3"], [0.0]), "plus": PartAnswers(["7"] * 900, [0.0] * 900)}
    problem = task(plus=((3, 4),) * 900)
    found = Checker("mbpp", Stuck()).check(problem, "while True: pass\n" + ADD, expected)
    assert (str(found["base"]), str(found["plus"])) == ("timeout", "timeout")
    assert expected["plus"].total == 62.0
    assert runs == [(2, 3.0)]


def test_large_values_that_are_written_otherwise_are_fetched(checker):
    problem = task("def f(x, y):\n    return {i: 'z' * 9 for i in range(x * 500)}\n")
    other = "def f(x, y):\n    return {i: 'z' * 9 for i in reversed(range(x * 500))}\n"
    assert verdict(checker, problem, other) == ("pass", "pass")
    assert verdict(checker, problem, other.replace("* 9", "* 8")) == ("fail", "fail")
    floats = task("def f(x, y):\n    return [i / 3 for i in range(x * 2000)]\n")
    assert verdict(checker, floats, "def f(x, y):\n    return [i * (1 / 3) for i in range(x * 2000)]\n") == (
        "pass",
        "pass",
    )
    text = task("def f(x, y):\n    return 'ab' * 9000\n")
    assert verdict(checker, text, "def f(x, y):\n    return 'ab' * 8999 + 'ba'\n") == ("fail", "fail")


def test_a_candidate_finds_no_expected_value(checker):
    """It may take the driver over, but only its own answers go out."""
    cheats = [
        "import sys\ndef f(x, y):\n    return sys._getframe(1).f_locals.get('expected')\n",
        "class L(int):\n    def __eq__(self, o):\n        return True\n    __hash__ = None\ndef f(x, y):\n    return L(99)\n",
        "import gc\ndef f(x, y):\n    return next((o['answers'] for o in gc.get_objects() if isinstance(o, dict) and 'answers' in o), 0)\n",
        "import os\ndef f(x, y):\n    os.write(1, b'3')\n    return 0\n",
        "import sys\ndef f(x, y):\n    sys._getframe(1).f_locals['lines'].append('+')\n    return x + y\n",
        "def f(x, y):\n    import __main__\n    __main__.Task = None\n    return True\n",
    ]  # fmt: skip
    for cheat in cheats:
        assert verdict(checker, task(), cheat) == ("fail", "fail"), cheat


def test_a_reference_that_cannot_pass_is_named(checker):
    for reference, why in (
        ("def f(x, y):\n    return float('nan')\n", "base: its own answers are not accepted"),
        ("def f(x, y):\n    raise KeyError(x)\n", "base: raises KeyError"),
        ("def g():\n    pass\n", "base: raises KeyError"),
    ):
        problem = task(reference)
        assert checker.reference_fault(problem, checker.expected(problem)) == why


def test_inputs_are_rebuilt_by_the_tasks_own_rules():
    rules = {
        "Mbpp/2": ([[[1], [2]]], [[(1,), (2,)]]),
        "Mbpp/63": ([[[[1, 2], [3]]]], [[[(1, 2), (3,)]]]),
        "Mbpp/75": ([[[[1], [2]], 3]], [[[(1,), (2,)], 3]]),
        "Mbpp/106": ([[[1], [2]]], [[[1], (2,)]]),
        "Mbpp/115": ([[[[1], [], {}]]], [[[{1}, {}, {}]]]),
        "Mbpp/124": ([["1", "2j"]], [(1.0, 2j)]),
        "Mbpp/250": ([[[1], 2]], [[(1,), 2]]),
        "Mbpp/252": ([["1+2j"]], [[1 + 2j]]),
        "Mbpp/259": ([[[[1], [2]]]], [[((1,), (2,))]]),
        "Mbpp/278": ([[[1, [2], 3]]], [[(1, (2,), 3)]]),
        "Mbpp/307": ([[[1], 2, 3]], [[(1,), 2, 3]]),
        "Mbpp/580": ([[[1, [2, [3]]]]], [((1, (2, (3,))),)]),
        "Mbpp/722": ([[{"a": [1, 2]}, 3]], [[{"a": (1, 2)}, 3]]),
        "Mbpp/3": ([[[1]]], [[[1]]]),
        "HumanEval/2": ([[[1]]], [[[1]]]),
    }
    for task_id, (stored, rebuilt) in rules.items():
        assert arguments_of(task_id, stored) == rebuilt, task_id
    assert shipped([[1, {"a": 2.5}]]) == {"json": True, "inputs": [[1, {"a": 2.5}]]}
    assert shipped([[(1,)]]) == {"json": False, "inputs": "[[(1,)]]"}
    assert shipped([[{1: 2}]])["json"] is False
