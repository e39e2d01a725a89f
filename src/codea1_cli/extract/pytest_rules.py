"""What of a test file pytest runs and expects to pass: marks, collection rules, and where a block ends early."""

import ast
from collections.abc import Iterable

from codea1_cli.extract.source import within

_MARKS = {
    "skip": "skipped", "skipif": "skipped", "skipIf": "skipped", "skipUnless": "skipped",
    "xfail": "xfail", "expectedFailure": "xfail",
}  # fmt: skip
_STOPS: dict[str | None, set[str]] = {
    "pytest": {"skip", "xfail", "fail", "exit"},
    "self": {"skipTest", "fail"},
    "sys": {"exit"},
    "os": {"_exit"},
    "": {"skip", "xfail", "exit", "quit"},
}
_SWALLOW = {"raises", "assertRaises", "assertRaisesRegex", "suppress"}
_SETUPS = {"setUp", "setUpClass", "setup_method", "setup_class", "asyncSetUp"}
_ENDINGS = ("continue", "break", "return")  # the later, the more does not run


def name_of(node: ast.expr) -> str:
    """The last name of `a.b.c`, `c` or a call of them."""
    function = node.func if isinstance(node, ast.Call) else node
    return str(getattr(function, "attr", getattr(function, "id", "")))


def mark_reason(mark: ast.expr | None) -> str | None:
    """`skipped` or `xfail` for a mark or decorator, or a list of them, that keeps a test from counting.

    Conditions are not looked at: whether `skipif` skips depends on the machine.
    """
    marks = mark.elts if isinstance(mark, ast.List | ast.Tuple) else [mark] if mark is not None else []
    return next((_MARKS[name] for name in map(name_of, marks) if name in _MARKS), None)


def class_reason(node: ast.ClassDef) -> str | None:
    """Why pytest runs no method of a class, as far as its body and name say; its decorators and marks aside."""
    plain = not [base for base in node.bases if name_of(base) != "object"]
    methods = {method.name: method for method in node.body if isinstance(method, ast.FunctionDef)}
    if plain and (not node.name.startswith("Test") or {"__init__", "__new__"} & set(methods)):
        return "not_collected"
    flag = assigned(node.body, "__test__")
    if isinstance(flag, ast.Constant) and not flag.value:
        return "not_collected"
    setups = (method for name, method in methods.items() if name in _SETUPS)
    return "skipped" if any(_block_ending(method.body, raised_only=True) for method in setups) else None


def function_reason(node: ast.FunctionDef) -> str | None:
    """Why pytest does not run a test function, as far as its body says: a test that yields is not collected."""
    yields = any(isinstance(child, ast.Yield | ast.YieldFrom) for child in ast.walk(node))
    return "not_collected" if yields else None


def assigned(body: Iterable[ast.stmt], name: str) -> ast.expr | None:
    """What `name = ...` in a body gives it last."""
    value = None
    for node in body:
        match node:
            case ast.Assign([ast.Name(target)], found) | ast.AnnAssign(ast.Name(target), value=found) if target == name:
                value = found
    return value


def ending(node: ast.stmt) -> str | None:
    """How a statement ends its block whatever happens: `break`, `continue` or `return`, which also stands for what
    raises, skips or exits. None for a statement that need not end it."""
    match node:
        case ast.Return() | ast.Raise() | ast.Assert(ast.Constant(value=False | None | 0)):
            return "return"
        case ast.Break():
            return "break"
        case ast.Continue():
            return "continue"
        case ast.Expr(ast.Call(function)):
            owner = getattr(function.value, "id", None) if isinstance(function, ast.Attribute) else ""
            return "return" if name_of(function) in _STOPS.get(owner, ()) else None
        case ast.If(ast.Constant(value)):
            return _block_ending(node.body if value else node.orelse)
        case ast.If(body=body, orelse=orelse):
            both = (_block_ending(body), _block_ending(orelse))
            return max((kind for kind in both if kind), key=_ENDINGS.index) if all(both) else None
        case ast.With(items, body) if not any(name_of(item.context_expr) in _SWALLOW for item in items):
            return _block_ending(body)
        case ast.Try(finalbody=body):
            return _block_ending(body)
    return None


def jumps(body: Iterable[ast.stmt]) -> bool:
    """Whether a loop's body may leave a round early under a condition."""
    inner = (node for node in body if isinstance(node, ast.If | ast.Try | ast.With) and ending(node) is None)
    return any(isinstance(child, ast.Break | ast.Continue) for node in inner for child in ast.walk(node))


def never_returns(function: ast.FunctionDef) -> bool:
    """Whether a function plainly has no way out but to raise: it has no `return`, and its end is not reached."""
    if any(isinstance(node, ast.Return) for node in within(function)):
        return False
    last = function.body[-1]
    loop = isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value
    leaves = any(isinstance(node, ast.Break) for node in within(last))
    return any(ending(node) == "return" for node in function.body) or bool(loop and not leaves)


def _block_ending(body: Iterable[ast.stmt], raised_only: bool = False) -> str | None:
    for node in body:
        kind = ending(node)
        if kind is not None:
            return None if raised_only and isinstance(node, ast.Return) else kind
    return None


def asserts_in(node: ast.AST) -> int:
    """How many assertions a statement holds, unittest's methods among them."""
    return sum(
        isinstance(child, ast.Assert)
        or (isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr == "assertEqual")
        for child in ast.walk(node)
    )


def decorators(node: ast.FunctionDef, name: str) -> list[ast.Call]:
    """The decorators `@a.name(...)` of a function."""
    return [d for d in node.decorator_list if isinstance(d, ast.Call) and getattr(d.func, "attr", "") == name]


def decorator(node: ast.FunctionDef, name: str) -> ast.expr | None:
    """The first decorator of this name, called or not."""
    return next((d for d in node.decorator_list if name_of(d) == name), None)


def returned(node: ast.FunctionDef) -> ast.expr | None:
    """What a fixture returns, when that is all it does."""
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(body) == 1 and isinstance(body[0], ast.Return) and not node.args.args:
        return body[0].value
    return None
