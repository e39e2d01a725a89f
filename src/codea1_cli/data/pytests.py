"""From a pytest file (or bare asserts) to `assert f(arguments) == value`, one a test, that stand alone.

A small interpreter of straight-line code: it follows assignments, expands parametrised tests, fixtures that only
return a value, and loops over literal lists. What it cannot follow is counted under a named reason, never guessed.
"""

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from codea1_cli.data.program import names_in
from codea1_cli.extract.arguments import bound_names
from codea1_cli.extract.source import parse, unparse
from codea1_cli.extract.suite import parse_suite

MAX_NODES = 5_000  # syntax nodes of one expression after its variables are replaced
MAX_CASES = 64  # of a parametrised test or an unrolled loop
MAX_TESTS = 200

Env = dict[str, ast.expr]


@dataclass
class Converted:
    """`tests` are assert statements with distinct calls; `skipped` counts the asserts left out, by reason."""

    tests: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def convert_tests(source: str, entry_point: str) -> Converted:
    """The equality tests of `entry_point` in `source`; never raises, whatever the source.

    Reasons of what is skipped: those of `parse_suite`, and syntax, loop, nested, raises, fixture, approx, not_literal,
    repeated, too_many.
    """
    tree = parse(source)
    if tree is None:
        return Converted(skipped=Counter(syntax=1))
    reader = _Reader(entry_point)
    try:
        reader.module(tree)
    except RecursionError:
        reader.out.skipped["too_large"] += 1
    return reader.out


