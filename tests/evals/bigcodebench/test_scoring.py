"""Verdicts by the checker's rules, and what a program finds around it."""

import textwrap

import pytest

from codea1_cli.evals.benchmark import Status
from codea1_cli.evals.bigcodebench.scoring import ScoreSettings, score, score_all
from codea1_cli.evals.bigcodebench.tasks import read_task
from codea1_cli.sandbox.base import Limits, UnitModule
from codea1_cli.sandbox.verdicts import Verdict
from tests.evals.bigcodebench.cases import row

QUICK = ScoreSettings(time_limit_s=10.0, memory_mb=1024)


def with_tests(body: str, **changes: object):
    """A task whose test class has this body."""
    source = "import unittest\nclass TestCases(unittest.TestCase):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return read_task(row(test=source, **changes))


def verdict(room, task, code="def task_func(n=0):\n    return n", settings=QUICK):
    return score(room, task, code, settings).status


def test_the_reference_passes_and_a_wrong_one_fails_with_its_line(room, task):
    right = score(room, task, task.reference, QUICK)
    assert (right.status, right.passed, right.tests) == (Status.PASS, 3, 3)
    wrong = score(room, task, "def task_func(number):\n    return number", QUICK)
    assert (wrong.status, wrong.passed) == (Status.FAIL, 0)
    assert wrong.detail.startswith("test_error: raised: AssertionError: TypeError not raised")


def test_a_program_is_compiled_with_no_settings_of_ours(room, task):
    assert verdict(room, task, task.reference.replace("number)", "number: Missing)", 1)) is Status.FAIL
    assert verdict(room, task, "a: Missing = 1\n" + task.reference) is Status.FAIL
    assert verdict(room, task, task.reference + "\nassert False\n") is Status.FAIL


def test_calibration_puts_the_imports_before_the_solution(room, task):
    code = "def task_func(number):\n    os.getcwd()\n    return number + math.floor(1)"
    task = read_task(row(code_prompt="import os\nimport math\ndef task_func(number):"))
    assert verdict(room, task, code) is Status.PASS
    plain = ScoreSettings(calibrated=False, time_limit_s=10.0, memory_mb=1024)
    assert score(room, task, code, plain).status is Status.FAIL


def test_a_solution_that_is_cut_off_is_saved_by_nothing(room, task):
    assert verdict(room, task, "def task_func(number):\n    return (number +") is Status.FAIL


