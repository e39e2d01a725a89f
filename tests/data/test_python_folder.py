"""Documented functions become problems with what they need of their module and the tests around them."""

from codea1_cli.data.sources.base import Skipped
from codea1_cli.data.sources.python_folder import PythonFolder
from codea1_cli.problem import Problem

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
    return [row if isinstance(row, Skipped) else source.convert(place, row) for place, row in source.records()]


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
