"""What a question says, as words: the prose without its code, so that two wordings of one task can be compared."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_EXAMPLE = re.compile(r"^[ \t]*>>>.*(?:\n(?![ \t]*$).+)*", re.MULTILINE)  # with the answer below it
_CODE_LINE = re.compile(r"^\s*(?:assert\b|def |import |from \w+ import|@).*$", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+")

# Said of nearly every task, so that sharing them says nothing.
_EMPTY_TEXT = """
a an are as at be by for from given function in is it its of on python that the this to using with write which
will you your should return returns
"""
_EMPTY = frozenset(_WORD.findall(_EMPTY_TEXT))


def prose(question: str) -> str:
    """The question without fenced code, doctest examples, asserts and declarations; the whole where nothing is left."""
    text = _CODE_LINE.sub(" ", _EXAMPLE.sub(" ", _FENCE.sub(" ", question)))
    return text if _WORD.search(text) else question


def words(text: str) -> list[str]:
    """The words of `text` in order, in lower case."""
    return _WORD.findall(text.casefold())


def telling(of: Iterable[str]) -> list[str]:
    """The words that tell tasks apart, in order; all of them when none does."""
    everything = list(of)
    return [word for word in everything if word not in _EMPTY] or everything


def question_set(question: str) -> set[str]:
    """What a question is compared by: its telling words and its pairs of neighbouring ones, since "degrees to radians"
    and "radians to degrees" have the same words."""
    kept = telling(words(prose(question)))
    return set(kept) | {" ".join(pair) for pair in pairwise(kept)}


def shingles(of: Sequence[str], size: int) -> set[str]:
    """Runs of `size` words; one shorter run when there are fewer words."""
    return {" ".join(of[i : i + size]) for i in range(max(1, len(of) - size + 1))}


def jaccard(a: frozenset[str] | set[str], b: frozenset[str] | set[str]) -> float:
    """Shared elements over all elements; 0 for two empty sets."""
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared) if shared else 0.0
