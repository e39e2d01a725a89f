"""EvalPlus' sanitiser: the longest run of lines that parses, and of it the imports and what the entry point needs.

EvalPlus walks a tree-sitter tree; here the same statements are chosen from Python's own. They are alike wherever
EvalPlus' choice parses as Python, which its first step makes sure of. docs/eval-code.md lists where they are not.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable

from codea1_cli.extract.source import PARSER

_NEEDS_MORE = ("never closed", "unterminated", "EOF")


def sanitise(text: str, entry_point: str) -> str:
    """The program in a text; where nothing of it defines or imports anything, its longest run of lines that parses."""
    code = longest_code(text)
    tree = _parse(code)[0]
    lines = code.encode().split(b"\n")
    if tree is None:
        return code
    kept = [_source(lines, node) for node in tree.body if _is_import(node)]
    named = _definitions(tree)
    reached = _reached(entry_point, {name: _names(node) for name, node in named.items()})
    kept += [_source(lines, node) for name, node in named.items() if name in reached]
    return "\n".join(kept).strip() or code


def longest_code(text: str) -> str:
    """The run of lines with the most non-blank ones that parses; of several the first."""
    lines = text.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    broken: dict[int, int] = {}  # first line of a run -> a line after which it can no longer parse
    for count in range(len(filled), 0, -1):
        for place in range(len(filled) - count + 1):
            first = filled[place - 1] + 1 if place else 0
            last = max(filled[place + count - 1], first + 1)  # EvalPlus takes two lines or more
            if last == len(lines) or (count == 1 and last > filled[place] and lines[last].strip()):
                continue
            if last >= broken.get(first, len(lines)):
                continue
            tree, error = _parse("\n".join(lines[first : last + 1]))
            if tree is not None:
                return "\n".join(lines[first : last + 1])
            if error is not None and error.lineno and not any(word in str(error.msg) for word in _NEEDS_MORE):
                at = first + error.lineno - 1
                if at < last:
                    broken[first] = min(broken.get(first, len(lines)), at + 1)
    return lines[0] if lines else ""


def _parse(source: str) -> tuple[ast.Module | None, SyntaxError | None]:
    try:
        with PARSER, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source), None
    except SyntaxError as fault:
        return None, fault
    except (MemoryError, RecursionError, ValueError):
        return None, None


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__")


def _definitions(tree: ast.Module) -> dict[str, ast.AST]:
    """Top-level classes, functions with a return, and assignments by their first name; decorated ones are none."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        name = ""
        if isinstance(node, ast.ClassDef) and not node.decorator_list:
            name = node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
            name = node.name if any(isinstance(part, ast.Return) for part in ast.walk(node)) else ""
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            name = _first_name(node)
        if name:
            found.setdefault(name, node)
    return found


def _first_name(node: ast.Assign | ast.AnnAssign) -> str:
    """The first bare name among the assignment's direct parts: a target's, or where that is none the value's."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts: Iterable[ast.expr | None] = [targets[0], *([node.value] if len(targets) == 1 else [])]
    return next((part.id for part in parts if isinstance(part, ast.Name)), "")


def _names(node: ast.AST) -> set[str]:
    """All identifiers in a definition: variables, attributes, parameters, keywords and what it defines or imports."""
    names: set[str] = set()
    for part in ast.walk(node):
        for field in ("id", "attr", "arg", "name", "rest", "module", "asname"):
            value = getattr(part, field, None)
            if isinstance(value, str):
                names.update(value.split("."))
        if isinstance(part, ast.Global | ast.Nonlocal):
            names.update(part.names)
    return names


def _reached(entry_point: str, needs: dict[str, set[str]]) -> set[str]:
    reached, waiting = {entry_point}, [entry_point]
    while waiting:
        fresh = needs.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting += fresh
    return reached


def _source(lines: list[bytes], node: ast.AST) -> str:
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    part = lines[first : last + 1]
    part[-1] = part[-1][: node.end_col_offset]  # type: ignore[attr-defined]
    part[0] = part[0][node.col_offset :]  # type: ignore[attr-defined]
    return b"\n".join(part).decode()
