"""Which arguments a generated test may use: expressions over literals and pure builtins, nothing with an effect.

A suite runs in the sandbox whatever it says; the policy keeps tests to facts about the function. A call that reads a
clock, a file or an object's address does not state such a fact.
"""

import ast

from codea1_cli.extract.inline_variables import bound_names, imported_class

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