class _Reader:
    def __init__(self, entry_point: str) -> None:
        self.entry = entry_point
        self.out = Converted()
        self.calls: set[str] = set()
        self.fixtures: dict[str, ast.expr | None] = {}

    def module(self, tree: ast.Module) -> None:
        env: Env = {}
        tests: list[ast.FunctionDef] = []
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                if _decorator(node, "fixture") is not None:
                    self.fixtures[node.name] = _returned(node)
                elif node.name.startswith("test"):
                    tests.append(node)
                env.pop(node.name, None)
            elif isinstance(node, ast.ClassDef):
                methods = [method for method in node.body if isinstance(method, ast.FunctionDef)]
                tests += [method for method in methods if method.name.startswith("test")]
            elif isinstance(node, ast.If) and "__name__" in names_in(node.test):
                continue
            else:
                self.statement(node, env)
        for test in tests:
            self.test(test, dict(env))

    def test(self, function: ast.FunctionDef, env: Env) -> None:
        wanted = [a.arg for a in (*function.args.posonlyargs, *function.args.args) if a.arg not in ("self", "cls")]
        grids = [self.cases(mark, env) for mark in _decorators(function, "parametrize")]
        if any(grid is None for grid in grids):
            return self.leave(function, "fixture")
        rows = list(itertools.islice(itertools.product(*(grid or [] for grid in grids)), MAX_CASES))
        for row in rows:
            bound = {name: value for case in row for name, value in case.items()}
            for name in wanted:
                if name not in bound and (value := self.fixtures.get(name)) is not None:
                    bound[name] = self.resolve(value, env)
            if any(name not in bound for name in wanted):
                return self.leave(function, "fixture")
            self.block(function.body, {**env, **bound})
        return None

    def cases(self, mark: ast.Call, env: Env) -> list[Env] | None:
        """The variables of each case of one parametrize mark; None when they are no literals."""
        arguments = {k.arg: k.value for k in mark.keywords}
        names = mark.args[0] if mark.args else arguments.get("argnames")
        values = mark.args[1] if len(mark.args) > 1 else arguments.get("argvalues")
        if names is None or values is None:
            return None
        if isinstance(names, ast.Constant) and isinstance(names.value, str):
            wanted = [name.strip() for name in names.value.split(",") if name.strip()]
        elif isinstance(names, ast.List | ast.Tuple):
            wanted = [str(e.value) for e in names.elts if isinstance(e, ast.Constant)]
        else:
            return None
        items = self.resolve(values, env)
        if not isinstance(items, ast.List | ast.Tuple) or len(items.elts) > MAX_CASES:
            return None
        cases: list[Env] = []
        for item in items.elts:
            if isinstance(item, ast.Call) and getattr(item.func, "attr", "") == "param":
                item = ast.Tuple(item.args, ast.Load()) if len(wanted) > 1 else item.args[0]
            if len(wanted) == 1:
                cases.append({wanted[0]: item})
            elif isinstance(item, ast.List | ast.Tuple) and len(item.elts) == len(wanted):
                cases.append(dict(zip(wanted, item.elts, strict=True)))
            else:
                return None
        return cases

    def block(self, body: Iterable[ast.stmt], env: Env) -> None:
        for node in body:
            self.statement(node, env)

    def statement(self, node: ast.stmt, env: Env) -> None:
        match node:
            case ast.Assert(test):
                self.assertion(self.resolve(test, env))
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), value=ast.expr() as value):
                env[name] = self.resolve(value, env)
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                resolved = [self.resolve(value, env) for value in values]
                for target, value in zip(targets, resolved, strict=True):
                    if isinstance(target, ast.Name):
                        env[target.id] = value
            case ast.Expr(ast.Call(ast.Attribute(attr="assertEqual"), [left, right, *_])):
                self.assertion(ast.Compare(self.resolve(left, env), [ast.Eq()], [self.resolve(right, env)]))
            case ast.Expr(ast.Constant()) | ast.Expr(ast.Call(ast.Name("print"))) | ast.Import() | ast.ImportFrom():
                pass
            case ast.For(target, iterable, body, []) if (items := _items(self.resolve(iterable, env))) is not None:
                for item in items:
                    self.assign(target, item, env)
                    self.block(body, env)
            case ast.With(items=[ast.withitem(ast.Call(ast.Attribute(attr="subTest")))], body=body):
                self.block(body, env)
            case ast.With(items=[ast.withitem(ast.Call(ast.Attribute(attr="raises" | "assertRaises")))]):
                self.out.skipped["raises"] += 1
                self.forget(node, env)
            case _:
                self.leave(node, "loop" if isinstance(node, ast.For | ast.While) else "nested")
                self.forget(node, env)

    def assign(self, target: ast.expr, value: ast.expr, env: Env) -> None:
        if isinstance(target, ast.Name):
            env[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple | ast.List):
            for part, item in zip(target.elts, value.elts, strict=False):
                self.assign(part, item, env)
        else:
            self.forget(target, env)

    def forget(self, node: ast.AST, env: Env) -> None:
        for name in names_in(node):
            env.pop(name, None)

    def leave(self, node: ast.AST, reason: str) -> None:
        self.out.skipped[reason] += sum(isinstance(child, ast.Assert) for child in ast.walk(node))

    def resolve(self, node: ast.expr, env: Mapping[str, ast.expr]) -> ast.expr:
        if not any(
            child.id in env
            if isinstance(child, ast.Name)
            else isinstance(child, ast.Attribute) and child.attr == self.entry
            for child in ast.walk(node)
        ):
            return node  # as most are: nothing to replace, so nothing to copy
        return _Resolve(env, bound_names(node), self.entry).visit(copy.deepcopy(node))

    def assertion(self, test: ast.expr) -> None:
        """Keeps one assert whose variables are replaced, or counts why not."""
        skipped = self.out.skipped
        if sum(1 for _ in ast.walk(test)) > MAX_NODES:
            skipped["too_large"] += 1
            return
        match test:
            case ast.Compare(left, [ast.Eq()], [right]):
                if not self.is_call(left) and self.is_call(right):
                    left, right = right, left
                if (
                    isinstance(right, ast.Call)
                    and getattr(right.func, "attr", getattr(right.func, "id", "")) == "approx"
                ):
                    if len(right.args) != 1 or right.keywords:
                        skipped["approx"] += 1
                        return
                    right = right.args[0]
                test = ast.Compare(left, [ast.Eq()], [right])
        text = unparse(ast.fix_missing_locations(ast.Assert(test)))
        found = parse_suite(text, self.entry) if text else []
        if not text or len(found) != 1:
            skipped["too_large"] += 1
        elif found[0].invalid is not None:
            skipped[found[0].invalid] += 1
        elif found[0].stated is None:
            skipped["not_literal"] += 1
        elif found[0].call in self.calls:
            skipped["repeated"] += 1
        elif len(self.out.tests) >= MAX_TESTS:
            skipped["too_many"] += 1
        else:
            self.calls.add(str(found[0].call))
            self.out.tests.append(text)

    def is_call(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == self.entry


class _Resolve(ast.NodeTransformer):
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


def _items(node: ast.expr) -> list[ast.expr] | None:
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) <= MAX_CASES:
        return None if any(isinstance(item, ast.Starred) for item in node.elts) else node.elts
    return None


def _decorators(node: ast.FunctionDef, name: str) -> list[ast.Call]:
    return [d for d in node.decorator_list if isinstance(d, ast.Call) and getattr(d.func, "attr", "") == name]


def _decorator(node: ast.FunctionDef, name: str) -> ast.expr | None:
    for decorator in node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if name in (getattr(function, "attr", ""), getattr(function, "id", "")):
            return decorator
    return None


def _returned(node: ast.FunctionDef) -> ast.expr | None:
    """What a fixture returns, when that is all it does."""
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(body) == 1 and isinstance(body[0], ast.Return) and not node.args.args:
        return body[0].value
    return None
