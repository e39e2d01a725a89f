"""From a model's text to the program that BigCodeBench's own sanitiser would keep, read with Python's parser.

The longest run of lines that is a program; of it the imports, and the definitions that the entry point needs. What the
original keeps or drops by the shape of its syntax tree (decorated definitions and `if` blocks go, an assignment goes by
the name it assigns) is kept or dropped here too.
"""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from itertools import accumulate

from codea1_cli.extract.source import PARSER, parse


def sanitize(text: str, entry_point: str) -> str:
    """The program in `text`; where nothing is left of it, the longest run of lines that parses."""
    kept = _target(longest_program(text.strip()), entry_point).strip()
    return kept or longest_program(text)


def longest_program(text: str) -> str:
    """The first of the longest runs of two or more lines that parse, by lines that are not blank."""
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
        words = fault.msg or ""
        open_end = any(
            word in words
            for word in ("EOF", "never closed", "unterminated", "expected an indented", "expected 'except'")
        )
        return 0 if open_end or not fault.lineno else fault.lineno
    except (ValueError, RecursionError, MemoryError):
        return 0
    return None


def _target(code: str, entry_point: str) -> str:
    tree = parse(code)
    if tree is None:
        return ""
    imports, definitions, names = [], [], set()
    for node in tree.body:
        source = ast.get_source_segment(code, node) or ""
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            imports.append(source)
            continue
        name = _defined_name(node)
        if name is not _NOTHING and name not in names:
            names.add(name)
            definitions.append((name, source))
    calls = {name: _identifiers(source) for name, source in definitions}
    reached, queue = {entry_point}, [entry_point]
    while queue:
        for name in calls.get(queue.pop(0), ()):
            if name not in reached:
                reached.add(name)
                queue.append(name)
    kept = "\n".join([*imports, *(source for name, source in definitions if name in reached)])
    return _without_tail(kept, entry_point)


_NOTHING = object()


def _defined_name(node: ast.stmt) -> object:
    """The name under which a top-level statement is kept; None where it has no plain one, `_NOTHING` if it never is."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return _NOTHING if node.decorator_list else node.name
    if isinstance(node, ast.Assign):
        sides = [node.targets[0], node.targets[1] if len(node.targets) > 1 else node.value]
    elif isinstance(node, ast.AnnAssign):
        sides = [node.target, *([node.value] if node.value else [])]
    else:
        return _NOTHING
    return next((side.id for side in sides if isinstance(side, ast.Name)), None)


def _identifiers(source: str) -> set[str]:
    """Every name in a piece of source, attributes and arguments among them."""
    found = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                found.add(token.string)
        with PARSER:
            tree = ast.parse(source, "<reply>")
        found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}  # in f-strings too
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        pass
    return found


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
