"""Programs that differ only in what does not matter have one fingerprint."""

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.data.similarity import blind_hash, blind_tokens, text_hash

BASE = "import math\n\ndef area(radius, scale=1):\n    total = math.pi * radius\n    return total * scale\n"
SAME = {
    "names": "import math\ndef g(a, b=1):\n    c = math.pi * a\n    return c * b\n",
    "layout and comments": "def area(radius,scale=1):  # round\n\n    total = (math.pi*radius)\n    return total*scale",
    "docstring": 'def area(radius, scale=1):\n    """Area."""\n    total = math.pi * radius\n    return total * scale',
    "annotations": "def area(radius: float, scale: int = 1) -> float:\n    total: float = math.pi * radius\n    return total * scale",
    "imports": "from x import y\n" + BASE,
}
OTHER = {
    "constant": BASE.replace("scale=1", "scale=2"),
    "operator": BASE.replace("*", "+"),
    "order of arguments": BASE.replace("radius, scale=1", "scale, radius=1"),
    "attribute": BASE.replace("math.pi", "math.e"),
    "builtin": "def f(x):\n    return max(x)",
    "another builtin": "def f(x):\n    return min(x)",
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_matter(name):
    assert blind_hash(SAME[name]) == blind_hash(BASE)


def test_what_matters():
    hashes = {blind_hash(BASE), *map(blind_hash, OTHER.values())}
    assert len(hashes) == 1 + len(OTHER)


def test_what_does_not_parse_has_none():
    assert blind_hash("def f(:") is None
    assert blind_tokens("def f(:") == []
    for deep in ("(" * 5000 + ")" * 5000, "+".join("1" * 5000), "-" * 5000 + "1", "f" + "()" * 5000):
        assert blind_hash(f"x = {deep}") is None
        assert blind_tokens(f"x = {deep}") == []


NAMES = st.lists(st.from_regex(r"q[a-z]{1,6}", fullmatch=True), min_size=4, max_size=4, unique=True)


@given(NAMES)
def test_renaming_changes_nothing(names):
    source = "def f(xs, k):\n    best = [y for y in xs if y > k]\n    return sorted(best)[:k]"
    renamed = source
    for old, new in zip(("xs", "k", "best", "y"), names, strict=True):
        renamed = re.sub(rf"\b{old}\b", new, renamed)
    ast.parse(renamed)
    assert blind_hash(renamed) == blind_hash(source)
    assert blind_tokens(renamed) == blind_tokens(source)


def test_text_hash_ignores_white_space_alone():
    assert text_hash("a  b\n", "c") == text_hash("a b", " c")
    assert len({text_hash("a b", "c"), text_hash("ab", "c"), text_hash("a", "b c"), text_hash("\ud800")}) == 4
