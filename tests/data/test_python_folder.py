"""Documented functions become problems with what they need of their module and the tests around them."""

import pytest

from codea1_cli.data.sources.python_folder import PythonFolder
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import Skipped

MODULE = '''"""A module."""
from __future__ import annotations
import math
import re as regex
from .other import thing
from functools import lru_cache

LIMIT = 10
try:
    import fast
except ImportError:
    fast = None
UNUSED = "x"

def helper(x):
    return min(x, LIMIT)

@lru_cache
def clamp_root(x: float) -> float:
    """Clamp, then take the root.

    >>> y = 16
    >>> clamp_root(y)
    3.1622776601683795
    >>> clamp_root(-1)
    Traceback (most recent call last):
    ValueError: math domain error
    """
    return math.sqrt(helper(x))

def squeeze(text):
    "Drop blanks."
    return regex.sub(" +", "", text)

def uses_local():
    "Uses a neighbour."
    return thing()

def undocumented():
    return fast

async def later():
    "Later."

def _hidden():
    "Hidden."

class Box:
    def method(self):
        "A method is no problem."
'''

TESTS = """import unittest
from pkg.roots import squeeze, clamp_root

class TestAll(unittest.TestCase):
    def test_squeeze(self):
        self.assertEqual(squeeze("a b"), "ab")
        assert clamp_root(4) == 2.0
"""


def folder(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "roots.py").write_text(MODULE)
    (tmp_path / "pkg" / "other.py").write_text("def thing():\n    return 1\n")
    (tmp_path / "pkg" / "broken.py").write_text("def f(:\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_roots.py").write_text(TESTS)
    (tmp_path / "tests" / "test_unrelated.py").write_text("from elsewhere import squeeze\nassert squeeze('no') == 1\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "lib.py").write_text("def f():\n    'No.'\n")
    return tmp_path


def made(source):
    return [row if isinstance(row, Skipped) else source.convert(row) for place, row in source.records()]


def test_a_folder(tmp_path):
    source = PythonFolder(folder(tmp_path), license="MIT")
    results = made(source)
    problems = {p.entry_point: p for p in results if isinstance(p, Problem)}
    assert set(problems) == {"clamp_root", "squeeze"}
    root = problems["clamp_root"]
    assert root.question.startswith("Clamp, then take the root.")
    assert root.tests == ["assert clamp_root(16) == 3.1622776601683795", "assert clamp_root(4) == 2.0"]
    assert root.declaration == "def clamp_root(x: float) -> float:"
    assert root.test_code == TESTS
    assert (root.license, root.id) == ("MIT", f"{tmp_path.name}/pkg/roots:clamp_root")
    for needed in ("from __future__", "import math", "LIMIT = 10", "def helper", "@lru_cache"):
        assert needed in root.reference
    for useless in ("UNUSED", "regex", "thing", "squeeze", "fast"):
        assert useless not in root.reference
    namespace = {}
    exec(root.reference, namespace)
    assert namespace["clamp_root"](4) == 2.0
    assert problems["squeeze"].tests == ["assert squeeze('a b') == 'ab'"]
    reasons = sorted(s.reason for s in results if isinstance(s, Skipped))
    assert reasons == sorted(
        ["broken_row", "local_import", "no_docstring", "async", "private", "no_docstring", "no_docstring"]
    )


def test_one_file_and_its_neighbours(tmp_path):
    (tmp_path / "roots.py").write_text("def two():\n    'Two.'\n    return 2\n")
    (tmp_path / "other.py").write_text("def three():\n    'Three.'\n    return 3\n")
    (tmp_path / "test_roots.py").write_text("from roots import two\ndef test_two():\n    assert two() == 2\n")
    (only,) = made(PythonFolder(tmp_path / "roots.py"))
    assert only.tests == ["assert two() == 2"]


def test_identity_changes_with_any_file(tmp_path):
    root = folder(tmp_path)
    before = PythonFolder(root).identity()
    (root / "tests" / "test_roots.py").write_text(TESTS + "\n")
    assert PythonFolder(root).identity() != before


EXAMPLES = {
    "ellipsis": ("f(1)  # doctest: +ELLIPSIS", "[1, ...]", "doctest_option"),
    "whitespace": ("f(1)  # doctest: +NORMALIZE_WHITESPACE", "'a b'", "doctest_option"),
    "two options": ("f(1)  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE", "6", "doctest_option"),
    "an option of the configuration": ("f(1)", "[1, ...]", "doctest_option"),
    "skipped": ("f(1)  # doctest: +SKIP", "6", "skipped"),
    "prints": ("shows(1)", "6", "prints"),
    "prints through another": ("shows_too(1)", "6", "prints"),
    "print": ("print(f(1))", "6", "prints"),
    "writes": ("sys.stdout.write(f(1))", "6", "prints"),
}
BODIES = {"f": "return 6", "shows": "print(6)", "shows_too": "shows(x)"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_that_state_no_value(tmp_path, name):
    example, answer, reason = EXAMPLES[name]
    entry = example.partition("(")[0] if "shows" in example else "f"
    helper = "def shows(x):\n    print(x)\n\n" if entry == "shows_too" else ""
    docstring = f'"""Do.\n\n    >>> x = 3\n    >>> {example}\n    {answer}\n    """'
    (tmp_path / "m.py").write_text(f"{helper}def {entry}(x):\n    {docstring}\n    {BODIES[entry]}\n")
    (only,) = [p for p in made(PythonFolder(tmp_path)) if isinstance(p, Problem)]
    assert only.tests == []
    assert only.meta["tests_left_out"] == {reason: 1}


def test_examples_of_a_function_that_writes_elsewhere(tmp_path):
    docstring = '"""Do.\n\n    >>> f(1)\n    6\n    """'
    body = f"def f(x):\n    {docstring}\n    print(x, file=sys.stderr)\n    return 6\n"
    (tmp_path / "m.py").write_text("import sys\n" + body)
    (only,) = made(PythonFolder(tmp_path))
    assert only.tests == ["assert f(1) == 6"]
    assert "tests_left_out" not in only.meta


def test_test_files_of_one_folder_do_not_touch_each_other(tmp_path):
    (tmp_path / "m.py").write_text("def f(x):\n    'Do.'\n    return x\n")
    head = "import pytest\nfrom m import f\n"
    skip = "pytestmark = pytest.mark.skip\n"
    (tmp_path / "test_a.py").write_text(head + skip + "def test_f():\n    assert f(1) == 2\n")
    (tmp_path / "test_b.py").write_text(head + "def test_f():\n    assert f(3) == 3\n")
    (tmp_path / "test_c.py").write_text(head + "def test_f():\n    assert f(4) == 4\n")
    (only,) = made(PythonFolder(tmp_path))
    assert only.tests == ["assert f(3) == 3", "assert f(4) == 4"]
    assert only.meta["tests_left_out"] == {"skipped": 1}
