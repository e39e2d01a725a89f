"""Values in place of the variables of an expression."""

import ast
import copy
from collections.abc import Mapping

MAX_NODES = 5_000  # syntax nodes of one expression after its variables are replaced


class Substitute(ast.NodeTransformer):
    """Replaces variables by their values, and `module.f(...)` by `f(...)`."""

    def __init__(self, env: Mapping[str, ast.expr], bound: frozenset[str], entry: str) -> None:
        self.env, self.bound, self.entry = env, bound, entry
        self.left = MAX_NODES

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id in self.bound or node.id not in self.env:
            return node
        value = self.env[node.id]
        self.left -= sum(1 for _ in ast.walk(value))
        return copy.deepcopy(value) if self.left > 0 else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr == self.entry
            and isinstance(function.value, ast.Name)
            and function.value.id not in self.env
        ):
            node.func = ast.Name(self.entry, ast.Load())
        return self.generic_visit(node)
