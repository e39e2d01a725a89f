"""From a docstring's examples to statements and asserts."""

from __future__ import annotations

import ast
import doctest
from collections import Counter

from codea1_cli.data.program import names_in
from codea1_cli.extract.source import parse, unparse


def doctests(docstring: str, printing: set[str]) -> tuple[str, Counter[str]]:
    """The examples as statements and asserts, in order, and how many answers were left out, by reason.

    `printing` are the functions that may print. Reasons: doctest_option, an option that changes the comparison; prints,
    an answer that may have been printed and not returned; skipped. What an exception answers is left out without one.
    """
    left_out: Counter[str] = Counter()
    lines: list[str] = []
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        return "", left_out
    for example in examples:
        tree = parse(example.source)
        if tree is None or example.exc_msg is not None:
            continue
        if example.options.get(doctest.SKIP):
            left_out["skipped"] += 1
            continue
        test = _test(tree, example.want)
        reason = None
        if test is not None:
            if example.options or any(isinstance(n, ast.Constant) and n.value is ... for n in ast.walk(test)):
                reason = "doctest_option"
            elif names_in(tree) & printing or any(map(prints, ast.walk(tree))):
                reason = "prints"
        if test is not None and reason is None:
            lines.append(unparse(ast.fix_missing_locations(ast.Assert(test))) or "")
            continue
        if reason is not None:
            left_out[reason] += 1
        lines.append(example.source.rstrip())  # what it changes is still changed
    return "\n".join(lines), left_out


def _test(tree: ast.Module, want: str) -> ast.Compare | None:
    """`expression == answer` for an example of one expression whose answer is written as one."""
    answer = parse(want.strip()) if want.strip() else None
    match tree.body, answer.body if answer is not None else []:
        case [ast.Expr(left)], [ast.Expr(right)]:
            return ast.Compare(left, [ast.Eq()], [right])
    return None


def prints(node: ast.AST) -> bool:
    """Whether a call may write to standard output."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Name):
        return function.id in ("print", "pprint", "pp") and not _to_stderr(node)
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value
    name = getattr(owner, "attr", getattr(owner, "id", ""))
    return (function.attr in ("write", "writelines") and name == "stdout") or name == "pprint"


def _to_stderr(call: ast.Call) -> bool:
    files = (keyword.value for keyword in call.keywords if keyword.arg == "file")
    return any(getattr(file, "attr", getattr(file, "id", "")) in ("stderr", "__stderr__") for file in files)
