"""Values in place of variables: what a suite's statements leave behind for its asserts, and which lines run at all."""

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from codea1_cli.extract.source import parse

MAX_NODES = 20_000
"""Syntax nodes of one expression after its variables are replaced: `b = [a, a]`, `c = [b, b]`, ... double each time."""

_HEADER = re.compile(r"(?:async\s+)?(def|class|if|elif|else|for|while|with|try|except|finally|match|case)\b")
_MAIN_GUARD = re.compile(r"if\s+__name__\s*==")
_CLASSES = {
    "Decimal": "decimal",
    "Fraction": "fractions",
    **dict.fromkeys(("date", "datetime", "time", "timedelta"), "datetime"),
    **dict.fromkeys(("Counter", "OrderedDict", "deque"), "collections"),
}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_NOT_FINITE = {"inf", "nan"}


def bound_names(expression: ast.expr) -> frozenset[str]:
    """The names that lambdas and comprehensions inside `expression` bind."""
    return frozenset(
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(expression)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )


class InlineVariables(ast.NodeTransformer):
    """Replaces variables by their values; the values are shared, not copied.

    bound: names that the expression itself binds, which stay. limit: once the values put in come to that many syntax
    nodes, later variables stay too; None for a caller that has counted before.
    """

    def __init__(self, variables: Mapping[str, ast.expr], bound: frozenset[str], limit: int | None = None) -> None:
        self.variables, self.bound, self.left = variables, bound, limit

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The value of a variable that is read."""
        if node.id in self.bound or not isinstance(node.ctx, ast.Load):
            return node
        value = self.variables.get(node.id)
        if value is None:
            return self.unknown(node)
        if self.left is not None:
            self.left -= sum(1 for _ in ast.walk(value))
        return node if self.left is not None and self.left <= 0 else value

    def unknown(self, node: ast.Name) -> ast.expr:
        """What stands for a name that is not a variable: itself."""
        return node


class SelfContained(InlineVariables):
    """Replaces known names of modules, too, by expressions that need no import.

    `Decimal("1")` would raise NameError in a candidate that does not import it, and so fail a right solution.
    """

    def unknown(self, node: ast.Name) -> ast.expr:
        """The expression of a known name; inf and nan stand bare where repr wrote them."""
        module = "math" if node.id in _NOT_FINITE else _CLASSES.get(node.id, "")
        return _known(module, node.id) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """The expression of a known name of a module, such as `math.pi`."""
        base = node.value
        if isinstance(base, ast.Name) and base.id not in self.bound and base.id not in self.variables:
            return _known(base.id, node.attr) or node
        return self.generic_visit(node)


def _known(module: str, name: str) -> ast.expr | None:
    if module == "math" and name in _NOT_FINITE:
        return ast.Call(ast.Name("float", ast.Load()), [ast.Constant(name)], [])
    if module == "math" and name in _CONSTANTS:
        return ast.Constant(_CONSTANTS[name])
    if name in _CLASSES and _CLASSES[name] == module:
        imported = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant(module)], [])
        return ast.Attribute(imported, name, ast.Load())
    return None


def imported_class(node: ast.expr) -> str | None:
    """The name of the class that an expression made by SelfContained stands for, else None."""
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call)):
        return None
    call = node.value
    if not (isinstance(call.func, ast.Name) and call.func.id == "__import__" and len(call.args) == 1):
        return None
    module = call.args[0]
    known = isinstance(module, ast.Constant) and not call.keywords and _CLASSES.get(node.attr) == module.value
    return node.attr if known else None


class Scope:
    """The variables of a suite and the blocks around its current line.

    Only simple assignments are followed. Whatever else may change a variable makes it unknown again.
    """

    def __init__(self, one_level: bool = False) -> None:
        self._values: dict[str, ast.expr] = {}
        self._sizes: dict[str, int] = {}
        self._blocks: list[tuple[int, bool]] = []  # indentation of the header, whether its body is live
        self._one_level = one_level

    def enter(self, indent: int, text: str, tree: ast.Module | None, header: ast.Module | None) -> bool:
        """Take in a line before its statements are executed; returns whether it is live.

        `tree` is the whole statement when the line is one, `header` that of a block that the line opens. Live are the
        top level and the bodies of test functions, classes and the main guard: what a test runner would run, once.
        Loops, branches and other functions are not.
        """
        while self._blocks and indent <= self._blocks[-1][0]:
            self._blocks.pop()
        live = self._blocks[-1][1] if self._blocks else True
        keyword = _HEADER.match(text)
        if tree is None and keyword:
            runs = keyword[1] == "class" or bool(_MAIN_GUARD.match(text))
            for node in header.body if header else ():
                self._forget(_names_bound(node))
                runs = runs or (isinstance(node, ast.FunctionDef) and node.name.startswith("test"))
            self._blocks.append((indent, live and runs))
        return live

    def execute(self, node: ast.stmt, live: bool) -> None:
        """Follow a simple assignment; forget every variable that another statement may change."""
        if isinstance(node, ast.Assign) or (isinstance(node, ast.AnnAssign) and node.value is not None):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            followed = live and (not self._one_level or (isinstance(node, ast.Assign) and len(targets) == 1))
            value = self.resolve(node.value) if followed and node.value is not None else None
            size = self._size(node.value) if node.value is not None else 0
            self._forget(_names_bound(node))
            for target in targets:
                if value is not None and isinstance(target, ast.Name):
                    self._values[target.id], self._sizes[target.id] = value, size
        elif not self._one_level and not _is_print(node):
            self._forget(child.id for child in ast.walk(node) if isinstance(child, ast.Name))
            self._forget(_names_bound(node))

    def resolve(self, node: ast.expr) -> ast.expr | None:
        """`node` with variables replaced, at any depth; None when that makes it too large."""
        if self._one_level:
            return node
        if self._size(node) > MAX_NODES:
            return None
        try:
            resolved = SelfContained(self._values, bound_names(node)).visit(node)
        except RecursionError:
            return None
        assert isinstance(resolved, ast.expr)
        return resolved

    def resolve_call(self, call: ast.Call) -> ast.Call | None:
        """The call with its arguments resolved; with one level, only arguments that are variables themselves."""
        change: Callable[[ast.expr], Any] = self._variable if self._one_level else self.resolve
        if not self._one_level and sum(self._size(part) for part in (*call.args, *call.keywords)) > MAX_NODES:
            return None
        args = [change(argument) for argument in call.args]
        keywords = [ast.keyword(keyword.arg, change(keyword.value)) for keyword in call.keywords]
        whole = None not in args and all(keyword.value is not None for keyword in keywords)
        return ast.Call(call.func, args, keywords) if whole else None

    def _variable(self, node: ast.expr) -> ast.expr:
        return self._values.get(node.id, node) if isinstance(node, ast.Name) else node

    def _size(self, node: ast.AST) -> int:
        return sum(
            self._sizes.get(child.id, 1) if isinstance(child, ast.Name) else 1
            for child in ast.walk(node)
            if not isinstance(child, ast.expr_context)
        )

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._values.pop(name, None)
            self._sizes.pop(name, None)


def header_tree(text: str) -> ast.Module | None:
    """The tree of a line that opens a block, None for any other line (and for else, except and their like)."""
    return parse(text + " pass") if _HEADER.match(text) else None


def _names_bound(node: ast.AST) -> list[str]:
    names = []
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store | ast.Del):
            names.append(child.id)
        elif isinstance(child, ast.Subscript | ast.Attribute) and isinstance(child.ctx, ast.Store | ast.Del):
            names += [part.id for part in ast.walk(child.value) if isinstance(part, ast.Name)]
        elif isinstance(child, ast.arg):
            names.append(child.arg)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(child.name)
        elif isinstance(child, ast.alias):
            names.append((child.asname or child.name).partition(".")[0])
    return names


def _is_print(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
