"""Where a candidate goes wrong on a call: the line that returns the value, or the one that raises."""

import ast
import re
from typing import TYPE_CHECKING

from codea1_cli.runs.rollouts import call_of

if TYPE_CHECKING:
    from codea1_cli.judging.judge import Judge

_TRACER = "codea1_line_of"

# Appended to the candidate, whose own lines keep their numbers. `return` events come innermost first, so that the last
# one of the entry point belongs to the call itself and not to a recursive one.
_APPENDIX = """


def {tracer}(*args, **keywords):
    import sys
    line = None
    own = sys._getframe().f_code.co_filename

    def follow(frame, event, arg):
        nonlocal line
        if event == "return":
            line = frame.f_lineno
        return follow

    def enter(frame, event, arg):
        return follow if frame.f_code.co_name == {entry!r} and frame.f_code.co_filename == own else None

    sys.settrace(enter)
    try:
        {entry}(*args, **keywords)
    except BaseException as fault:
        step = fault.__traceback__.tb_next
        while step is not None:
            if step.tb_frame.f_code.co_filename == own:
                line = step.tb_lineno
            step = step.tb_next
    finally:
        sys.settrace(None)
    return line
"""


def possible_lines(code: str, entry_point: str, verdict: str, detail: str) -> list[int]:
    """The lines (from 1) of `code` that may be where it fails, as far as can be told without running it.

    A line that the verdict's detail names is the only one; a wrong value comes from one of the entry point's returns;
    for any other failure nothing is known.
    """
    if named := re.findall(r"\bline (\d+)", detail):
        line = int(named[-1])
        return [line] if 1 <= line <= code.count("\n") + 1 else []
    if verdict != "failed":
        return []
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry_point]
    return sorted(node.lineno for node in _own(functions[-1]) if isinstance(node, ast.Return)) if functions else []


def _own(function: ast.FunctionDef) -> list[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    nodes: list[ast.AST] = []
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        nodes.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))
    return nodes


def traced_line(judge: "Judge", code: str, entry_point: str, test: str) -> int | None:
    """Runs the test's call under a tracer in the sandbox; None when that tells nothing.

    The candidate can lie about its own line, and about nothing else.
    """
    try:
        call = ast.parse(call_of(test), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(call, ast.Call):
        return None
    call.func = ast.Name(_TRACER, ast.Load())
    program = code + _APPENDIX.format(tracer=_TRACER, entry=entry_point)
    run = judge.sandbox.run(program, _TRACER, [ast.unparse(call)], judge.limits)
    value = run.answers[0].value if run.answers else None
    line = value.data if value is not None else None
    return line if type(line) is int and 1 <= line <= code.count("\n") + 1 else None
