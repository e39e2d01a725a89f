"""From a Test LLM's reply to its assert statements.

A suite runs in the sandbox whatever it says; its arguments keep to expressions over literals and pure builtins all the
same. A call that reads a clock, a file or an object's address does not state a fact about the function.
"""

import ast
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from codea1_cli.extract.code import PAPER_BLOCK, answer_text, before_first_fence, python_bodies
from codea1_cli.extract.folding import Stated, fold
from codea1_cli.extract.inline_variables import Scope, bound_names, header_tree, imported_class
from codea1_cli.extract.source import (
    MAX_REPLY_CHARS,
    MAX_STATEMENT_CHARS,
    LineReader,
    normal_newlines,
    parse,
    parse_call,
    unparse,
)

SYNTAX = "syntax"
NESTED = "nested"
NO_COMPARISON = "no_comparison"
OTHER_COMPARISON = "other_comparison"
CHAINED = "chained"
OTHER_CALL = "other_call"
SELF_COMPARISON = "self_comparison"
ARGUMENTS = "arguments"
TOO_LARGE = "too_large"

_ASSERT = re.compile(r"assert\b")
_ASSERT_LINE = re.compile(r"^[ \t]*assert\b", re.MULTILINE)


@dataclass(frozen=True)
class AssertStatement:
    """One assert of a suite.

    `call` is the call in normal form, its variables replaced by their values, None when invalid. `stated` is the
    answer the model gave, None when it does not fold. `invalid` is the reason that it is not a test, None for a test.
    """

    source: str
    call: str | None = None
    stated: Stated | None = None
    invalid: str | None = None


def parse_suite(text: str, entry_point: str, cap: int | None = None, mode: str = "default") -> list[AssertStatement]:
    """The first `cap` asserts of a reply (all when None), in order; never raises, whatever the text.

    default: every assert counts; one that is not `assert entry_point(arguments) == value` carries the reason. A suite
    whose python blocks hold no assert is read up to its first fence.
    paper: asserts that do not parse or compare no call are left out, any call counts (`f(x).count("a")` too, then
    `call` is that expression), other comparisons are read as `==`.
    """
    return list(islice(_SuiteReader(entry_point, mode).read(_source(text, mode)), cap))


def votes(suites: Sequence[str], entry_point: str) -> dict[str, list[Stated]]:
    """What samples state of each call: one vote of each sample that states a value, its first."""
    found: dict[str, list[Stated]] = {}
    for suite in suites:
        seen = set()
        for one in parse_suite(suite, entry_point):
            if one.invalid is None and one.call is not None and one.call not in seen:
                seen.add(one.call)
                found.setdefault(one.call, []).extend([one.stated] if one.stated is not None else [])
    return found


def readable(call: str) -> bool:
    """Whether no argument of a call is a comparison: a suite cut off or garbled reads as one."""
    return not any(isinstance(one, ast.Compare | ast.BoolOp) for one in parse_call(call).args)


def _source(text: str, mode: str) -> str:
    """The Python source to read: all blocks as one text, so that variables live on from block to block."""
    if mode == "paper":
        text = normal_newlines(text[:MAX_REPLY_CHARS])
        return "\n".join(PAPER_BLOCK.findall(text)) or text
    answer = answer_text(text)
    if answer is None:
        return ""
    blocks = "\n".join(python_bodies(answer))
    return blocks if _ASSERT_LINE.search(blocks) else before_first_fence(answer)


