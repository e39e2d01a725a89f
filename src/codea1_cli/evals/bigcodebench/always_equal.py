"""Programs whose values claim to equal anything: BigCodeBench's tests run beside the program and would believe them.

Read from the source, so only what is plain to see is found: `unittest.mock.ANY`, and a comparison that never looks at
what it is compared with.
"""

from __future__ import annotations

import ast

from codea1_cli.extract.source import parse

_COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}


def lie_in(code: str) -> str:
    """What makes a value of this program equal to anything, else empty; also for source that does not parse."""
    tree = parse(code)
    if tree is None:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in _COMPARISONS:
            if not _looks(node.args, node.body):
                return f"line {node.lineno}: {node.name} never looks at what it is compared with"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & _COMPARISONS and not _looks(node.value.args, [node.value.body]):
                return f"line {node.lineno}: a comparison that never looks at what it is compared with"
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                named = isinstance(key, ast.Constant) and key.value in _COMPARISONS
                if named and isinstance(value, ast.Lambda) and not _looks(value.args, [value.body]):
                    return f"line {node.lineno}: a comparison that never looks at what it is compared with"
        elif (isinstance(node, ast.Attribute) and node.attr == "ANY" and _ends_in_mock(node.value)) or (
            isinstance(node, ast.ImportFrom)
            and node.module == "unittest.mock"
            and any(name.name in ("ANY", "_ANY") for name in node.names)
        ):
            return f"line {node.lineno}: mock.ANY equals everything"
    return ""


def _looks(arguments: ast.arguments, body: list) -> bool:
    """Whether a two-argument comparison reads its second argument (other shapes get the benefit of the doubt)."""
    named = [*arguments.posonlyargs, *arguments.args]
    if len(named) != 2 and arguments.vararg is None:
        return True
    other = named[1].arg if len(named) >= 2 else (arguments.vararg.arg if arguments.vararg else "")
    if all(isinstance(part, ast.Raise) for part in body if not _is_text(part)):
        return True
    return any(isinstance(node, ast.Name) and node.id == other for part in body for node in ast.walk(part))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _ends_in_mock(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == "mock") or (
        isinstance(node, ast.Attribute) and node.attr == "mock"
    )
