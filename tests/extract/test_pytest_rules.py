"""What pytest does not run, or expects to fail, is no truth about the function: it is left out, with its reason.

pytest itself is asked whether it passes each of these files, although all hold a false assert.
"""

import subprocess
import sys

import pytest

from codea1_cli.extract.pytests import convert_tests

HEAD = "import pytest, unittest, sys\nfrom unittest import TestCase\nfrom solution import f\n"
TRUE, FALSE = "assert f(1) == 1", "assert f(2) == 3"


def block(head, body, *decorators):
    return "\n".join([*decorators, head, *(f"    {line}" for line in body.rstrip().split("\n"))]) + "\n"


def function(*decorators, body=FALSE, name="test_bad"):
    return block(f"def {name}():", body, *decorators)


def method(*decorators, body=FALSE):
    return block("def test_bad(self):", body, *decorators)


def group(body, *decorators, head="class TestA:"):
    return block(head, body, *decorators)


def unit(body, *decorators):
    return block("class A(TestCase):", body, *decorators)


PARAM = "@pytest.mark.parametrize('x, y', [(5, 5), pytest.param(2, 3, marks={})])\ndef test_p(x, y):\n    assert f(x) == y\n"
IGNORE = "@pytest.mark.filterwarnings('ignore')"
CASES = {
    "skip": ("skipped", function("@pytest.mark.skip")),
    "skip with a reason": ("skipped", function("@pytest.mark.skip(reason='no')")),
    "skipif": ("skipped", function("@pytest.mark.skipif(True, reason='no')")),
    "xfail": ("xfail", function("@pytest.mark.xfail")),
    "xfail strict": ("xfail", function("@pytest.mark.xfail(strict=True, reason='wrong')")),
    "an imported mark": ("xfail", "from pytest import mark\n" + function("@mark.xfail")),
    "a mark with a name": ("skipped", "later = pytest.mark.skip(reason='later')\n" + function("@later")),
    "a mark among others": ("skipped", function(IGNORE, "@pytest.mark.skip", IGNORE)),
    "unittest.skip on a function": ("skipped", function("@unittest.skip('no')")),
    "skip on a method": ("skipped", group(method("@pytest.mark.skip"))),
    "skip on a class": ("skipped", group(method(), "@pytest.mark.skip")),
    "xfail on a class": ("xfail", group(method(), "@pytest.mark.xfail")),
    "pytestmark of a class": ("xfail", group("pytestmark = [pytest.mark.xfail]\n" + method())),
    "unittest.skip": ("skipped", unit(method("@unittest.skip('no')"))),
    "unittest.skipIf": ("skipped", unit(method("@unittest.skipIf(True, 'no')"))),
    "unittest.skipUnless": ("skipped", unit(method("@unittest.skipUnless(False, 'no')"))),
    "unittest.skip on a class": ("skipped", unit(method(), "@unittest.skip('no')")),
    "expectedFailure": ("xfail", unit(method("@unittest.expectedFailure"))),
    "assertEqual": ("skipped", unit(method("@unittest.skip('no')", body="self.assertEqual(f(2), 3)"))),
    "a set-up that skips": ("skipped", unit("def setUp(self):\n    self.skipTest('no')\n" + method())),
    "a case marked skip": ("skipped", PARAM.format("pytest.mark.skip")),
    "a case marked xfail": ("xfail", PARAM.format("[pytest.mark.xfail(reason='no')]")),
    "after return": ("unreachable", function(body="return\n" + FALSE)),
    "after raise": ("unreachable", function(body="raise unittest.SkipTest('no')\n" + FALSE)),
    "after pytest.skip": ("unreachable", function(body="pytest.skip('no')\n" + FALSE)),
    "after pytest.xfail": ("unreachable", function(body="pytest.xfail('no')\n" + FALSE)),
    "after skipTest": ("unreachable", unit(method(body="self.skipTest('no')\n" + FALSE))),
    "after both branches": (
        "unreachable",
        function(body="if sys.platform:\n    return\nelse:\n    pytest.skip('no')\n" + FALSE),
    ),
    "after if True": ("unreachable", function(body="if True:\n    pytest.skip('no')\n" + FALSE)),
    "after a with that returns": ("unreachable", function(body="with open('/dev/null'):\n    return\n" + FALSE)),
    "after break": ("unreachable", function(body="for x in [1, 2]:\n    break\n    assert f(2) == 3")),
    "after continue": ("unreachable", function(body="for x in [1]:\n    continue\n    assert f(2) == 3")),
    "a loop that ends the test": ("unreachable", function(body="for x in [1]:\n    return\n" + FALSE)),
    "rounds after break": (
        "unreachable",
        function(body="for x, y in [(3, 3), (2, 3)]:\n    assert f(x) == y\n    break\n    assert f(4) == 5"),
    ),
    "rounds left under a condition": (
        "loop",
        function(body="for x, y in [(3, 3), (2, 3)]:\n    if x == 2:\n        continue\n    assert f(x) == y"),
    ),
    "a later test of the same name": ("shadowed", function() + function(body="pass")),
    "a later method of the same name": ("shadowed", group(method() + method(body="pass"))),
    "a later class of the same name": ("shadowed", group(method()) + group(method(body="pass"))),
    "a class by another name": ("not_collected", group(method(), head="class Bad:")),
    "a class with a constructor": ("not_collected", group("def __init__(self):\n    pass\n" + method())),
    "__test__": ("not_collected", group("__test__ = False\n" + method())),
}
GOOD = function(body=TRUE, name="test_good")


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_run_is_left_out(name):
    reason, source = CASES[name]
    tests = convert_tests(HEAD + source + GOOD, "f")
    assert FALSE not in tests.tests
    assert TRUE in tests.tests
    assert +tests.skipped == {reason: 1}