class _SuiteReader:
    def __init__(self, entry_point: str, mode: str) -> None:
        self.entry_point = unicodedata.normalize("NFKC", entry_point)  # as ast does to identifiers
        self.paper = mode == "paper"

    def read(self, source: str) -> Iterator[AssertStatement]:
        """The asserts of `source`, in time linear in its length."""
        lines = LineReader(source)
        scope = Scope(one_level=self.paper)
        position = 0
        second_looks = len(source)  # characters that may be read again after a line that does not parse
        while (line := lines.read(position)) is not None:
            position = line.end
            if not line.text or line.text.startswith("#"):
                continue
            tree, header = _read_line(line.text)
            if tree is None and header is None and "\n" in line.text and second_looks > 0:
                second_looks -= line.end - line.start
                line = lines.first_physical(line)
                position = line.end
                tree, header = _read_line(line.text)
            live = scope.enter(line.indent, line.text, tree, header) or self.paper
            if tree is not None:
                for node in tree.body:
                    text = line.text if len(tree.body) == 1 else unparse(node) or line.text
                    yield from self._node(node, text, scope, live)
            elif _ASSERT.match(line.text) and not self.paper:
                too_long = len(line.text) > MAX_STATEMENT_CHARS
                yield AssertStatement(_shown(line.text), invalid=TOO_LARGE if too_long else SYNTAX)

    def _node(self, node: ast.stmt, text: str, scope: Scope, live: bool) -> Iterator[AssertStatement]:
        if isinstance(node, ast.Assert):
            statement = self._assert(node, text, scope, live)
            if statement is not None:
                yield statement
            return
        scope.execute(node, live)
        if not self.paper:
            nested = sum(isinstance(child, ast.Assert) for child in ast.walk(node))
            yield from [AssertStatement(_shown(text), invalid=NESTED)] * nested

    def _assert(self, node: ast.Assert, text: str, scope: Scope, live: bool) -> AssertStatement | None:
        compare, source = node.test, _shown(text)
        if self.paper:
            if not (isinstance(compare, ast.Compare) and isinstance(compare.left, ast.Call)):
                return None
        elif (reason := self._reason(compare) if live else NESTED) is not None:
            return AssertStatement(source, invalid=reason)
        assert isinstance(compare, ast.Compare)
        return self._test(source, compare.left, compare.comparators[0], scope)

    def _reason(self, test: ast.expr) -> str | None:
        """Why `assert test` is not an equality test of the function, None when it is one."""
        if not isinstance(test, ast.Compare):
            return NO_COMPARISON
        if len(test.ops) > 1:
            return CHAINED
        if not isinstance(test.ops[0], ast.Eq):
            return OTHER_COMPARISON
        if not self._is_call(test.left):
            return OTHER_CALL
        if any(isinstance(n, ast.Name) and n.id == self.entry_point for n in ast.walk(test.comparators[0])):
            return SELF_COMPARISON
        return None

    def _is_call(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == self.entry_point

    def _test(self, source: str, call: ast.expr, answer: ast.expr, scope: Scope) -> AssertStatement:
        assert isinstance(call, ast.Call)
        resolved = scope.resolve_call(call)
        if resolved is None:
            return AssertStatement(source, invalid=TOO_LARGE)
        arguments = [*resolved.args, *(keyword.value for keyword in resolved.keywords)]
        if not self.paper and not allowed(arguments):
            return AssertStatement(source, invalid=ARGUMENTS)
        text = unparse(resolved)
        if text is None or len(text) > MAX_STATEMENT_CHARS:
            return AssertStatement(source, invalid=TOO_LARGE)
        stated = scope.resolve(answer)
        return AssertStatement(source, text, fold(stated) if stated is not None else None)


def _read_line(text: str) -> tuple[ast.Module | None, ast.Module | None]:
    """The tree of a whole statement, and of a block's header when it is one."""
    if len(text) > MAX_STATEMENT_CHARS:
        return None, None
    tree = parse(text)
    return tree, header_tree(text) if tree is None else None


def _shown(text: str) -> str:
    return text[:MAX_STATEMENT_CHARS]


# -- which arguments a test may use ------------------------------------------------------------------------------------
PURE = frozenset({
    "abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "chr", "complex", "dict", "divmod",
    "enumerate", "filter", "float", "frozenset", "hex", "int", "len", "list", "map", "max", "min", "object", "oct",
    "pow", "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip", "Exception",
    "ValueError", "TypeError", "KeyError", "IndexError", "ZeroDivisionError",
})  # fmt: skip
"""Builtins allowed as values and as calls."""

_TYPES = {"str", "bytes", "int", "float", "list", "dict", "set", "tuple"}

_NODES = (
    ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred, ast.keyword,
    ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.Name, ast.Attribute,
    ast.Call, ast.Lambda, ast.arguments, ast.arg, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def allowed(expressions: list[ast.expr]) -> bool:
    """Whether all `expressions` keep to the policy; walks without recursion."""
    return all(_allowed(expression) for expression in expressions)


def _allowed(expression: ast.expr) -> bool:
    bound = bound_names(expression)
    names = PURE | bound
    pending: list[ast.AST] = [expression]
    while pending:
        node = pending.pop()
        if not isinstance(node, _NODES) or (isinstance(node, ast.comprehension) and node.is_async):
            return False
        if isinstance(node, ast.Attribute):
            if not _attribute_allowed(node, bound):
                return False
            continue
        if isinstance(node, ast.Name) and node.id not in names:
            return False
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name | ast.Attribute):
            return False
        pending += ast.iter_child_nodes(node)
    return True


def _attribute_allowed(node: ast.Attribute, bound: frozenset[str]) -> bool:
    if node.attr.startswith("_") or node.attr in ("format", "format_map"):
        return False
    base = node.value
    if isinstance(base, ast.Name):
        return base.id in _TYPES or base.id in bound
    if isinstance(base, ast.Call):
        return imported_class(node) is not None
    return isinstance(base, ast.Constant) and isinstance(base.value, str | bytes)
