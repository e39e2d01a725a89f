"""Programs that want to pass without doing the task: none may."""

import pytest

from codea1_cli.evals.benchmark import Status
from codea1_cli.evals.bigcodebench.scoring import ScoreSettings, always_equal, score
from tests.sandbox.ends import ENDS, at_load, in_a_call

QUICK = ScoreSettings(time_limit_s=3.0, memory_mb=1024)

HOSTILE = {
    "exits while loading": "import os\nos._exit(0)",
    "exits in a test": "def task_func(n):\n    os._exit(0)",
    "leaves politely": "import sys\nsys.exit(0)",
    "leaves in a test": "def task_func(n):\n    import sys\n    sys.exit(0)",
    "skips": "import unittest\ndef task_func(n):\n    raise unittest.SkipTest('no')",
    "prints results": "print('OK\\nRan 3 tests')\ndef task_func(n):\n    print('...\\nOK')",
    "patches the class": "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\ndef task_func(n): raise TypeError",
    "patches the class when called": (
        "import unittest\ndef task_func(n):\n    unittest.TestCase.assertEqual = lambda *a, **k: None\n    raise TypeError"
    ),
    "patches a function's code": (
        "import unittest\nunittest.TestCase.assertEqual.__code__ = (lambda self, a, b, msg=None: None).__code__\n"
        "def task_func(n):\n    if n == 'a': raise TypeError"
    ),
    "patches the runner": "import unittest.suite\nunittest.suite.TestSuite.run = lambda self, result, debug=False: result\n"
    "def task_func(n): pass",
    "patches the result": "import unittest\nunittest.TestResult.addFailure = lambda *a: None\ndef task_func(n): pass",
    "patches a comparison's helper": (
        "import unittest.case\nclass C:\n    def __enter__(self): return self\n    def __exit__(self, *a): return True\n"
        "unittest.case._Outcome.testPartExecutor = lambda *a, **k: C()\ndef task_func(n): pass"
    ),
    "replaces unittest": (
        "import sys, types, unittest\nfake = types.ModuleType('unittest')\n"
        "fake.TestCase = type('TestCase', (unittest.TestCase,), {'assertEqual': lambda *a: None})\n"
        "sys.modules['unittest'] = fake\ndef task_func(n):\n    raise TypeError"
    ),
    "replaces class building": "import builtins\nbuiltins.__build_class__ = lambda *a, **k: None\ndef task_func(n): pass",
    "patches the test": (
        "def task_func(n):\n    import sys\n    sys._getframe(1).f_locals['self'].assertEqual = lambda *a: None\n"
        "    if n == 'a': raise TypeError"
    ),
    "patches the tests' class": (
        "def task_func(n):\n    import sys\n    kind = type(sys._getframe(1).f_locals['self'])\n"
        "    kind.assertEqual = lambda *a: None\n    if n == 'a': raise TypeError"
    ),
    "replaces the other tests": (
        "def task_func(n):\n    import sys\n    kind = sys._getframe(1).f_globals['TestCases']\n"
        "    for name in ('test_value', 'test_negative'):\n        setattr(kind, name, lambda self: None)\n    raise TypeError"
    ),
    "has a class of tests": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_value(self): pass",
    "patches mock's patch": (
        "import unittest.mock\nunittest.mock.patch = lambda *a, **k: lambda f: lambda self: None\n"
        "def task_func(n): return n + 1"
    ),
    "patches a library's comparison": "import math\nmath.isclose = lambda *a, **k: True\ndef task_func(n): return n + 1",
    "skips its module": (
        "import unittest\ndef setUpModule():\n    raise unittest.SkipTest\ndef task_func(n): return n + 1"
    ),
    "redefines isinstance": "def isinstance(*a): return True\ndef task_func(n): return n + 1",
    "writes to every descriptor": (
        "for i in range(3, 64):\n    try:\n        os.write(i, b'\\x05\\x00\\x00\\x00V\\x00\\x00\\x00\\x00' * 9)\n"
        "    except OSError: pass\ndef task_func(n): return n + 1"
    ),
    "exits from a thread": (
        "import threading\ndef task_func(n):\n    threading.Thread(target=os._exit, args=(0,)).start()\n    while True: pass"
    ),
    "kills its keeper": "import signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(1, signal.SIGKILL)\ndef task_func(n): pass",
    "kills itself": "import signal\ndef task_func(n):\n    os.kill(os.getpid(), signal.SIGKILL)",
    "kills itself in real time": "import signal\ndef task_func(n):\n    os.kill(os.getpid(), 40)",
    "interrupts": "def task_func(n):\n    raise KeyboardInterrupt",
    "overflows the stack": "import sys\nsys.setrecursionlimit(10**8)\ndef task_func(n):\n    return task_func(n)",
    "an object equal to all": "class A:\n    def __eq__(self, other): return True\ndef task_func(n):\n    if n == 'a': raise TypeError\n    return A()",
    "mock's ANY": "from unittest.mock import ANY\ndef task_func(n):\n    if n == 'a': raise TypeError\n    return ANY",
    "a type made to be equal": (
        "T = type('T', (), {'__eq__': lambda self, other: True})\n"
        "def task_func(n):\n    if n == 'a': raise TypeError\n    return T()"
    ),
    "an open end": 'def task_func(n): return n + 1\nx = """',
    "no function": "x = 1",
    "empty": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_program_that_cheats_does_not_pass(name, room, task):
    scored = score(room, task, HOSTILE[name], QUICK)
    assert scored.status in (Status.FAIL, Status.TIMEOUT), scored


def test_the_next_program_is_judged_as_ever(room, task):
    for code in HOSTILE.values():
        if "while True" not in code:
            score(room, task, code, QUICK)
    assert score(room, task, task.reference, QUICK).status is Status.PASS


@pytest.mark.corpus
def test_every_end(room, task):
    for name, (body, allowed) in ENDS.items():
        for make in (in_a_call, at_load):
            code = make(body).replace("if x == 1: ", "") + "task_func = f\n"
            scored = score(room, task, code, QUICK)
            assert scored.status is not Status.UNSCORED, (name, scored)
            ends = allowed == "crashed" and name != "exec"  # which its checker switches off
            assert not ends or scored.status is not Status.PASS, (name, scored)
        assert score(room, task, task.reference, QUICK).status is Status.PASS, name


def test_a_loop_ends_with_its_time(room, task):
    scored = score(room, task, "def task_func(n):\n    while True: pass", ScoreSettings(time_limit_s=1.0))
    assert scored.status is Status.TIMEOUT


def test_honest_comparisons_are_no_lies():
    honest = [
        "class A:\n    def __eq__(self, other): return self.x == other.x",
        "class A:\n    def __lt__(self, other): return self.cost < other.cost",
        "class A:\n    def __eq__(self, other): raise NotImplementedError",
        "from unittest.mock import patch, MagicMock",
        "def broken(:",
        "COMPANY = 'ANY'",
    ]
    assert [always_equal(code) for code in honest] == [""] * len(honest)
