"""Reading a solution's source: its functions, the one that its tests call, what tests state, a docstring's examples."""

import ast
import doctest
import re
from collections import Counter

from codea1_cli.extract.source import names_in, normal_newlines, parse, unparse

_BRACKETS = re.compile(r"\b(?:set|frozenset|tuple|list)\b(?=\()|[\[\](){}]")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def tidy(source: str) -> str:
    """`source` with Python's newlines and without blank lines at its ends."""
    return normal_newlines(source).strip("\n").rstrip()


def functions(tree: ast.Module) -> dict[str, Function]:
    """The functions at the top level, by name; of two with one name the later, as in Python."""
    return {node.name: node for node in tree.body if isinstance(node, Function)}


def called(source: str, names: set[str]) -> Counter[str]:
    """How often each of `names` is called in `source`, as `name(...)` or `module.name(...)`."""
    counts: Counter[str] = Counter()
    tree = parse(source)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if name in names:
                counts[name] += 1
    return counts


def guess_entry_point(tree: ast.Module, tests: str) -> str | None:
    """The top-level function that `tests` call most often; without such calls the last one, which the others serve."""
    there = functions(tree)
    counts = called(tests, set(there))
    if counts:
        return max(there, key=lambda name: counts[name])
    public = [name for name in there if not name.startswith("_")]
    return public[-1] if public else None


def stated_facts(source: str, name: str) -> set[str]:
    """What the asserts of `source` state about `name`, as `arguments -> answer`; lists, tuples and sets have one form.

    `assert f(x) == y`, `assert set(f(x)) == set(y)`, `assert f(x)`, `assert not f(x)` and `assert isclose(f(x), y)`.
    """
    tree = parse(source)
    facts: set[str] = set()
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, ast.Assert):
            continue
        test, answer = node.test, "True"
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            answer = "False"
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            answer = _content(test.comparators[0])
            test = test.left
        elif isinstance(test, ast.Call) and getattr(test.func, "attr", "") == "isclose" and len(test.args) > 1:
            answer = _content(test.args[1])
        for call in ast.walk(test):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name and call.args:
                arguments = ", ".join(map(_content, call.args))
                if arguments.strip(" ,'\""):  # that nothing becomes nothing says little about a function
                    facts.add(f"{arguments} -> {answer}")
    return facts


def _content(node: ast.expr) -> str:
    return _BRACKETS.sub("", unparse(node) or "").strip(" ,")


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
        test = _example(tree, example.want)
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


def _example(tree: ast.Module, want: str) -> ast.Compare | None:
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
