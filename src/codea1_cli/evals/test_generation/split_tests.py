"""From what a model writes to tests: a reply's first assert, or each assert of a suite, with what stands before it.

The published rule: imports, helpers and assignments before the first assert belong to the test; an assert that stands
in a function without arguments is reached by running that function's body. No assert at all: no test.
"""

from __future__ import annotations

import ast
import re

from codea1_cli.evals.test_generation.entries import Statements, checks, runs_of
from codea1_cli.extract.code import answer_text, before_first_fence, python_bodies
from codea1_cli.extract.source import (
    MAX_REPLY_CHARS,
    MAX_STATEMENT_CHARS,
    LineReader,
    normal_newlines,
    parse,
    unparse,
    within,
)

_MAX_SUITE_CHARS = 20_000_000  # each test holds all that stands before it: what is beyond is not read
_ASSERT = re.compile(r"^[ \t]*assert\b", re.MULTILINE)
_TEST = re.compile(r"^[ \t]*(?:(?:assert|try|with|raise|class)\b|def[ \t]+test)", re.MULTILINE)


def first_test(reply: str) -> str | None:
    """The test in a reply: the source of its statements, the assert last. None when there is none."""
    for part in _parts(reply):
        for source in _starts(part):
            tree = parse(source)
            if tree is not None:
                # The longest part that parses decides: an assert within other statements is not a test.
                found = _up_to_assert(tree)
                if found is not None:
                    return _source(found)
                break
    return None


def split_suite(text: str) -> list[str]:
    """The tests of a whole suite, in order: one per assert and per block that checks (`entries.checks`), after the
    statements before it that are not tests; and one per method of a test class and per test function that cannot be
    taken apart into those.

    Used for suites that were not written in rounds. A line that does not parse costs that line. Never raises, in time
    and memory that are bounded whatever the text.
    """
    tests: list[str] = []
    before: list[str] = []
    helpers: set[str] = set()  # functions of the suite that check what they are given
    room = _MAX_SUITE_CHARS
    for part in _parts(text)[:1]:
        for node in (inner for statement in _statements(part) for inner in _flat(statement)):
            source = unparse(node)
            if source is None:
                continue
            runs = [unparse(ast.Module(run, [])) or "" for run in runs_of(node)]
            if checks(node) or _calls(node, helpers):
                runs = [source]
            else:
                before.append(source)
            if isinstance(node, ast.FunctionDef) and any(map(checks, node.body)):
                helpers.add(node.name)
            for run in runs:
                tests.append("\n".join([*before, run]))
                room -= len(tests[-1])
                if room < 0:
                    return tests
    return tests


def wrap_test(statements: str, token: str, name: str = "codea1_test") -> str | None:
    """The statements as one function, which returns `token` behind its last line; None where they have no source."""
    tree = parse(statements)
    if tree is None or not tree.body:
        return None
    body = [*tree.body, ast.Return(ast.Constant(token))]
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return unparse(ast.fix_missing_locations(ast.FunctionDef(name, empty, body, [], lineno=1, col_offset=0)))


def binds(statements: str, name: str) -> bool:
    """Whether a test gives `name` a value of its own, be it by assignment, definition, import or as a loop variable."""
    tree = parse(statements)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) == name:
            return True
    return False


_CALLED = {
    "abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "enumerate", "float", "frozenset", "int",
    "isinstance", "len", "list", "max", "min", "pow", "range", "repr", "reversed", "round", "set", "sorted", "str",
    "sum", "tuple", "zip",
}  # fmt: skip
_PLAIN = (
    ast.Assert, ast.Compare, ast.Call, ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict,
    ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Subscript, ast.Slice, ast.keyword, ast.operator, ast.unaryop, ast.boolop,
    ast.cmpop,
)  # fmt: skip


def is_plain(statements: str, name: str) -> bool:
    """Whether a test is one assert of calls of `name` and harmless builtins on literals: it can change nothing."""
    tree = parse(statements)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return False
    nodes = list(ast.walk(tree.body[0]))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return all(isinstance(node, _PLAIN) for node in nodes) and names <= _CALLED | {name}


def _parts(reply: str) -> list[str]:
    """Where to look: the python blocks, then the text that stands before any fence."""
    answer = answer_text(reply[:MAX_REPLY_CHARS])
    if answer is None:
        return []
    blocks = "\n".join(python_bodies(answer))
    parts = (blocks, before_first_fence(answer))
    return [part for part in parts if _ASSERT.search(part)] or [part for part in parts if _TEST.search(part)]


def _starts(text: str) -> list[str]:
    """The text as it stands, up to its first assert, and that assert alone: what follows may be cut off or prose."""
    text = normal_newlines(text)
    first = _ASSERT.search(text)
    if first is None:
        return []
    begin = text.rfind("\n", 0, first.end()) + 1
    line = LineReader(text).read(begin)
    if line is None or len(line.text) > MAX_STATEMENT_CHARS:
        return [text]
    alone = [line.text, line.text.partition("\n")[0].rstrip()]
    return [text, text[: line.end], *dict.fromkeys(alone)]


def _up_to_assert(tree: ast.Module) -> Statements | None:
    for at, node in enumerate(tree.body):
        found = [node] if isinstance(node, ast.Assert) else _body_with_assert(node)
        if found is not None:
            return [*tree.body[:at], *found]
    return None


def _body_with_assert(node: ast.stmt) -> Statements | None:
    """A function's statements up to its first assert, None when it has none or wants arguments."""
    body = _plain_body(node)
    return next((body[: at + 1] for at, inner in enumerate(body) if isinstance(inner, ast.Assert)), None)


def _plain_body(node: ast.stmt) -> Statements:
    """The body of a function without arguments and decorators; of anything else nothing."""
    if isinstance(node, ast.FunctionDef) and not node.decorator_list and not any(ast.iter_child_nodes(node.args)):
        return node.body
    return []


def _statements(text: str) -> list[ast.stmt]:
    tree = parse(text)
    if tree is not None:
        return tree.body
    found: Statements = []
    reader = LineReader(normal_newlines(text))
    position = 0
    while (line := reader.read(position)) is not None:
        position = line.end
        part = parse(line.text) if len(line.text) <= MAX_STATEMENT_CHARS else None
        if part is None and "\n" in line.text:
            line = reader.first_physical(line)
            position = line.end
            part = parse(line.text)
        if part is not None:
            found += part.body
    return found


def _flat(node: ast.stmt) -> Statements:
    """The statement itself; of a function without arguments that asserts or else checks, its body."""
    body = _plain_body(node)
    leaves = any(isinstance(part, ast.Return | ast.Yield | ast.YieldFrom) for part in within(node))
    whole = leaves and getattr(node, "name", "").startswith("test")
    return body if any(map(checks, body)) and not whole else [node]


def _calls(node: ast.stmt, names: set[str]) -> bool:
    """Whether a statement is a call of one of `names` and nothing else."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names


def _source(statements: Statements) -> str | None:
    parts = [unparse(node) for node in statements]
    return None if None in parts else "\n".join(part for part in parts if part is not None)
