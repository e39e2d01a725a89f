"""From a model's text to the program that a benchmark's own sanitizer keeps, read with Python's parser.

EvalPlus and BigCodeBench share the idea: the longest run of lines that parses, and of it the imports and the
definitions that the entry point needs. Both walk a tree-sitter tree; here the same statements are chosen from Python's
own. They are alike wherever the original's choice parses as Python, which its first step makes sure of.
docs/eval-code.md lists where they are not.
"""

from __future__ import annotations

import ast
import re
from itertools import accumulate

from codea1_cli.extract.source import PARSER, parse

_NEEDS_MORE = ("EOF", "never closed", "unterminated", "expected an indented", "expected 'except'")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_NAME_FIELDS = ("id", "attr", "arg", "name", "rest", "module", "asname")


def sanitize_evalplus(text: str, entry_point: str) -> str:
    """The program in a text; where nothing of it defines or imports anything, its longest run of lines that parses. A
    function without a `return` is left out."""
    code = longest_program(text)
    return _needed(code, entry_point, returning=True).strip() or code


def sanitize_bigcodebench(text: str, entry_point: str) -> str:
    """As EvalPlus', with functions that return nothing, and without what calls the entry point at the end."""
    kept = _without_tail(_needed(longest_program(text.strip()), entry_point), entry_point).strip()
    return kept or longest_program(text)


def longest_program(text: str) -> str:
    """The first of the longest runs of two or more lines that parse, by lines that are not blank; else one line."""
    lines = text.split("\n")
    filled = list(accumulate((bool(line.strip()) for line in lines), initial=0))
    best, best_at = 0, (0, 0)
    for first in range(len(lines)):
        if filled[-1] - filled[first] <= best:
            break
        last = len(lines) - 1
        while last > first and filled[last + 1] - filled[first] > best:
            bad = _first_bad_line("\n".join(lines[first : last + 1]))
            if bad is None:
                while last > first + 1 and not lines[last].strip():
                    last -= 1
                best, best_at = filled[last + 1] - filled[first], (first, last)
                break
            last = min(last - 1, first + bad - 2) if bad else last - 1
    return "\n".join(lines[best_at[0] : best_at[1] + 1])


def _first_bad_line(text: str) -> int | None:
    """None when `text` parses; else the line that no longer text can mend, 0 when the end may be at fault."""
    try:
        with PARSER:
            ast.parse(text, "<reply>")  # the file name whose warnings are not shown
    except SyntaxError as fault:
        open_end = any(words in (fault.msg or "") for words in _NEEDS_MORE)
        return 0 if open_end or not fault.lineno else fault.lineno
    except (ValueError, RecursionError, MemoryError):
        return 0
    return None


def _needed(code: str, entry_point: str, *, returning: bool = False) -> str:
    """The imports at the top level of a program, then the definitions that the entry point reaches through names.

    returning: only functions that hold a `return` count as definitions.
    """
    tree = parse(code)
    if tree is None:
        return ""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    imports = [node for node in imports if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        name = _defined_name(node, returning)
        if name is not None:
            defined.setdefault(name, node)
    reached, waiting = {entry_point}, [entry_point]
    while waiting:
        name = waiting.pop()
        fresh = _names(defined[name]) - reached if name in defined else set()
        reached |= fresh
        waiting += fresh
    lines = _LINE.findall(code.encode())
    kept = [*imports, *(node for name, node in defined.items() if name in reached)]
    return "\n".join(_source(lines, node) for node in kept)


def _defined_name(node: ast.stmt, returning: bool) -> str | None:
    """The name that a class, function or assignment is kept by; None for other statements and decorated definitions."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if node.decorator_list:
            return None
        left_out = returning and not isinstance(node, ast.ClassDef)
        return None if left_out and not any(isinstance(part, ast.Return) for part in ast.walk(node)) else node.name
    if isinstance(node, ast.Assign):
        parts = [node.targets[0], *([node.value] if len(node.targets) == 1 else [])]
    elif isinstance(node, ast.AnnAssign):
        parts = [node.target, *([node.value] if node.value is not None else [])]
    else:
        return None
    return next((part.id for part in parts if isinstance(part, ast.Name)), None)


def _names(node: ast.AST) -> set[str]:
    """All identifiers in a definition: variables, attributes, parameters, keywords and what it defines or imports."""
    names: set[str] = set()
    for part in ast.walk(node):
        for value in (getattr(part, field, None) for field in _NAME_FIELDS):
            if isinstance(value, str):
                names.update(value.split("."))
        if isinstance(part, ast.Global | ast.Nonlocal):
            names.update(part.names)
        elif isinstance(part, ast.MatchClass):
            names.update(part.kwd_attrs)
    return names


def _source(lines: list[bytes], node: ast.stmt) -> str:
    """The text of a statement. `lines` with their ends, as Python counts lines; columns are bytes."""
    part = lines[node.lineno - 1 : node.end_lineno]
    part[-1] = part[-1][: node.end_col_offset]
    part[0] = part[0][node.col_offset :]
    return b"".join(part).decode()


def _without_tail(code: str, entry_point: str) -> str:
    """Cuts from the first of the unindented lines at the end that name the entry point."""
    lines = code.splitlines()
    cut = None
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith(" "):
            break
        if entry_point in lines[number]:
            cut = number
    return code if cut is None else "\n".join(lines[:cut])
