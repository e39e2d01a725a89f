"""Which arguments a generated test may use: expressions over literals and pure builtins, nothing with an effect.

A suite runs in the sandbox whatever it says; the policy keeps tests to facts about the function. A call that reads a
clock, a file or an object's address states no such fact.
"""

import ast
import math
from collections.abc import Mapping

PURE = frozenset(
    [
        "abs",
        "all",
        "any",
        "ascii",
        "bin",
        "bool",
        "bytearray",
        "bytes",
        "chr",
        "complex",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "frozenset",
        "hex",
        "int",
        "len",
        "list",
        "map",
        "max",
        "min",
        "object",
        "oct",
        "pow",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "slice",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
        "Exception",
        "ValueError",
        "TypeError",
        "KeyError",
        "IndexError",
        "ZeroDivisionError",
    ]
)
"""Builtins allowed as values and as calls."""

_CLASSES = {"Decimal": "decimal", "Fraction": "fractions"}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_NOT_FINITE = {"inf", "nan"}
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


def bound_names(expression: ast.expr) -> frozenset[str]:
    """The names that lambdas and comprehensions inside `expression` bind."""
    return frozenset(
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(expression)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )


class SelfContained(ast.NodeTransformer):
    """Replaces variables by their values, and known names of modules by expressions that need no import.

    `Decimal("1")` would raise NameError in a candidate that does not import it, and so fail a right solution.
    """

    def __init__(self, variables: Mapping[str, ast.expr], bound: frozenset[str]) -> None:
        self.variables = variables
        self.bound = bound

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.bound or not isinstance(node.ctx, ast.Load):
            return node
        if node.id in self.variables:
            return self.variables[node.id]
        if node.id in _NOT_FINITE:  # as repr writes them
            return _known("math", node.id) or node
        return _known(_CLASSES.get(node.id, ""), node.id) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
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