def test_pytest_passes_each_of_them(tmp_path):
    (tmp_path / "solution.py").write_text("def f(x):\n    return x\n")
    for place, (_, source) in enumerate(CASES.values()):
        (tmp_path / f"test_{place}.py").write_text(HEAD + source + GOOD)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


WHOLE = {
    "pytestmark": "pytestmark = pytest.mark.skip(reason='no')\n",
    "pytestmarks": "pytestmark = [pytest.mark.filterwarnings('ignore'), pytest.mark.skip]\n",
    "a skipped module": "pytest.skip('no', allow_module_level=True)\n",
    "a module that raises": "raise unittest.SkipTest('no')\n",
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("last", [False, True])
def test_a_module_that_does_not_run(name, last):
    body = function() + group(method(body="self.assertEqual(f(4), 5)"))
    tests = convert_tests(HEAD + (body + WHOLE[name] if last else WHOLE[name] + body), "f")
    assert tests.tests == []
    assert sum(tests.skipped.values()) == 2
    assert set(+tests.skipped) <= {"skipped", "unreachable"}


RUN = [
    function("@pytest.mark.slow", body=TRUE),
    function(body=TRUE + "\nreturn"),
    function(body="if sys.platform == 'none':\n    pytest.skip('no')\n" + TRUE),
    function(body="with pytest.raises(ValueError):\n    raise ValueError\n" + TRUE),
    function(body="try:\n    raise ValueError\nexcept ValueError:\n    pass\n" + TRUE),
    function(body="for x in [1]:\n    assert f(x) == 1\n    break"),
    function(body="for x in [1]:\n    break\n" + TRUE),
    function(body="if False:\n    return\n" + TRUE),
    group(method(body=TRUE), head="class A(Base):"),
    unit("def setUp(self):\n    self.x = 1\n    return\n" + method(body=TRUE)),
    group(method(body=TRUE), head="class TestA(object):"),
    "assert f(1) == 1\nexit()\n",
]


@pytest.mark.parametrize("source", RUN)
def test_what_runs_is_read(source):
    assert convert_tests(HEAD + source, "f").tests == [TRUE]


def test_modules_do_not_touch_each_other():
    skipped = "pytestmark = pytest.mark.skip\n" + function(name="test_a")
    modules = [skipped, "def test_a(:", function(body=TRUE, name="test_a"), function(body="assert f(x) == 1")]
    tests = convert_tests("x = 1", "f", modules)
    assert tests.tests == [TRUE]
    assert +tests.skipped == {"skipped": 1, "syntax": 1, "arguments": 1}