SURROUNDINGS = {
    "files": "with open('a.txt', 'w') as f: f.write('x')\nself.assertEqual(os.listdir('.'), ['a.txt'])",
    "temporary files": "import tempfile\nwith tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').close()",
    "/tmp": "open('/tmp/x', 'w').close()",
    "loopback": (
        "import socket\nserver = socket.socket(); server.bind(('localhost', 0)); server.listen()\n"
        "client = socket.create_connection(server.getsockname()); server.accept()[0].sendall(b'hi')\n"
        "self.assertEqual(client.recv(2), b'hi')"
    ),
    "a subprocess's output": (
        "import subprocess, sys\n"
        "self.assertEqual(subprocess.run([sys.executable, '-c', 'print(1)']).stdout, b'1\\n')"
    ),
    "its own children": (
        "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "child.terminate()\nself.assertNotEqual(child.wait(), 0)"
    ),
    "UTC": "import time\nself.assertEqual(time.tzname[0], 'UTC')",
    "a headless backend": "self.assertEqual(os.environ['MPLBACKEND'], 'Agg')",
    "standard output is no terminal": "print('x')\nself.assertRaises(OSError, sys.stdin.read)",
    "no exit": "self.assertIsNone(exit)",
    "its name": "self.assertEqual(__name__, '__test__')\nself.assertIn('__test__', sys.modules)",
    "threads": "import threading\nt = threading.Thread(target=lambda: None); t.start(); t.join()",
    "pickles": "import pickle\nself.assertIs(pickle.loads(pickle.dumps(task_func)), task_func)",
    "alarms": (
        "import signal, time\nsignal.signal(signal.SIGALRM, lambda *a: 1 / 0)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "with self.assertRaises(ZeroDivisionError): time.sleep(5)"
    ),
    "patches that tests make": (
        "from unittest.mock import patch\nwith patch('builtins.open', side_effect=OSError):\n"
        "    self.assertRaises(OSError, open, 'x')"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_test_finds(name, room):
    task = with_tests(
        "import os, sys\ndef test_it(self):\n    import os, sys\n" + textwrap.indent(SURROUNDINGS[name], "    ")
    )
    scored = score(room, task, "def task_func(n=0):\n    return n", QUICK)
    assert scored.status is Status.PASS, scored


DENIED = {
    "the network": "import socket\nsocket.create_connection(('1.1.1.1', 53), timeout=2)",
    "our home": "import os\nif not os.listdir('/root'): raise OSError",
    "processes": "import os\nif not [n for n in os.listdir('/proc') if n.isdigit()]: raise OSError",
}


@pytest.mark.parametrize("name", DENIED)
def test_a_test_does_not_find(name, room):
    body = "def test_it(self):\n    with self.assertRaises(OSError):\n" + textwrap.indent(DENIED[name], "        ")
    assert verdict(room, with_tests(body)) is Status.PASS


def test_nothing_stays_for_the_next_program(room):
    task = with_tests("def test_it(self):\n    self.assertFalse(__import__('os').path.exists('/tmp/left'))")
    code = "def task_func(): pass\n"
    assert verdict(room, task, code + "import atexit\natexit.register(lambda: open('/tmp/left', 'w'))") is Status.PASS
    verdict(room, task, code + "open('/tmp/left', 'w')")
    verdict(room, task, code + "open('/tmp/left', 'w')")
    assert verdict(room, task, code) is Status.PASS


FIXTURES = {
    "a class that cannot be set up": ("@classmethod\ndef setUpClass(cls): 1 / 0\ndef test_a(self): pass", "fail"),
    "a class that cannot be torn down": ("@classmethod\ndef tearDownClass(cls): 1 / 0\ndef test_a(self): pass", "fail"),
    "a failing subtest": ("def test_a(self):\n    for i in (1, 2):\n        with self.subTest(i): self.assertEqual(i, 1)", "fail"),
    "an expected failure": ("@unittest.expectedFailure\ndef test_a(self): self.fail()", "pass"),
    "state from test to test": ("seen = []\ndef test_a(self): self.seen.append(1)\ndef test_b(self): self.assertTrue(self.seen)", "pass"),
    "an asynchronous test that nobody awaits": ("def test_a(self): return None", "pass"),
    "a cleanup that fails": ("def test_a(self): self.addCleanup(lambda: 1 / 0)", "fail"),
}  # fmt: skip


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_count_as_the_checker_counts_them(name, room):
    body, expected = FIXTURES[name]
    assert verdict(room, with_tests(body)) == expected


def test_a_skipped_test_passes_only_where_the_reference_skips_it(room):
    task = with_tests("def test_a(self): self.skipTest('here')\ndef test_b(self): pass")
    code = "def task_func(n=0):\n    return n"
    lied = score(room, task, code, QUICK)
    assert (lied.status, lied.detail) == (Status.FAIL, "skipped test_a")
    assert score(room, task, code, QUICK, may_skip=frozenset({"test_a"})).status is Status.PASS


def test_tests_that_the_source_does_not_show_are_not_believed(room, task):
    short = UnitModule(task.reference, task.test, task.names[:2])
    run = room.run_unit(short, Limits(time_s=5.0))
    assert run.whole.verdict is Verdict.TAMPERED
    assert not [o for o in run.tests if o.verdict is Verdict.PASSED]


def test_a_program_sees_no_test_while_it_loads(room, task):
    code = (
        "import os, gc\nfound = [b'test_negative' in os.pread(i, 10**6, 0) for i in range(3, 64) if not "
        "__import__('contextlib').suppress(OSError).__enter__() and _is_file(i)]\n"
    )
    helper = "import os, stat\ndef _is_file(i):\n    try:\n        return stat.S_ISREG(os.fstat(i).st_mode)\n    except OSError:\n        return False\n"
    heap = "hits = [o for o in gc.get_objects() if isinstance(o, dict) and 'test_negative' in str(o.get('tests'))]\n"
    end = "assert not any(found) and not hits\ndef task_func(number):\n    return number + 1"
    assert verdict(room, task, helper + code + heap + end) is Status.PASS


def test_equal_programs_run_once(room, task):
    calls = []

    class Counting:
        workers = 2

        def run_unit(self, module, limits, hash_seed=0):
            calls.append(module.code)
            return room.run_unit(module, limits, hash_seed)

    jobs = [(n, (task, task.reference if n % 2 else "x = 1", 0.0, frozenset())) for n in range(6)]
    found = dict(score_all(Counting(), jobs, QUICK))
    assert [found[n].status.value for n in range(6)] == ["fail", "pass"] * 3
    assert len(calls) == 2
