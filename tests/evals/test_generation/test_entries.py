"""Entries of a suite that are not bare asserts: run as a test runner would, or named and counted."""

import json

import pytest

from codea1_cli.evals.test_generation.entries import entry_as_test, with_own_imports
from codea1_cli.evals.test_generation.execution import TestRunner
from codea1_cli.evals.test_generation.split_tests import split_suite
from codea1_cli.sandbox.base import Limits
from tests.evals.test_generation.test_command import call, files  # noqa: F401

SOURCE = "LIMIT = 9\n\ndef f(x):\n    if x < 0:\n        raise ValueError('negative')\n    return x + 1\n"
TRY = "try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass"
CATCH = "try:\n    f({})\nexcept ValueError:\n    pass"
RAISES = "import pytest\nwith pytest.raises(ValueError):\n    f(-1)"
LOOP = "for x in range(3):\n    assert f(x) == x + {}"
FUNCTION = "def test_f():\n    xs = [1]\n    assert f(xs[0]) == {}\n"
HELPER = "def check(x, y):\n    assert f(x) == y\ncheck(1, {})"
SMOKE = "def test_f():\n    f({})\n"
PLAIN_CLASS = (
    "class TestF:\n    def setup_method(self, method):\n        self.x = 1\n"
    "    def test_f(self):\n        assert f(self.x) == {}\n"
)
UNIT_CLASS = (
    "import unittest\nclass Cases(unittest.TestCase):\n    def setUp(self):\n        self.x = 1\n"
    "    def test_f(self):\n        self.assertEqual(f(self.x), {})\n\nif __name__ == '__main__':\n    unittest.main()"
)
PAIRS = [  # (right, wrong)
    *((form.format(2), form.format(3)) for form in (FUNCTION, HELPER, PLAIN_CLASS, UNIT_CLASS)),
    (LOOP.format(1), LOOP.format(2)),
    (SMOKE.format(1), SMOKE.format(-1)),
    (TRY, TRY.replace("-1", "1")),
    (RAISES, RAISES.replace("-1", "1")),
    ("assert f(1) == 2\nassert f(2) == 3", "assert f(1) == 2\nassert f(2) == 4"),
]
PYTEST_ALONE = [
    "import pytest\n@pytest.mark.parametrize('x', [1])\ndef test_f(x):\n    assert f(x) == 2",
    "def test_f(fixture):\n    assert f(fixture) == 2",
    "async def test_f():\n    assert f(1) == 2",
]


@pytest.fixture(scope="module")
def outcome(box):
    runner = TestRunner(box, Limits(time_s=4.0))
    return lambda test: runner.run(SOURCE, "f", test)


@pytest.mark.parametrize(("right", "wrong"), PAIRS, ids=range(len(PAIRS)))
def test_an_entry_runs_whole(outcome, right, wrong):
    assert outcome(entry_as_test(right)).passed
    assert outcome(entry_as_test(wrong)).outcome.value == "failed"


@pytest.mark.parametrize(("right", "wrong"), PAIRS, ids=range(len(PAIRS)))
def test_a_suite_of_it_says_the_same(outcome, right, wrong):
    assert split_suite(right)
    assert all(outcome(test).passed for test in split_suite(right))
    assert not all(outcome(test).passed for test in split_suite(wrong))


@pytest.mark.parametrize("entry", PYTEST_ALONE, ids=range(len(PYTEST_ALONE)))
def test_what_pytest_alone_can_run_fails_by_name(outcome, entry):
    for test in (entry_as_test(entry), *split_suite(entry)):
        found = outcome(test)
        assert found.outcome.value == "failed"
        assert "test_f is not run: " in found.detail


def test_statements_before_a_test_are_no_tests():
    text = "import math\nx = 1\ndef helper(y):\n    return y\nprint(x)\nif x:\n    y = 2\nassert f(x) == 2"
    assert len(split_suite(text)) == 1
    assert split_suite("x = 1\nprint(x)") == []
    assert entry_as_test("x = 1") is entry_as_test("nonsense") is entry_as_test("assert (") is None


def test_every_entry_is_counted_in_a_result(files, call):  # noqa: F811
    (files / "own.py").write_text(SOURCE)
    entries = [TRY, "nonsense", FUNCTION.format(2), PYTEST_ALONE[1], "assert f(1) == 2"]
    (files / "own.jsonl").write_text(json.dumps({"task_id": "f", "asserts": entries}))
    code, out, _ = call(files / "own.py", "--suites", files / "own.jsonl", "--out", files / "r")
    assert code == 0
    assert "3 of 5 tests pass" in out
    assert "no_test: nonsense" in out
    assert "test_f is not run: it wants the argument fixture" in out


def test_two_results_of_one_file_are_compared(files, call):  # noqa: F811
    (files / "own.py").write_text(SOURCE)
    for name, entry in (("a", "assert f(1) == 2"), ("b", TRY)):
        (files / f"{name}.jsonl").write_text(json.dumps({"task_id": "f", "asserts": [entry]}))
        assert call(files / "own.py", "--suites", files / f"{name}.jsonl", "--out", files / name)[0] == 0
    code, out, _ = call("compare", files / "a", files / "b")
    assert code == 0
    assert "own file" in out
    assert "mutation" in out


@pytest.mark.parametrize(
    "how",
    [
        "from own import f", "from own import *", "from pkg.own import f, LIMIT", "from .own import f as f",
        "from own import f as g", "import own", "import pkg.own as own",
    ],
)  # fmt: skip
def test_what_a_test_imports_from_its_file_is_the_function_under_test(outcome, how):
    asks = "own.f(1)" if how.startswith("import") else "g(1)" if how.endswith("g") else "f(1)"
    for test, ends in ((f"{how}\nassert {asks} == 2", "passed"), (f"{how}\nassert {asks} == 3", "failed")):
        assert outcome(with_own_imports(test, "own", "f")).outcome.value == ends
    stranger = with_own_imports(f"from other import f\nassert {asks} == 2", "own", "f")
    assert outcome(stranger).outcome.value == "redefined"
