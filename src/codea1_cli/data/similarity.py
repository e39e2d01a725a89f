"""When two rows say the same: programs up to names and layout, questions as words, and near ones found by MinHash.

Rows keep only their bands' hashes (a few hundred bytes each), and equal ones are found by sorting, so that hundreds of
thousands of rows fit in memory. Pairs found this way are candidates: callers compare the sets themselves.
"""

import ast
import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from codea1_cli.extract.source import parse, unparse

_TOKEN = re.compile(r"\w+|[^\w\s]")


def blind_hash(program: str) -> str | None:
    """A 128-bit digest (hex) of the program's syntax tree without the names it binds itself; None if it does not parse.

    Names it does not bind (builtins, imported functions), attributes, keywords of calls and constants count.
    """
    tree = parse(program)
    if tree is None:
        return None
    try:
        shape = ast.dump(_Blind(_bound(tree)).visit(tree), annotate_fields=False)
    except RecursionError:
        return None
    return hashlib.blake2b(shape.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def blind_tokens(program: str) -> list[str]:
    """The program's tokens, the names that it binds itself numbered; empty if it does not parse."""
    tree = parse(program)
    if tree is None:
        return []
    try:
        text = unparse(ast.fix_missing_locations(_Blind(_bound(tree)).visit(tree)))
    except RecursionError:
        return []
    return _TOKEN.findall(text or "")


def text_hash(*texts: str) -> str:
    """A 128-bit digest (hex) of texts up to white space."""
    joined = "\0".join(" ".join(text.split()) for text in texts)
    return hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _bound(tree: ast.AST) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            names.add(node.name)
    return frozenset(names)


class _Blind(ast.NodeTransformer):
    """Numbers bound names in the order in which they appear; methods keep theirs, since attributes do."""

    def __init__(self, bound: frozenset[str]) -> None:
        self.bound = bound
        self.numbers: dict[str, str] = {}
        self.in_class = False

    def number(self, name: str) -> str:
        return self.numbers.setdefault(name, f"v{len(self.numbers)}") if name in self.bound else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.number(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.number(node.arg))

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return ast.Module(self.body(node.body), [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        name = node.name if self.in_class else self.number(node.name)
        outer, self.in_class = self.in_class, False
        arguments = self.visit(node.args)
        decorators = [self.visit(decorator) for decorator in node.decorator_list]
        made = ast.FunctionDef(name, arguments, self.body(node.body), decorators)
        self.in_class = outer
        return made

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        name, bases = self.number(node.name), [self.visit(base) for base in node.bases]
        outer, self.in_class = self.in_class, True
        made = ast.ClassDef(name, bases, [], self.body(node.body), [])
        self.in_class = outer
        return made

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.Assign([self.visit(node.target)], self.visit(node.value))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        kind = self.visit(node.type) if node.type else None
        return ast.ExceptHandler(kind, self.number(node.name) if node.name else None, self.body(node.body))

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        kept = [self.visit(s) for s in statements if not _is_text(s)]
        return [s for s in kept if s is not None] or [ast.Pass()]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


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


NUM_PERM = 128
RECALL = 0.98  # of pairs exactly at the threshold; more similar pairs are found more surely
MAX_EARLIER = 20  # earlier rows of one band that a row is compared with


def bands(threshold: float, num_perm: int = NUM_PERM, recall: float = RECALL) -> tuple[int, int]:
    """(number of bands, rows per band): the longest bands that still find a pair at `threshold` with that probability.

    Two sets of similarity s share a band with probability 1 - (1 - s**rows) ** bands (Leskovec, Rajaraman, Ullman,
    Mining of Massive Datasets, 3.4.2). There are at least two bands.
    """
    best = (num_perm, 1)
    for rows in range(1, num_perm // 2 + 1):
        count = num_perm // rows
        if 1 - (1 - threshold**rows) ** count >= recall:
            best = (count, rows)
    return best


class Signer:
    """MinHash signatures; the same sets and seed give the same ones on every machine."""

    def __init__(self, seed: int = 1) -> None:
        from datasketch import MinHash

        self._empty = MinHash(num_perm=NUM_PERM, seed=seed)

    def sign(self, elements: Iterable[str]) -> Any:
        """The `datasketch.MinHash` of a set of texts."""
        made = self._empty.copy()
        made.update_batch([element.encode("utf-8", "surrogatepass") for element in elements])
        return made


class Bands:
    """Finds candidates among rows added one by one."""

    def __init__(self, threshold: float, signer: Signer) -> None:
        import numpy as np

        self.count, self.rows = bands(threshold)
        self.signer = signer
        self._keys = array("Q")
        self._numbers = array("Q")
        odd = np.random.default_rng(0).integers(0, 2**63, size=self.rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._odd = odd

    def add(self, number: int, elements: set[str]) -> None:
        """Adds row `number`; a row without elements is like no other."""
        import numpy as np

        if not elements:
            return
        values = self.signer.sign(elements).hashvalues[: self.count * self.rows].astype(np.uint64)
        mixed = (values.reshape(self.count, self.rows) + np.uint64(1)) * self._odd
        keys = np.bitwise_xor.reduce(mixed ^ (mixed >> np.uint64(29)), axis=1) * np.uint64(0x9E3779B97F4A7C15)
        self._keys.frombytes(keys.tobytes())
        self._numbers.append(number)

    def candidates(self) -> Iterator[tuple[int, list[int]]]:
        """(row, earlier rows that it may be like), rows in order; of a band at most the first MAX_EARLIER of them."""
        import numpy as np

        keys = np.frombuffer(self._keys, dtype=np.uint64).reshape(-1, self.count)
        numbers = np.frombuffer(self._numbers, dtype=np.uint64)
        sorted_bands = []
        for band in range(self.count):
            order = np.argsort(keys[:, band], kind="stable").astype(np.uint32)
            column = keys[order, band]
            new = np.concatenate(([True], column[1:] != column[:-1])) if len(order) else np.zeros(0, bool)
            start = np.maximum.accumulate(np.where(new, np.arange(len(order), dtype=np.uint32), 0)).astype(np.uint32)
            rank = np.empty(len(order), np.uint32)
            rank[order] = np.arange(len(order), dtype=np.uint32)
            sorted_bands.append((order, start, rank))
        for place in range(len(numbers)):
            earlier: set[int] = set()
            for order, start, rank in sorted_bands:
                stop = int(rank[place])
                first = int(start[stop])
                if first < stop:
                    earlier.update(order[first : min(stop, first + MAX_EARLIER)].tolist())
            if earlier:
                yield int(numbers[place]), [int(numbers[other]) for other in sorted(earlier)]
