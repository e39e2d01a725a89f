"""When two rows say the same: programs up to names and layout, and questions as words."""

import ast
import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

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
