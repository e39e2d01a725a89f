"""From a pytest file (or bare asserts) to `assert f(arguments) == value`, each one a test that stands alone.

A small interpreter of straight-line code: it follows assignments, expands parametrised tests, fixtures that only
return a value, and loops over literal lists. What it cannot follow is counted under a named reason, never guessed.
"""

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from codea1_cli.extract import pytest_rules
from codea1_cli.extract.inline_variables import InlineVariables, bound_names
from codea1_cli.extract.source import names_in, parse, unparse
from codea1_cli.extract.suite import parse_suite

MAX_CASES = 64  # of a parametrised test or an unrolled loop
MAX_TESTS = 200
MAX_NODES = 5_000  # syntax nodes of one assert, and of the values in place of its variables

Env = dict[str, ast.expr]


@dataclass
class Converted:
    """`tests` are assert statements with distinct calls; `skipped` counts the asserts left out, by reason.

    contrary: further asserts of the same calls, which state something else. unread: those of `skipped` that mention the
    entry point and could not be read, with the reason.
    """

    tests: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    contrary: list[str] = field(default_factory=list)
    unread: Counter[tuple[str, str]] = field(default_factory=Counter)


def convert_tests(source: str, entry_point: str, modules: Iterable[str] = ()) -> Converted:
    """The equality tests of `entry_point` in `source` and in further `modules`, each read on its own; never raises,
    whatever the sources.

    Only what pytest runs and expects to pass is read. Reasons of what is left out: those of `parse_suite`, and syntax,
    loop, nested, raises, fixture, approx, not_literal, repeated, too_many; skipped and xfail by a mark; unreachable
    after a return, raise or skip; shadowed by a later test of the same name; not_collected.
    """
    out, calls = Converted(), dict[str, set[str]]()
    for text in (source, *modules):
        tree = parse(text)
        if tree is None:
            out.skipped["syntax"] += 1
            continue
        try:
            _FileReader(entry_point, out, calls).module(tree)
        except RecursionError:
            out.skipped["too_large"] += 1
    return out


class _FileReader:
    def __init__(self, entry_point: str, out: Converted, calls: dict[str, set[str]]) -> None:
        self.entry, self.out, self.calls = entry_point, out, calls
        self.fixtures: dict[str, ast.expr | None] = {}

    def module(self, tree: ast.Module) -> None:
        env: Env = {}
        tests: dict[str, ast.FunctionDef | ast.ClassDef] = {}
        for place, node in enumerate(tree.body):
            if isinstance(node, ast.FunctionDef):
                if pytest_rules.decorator(node, "fixture") is not None:
                    self.fixtures[node.name] = pytest_rules.returned(node)
                elif node.name.startswith("test"):
                    self.add(node, tests)
                env.pop(node.name, None)
            elif isinstance(node, ast.ClassDef):
                self.add(node, tests)
            elif isinstance(node, ast.If) and "__name__" in names_in(node.test):
                continue
            elif self.statement(node, env) is not None:
                for unread in (*tests.values(), *tree.body[place + 1 :]):
                    self.leave(unread, "unreachable")
                return
        marked = pytest_rules.mark_reason(env.get("pytestmark"))
        for test in tests.values():
            self.collected(test, env, marked)

    def add(self, node: ast.FunctionDef | ast.ClassDef, tests: dict[str, ast.FunctionDef | ast.ClassDef]) -> None:
        """Notes a test under its name; an earlier one of this name is never run."""
        if (earlier := tests.get(node.name)) is not None:
            self.leave(earlier, "shadowed")
        tests[node.name] = node

    def collected(self, node: ast.FunctionDef | ast.ClassDef, env: Env, reason: str | None) -> None:
        """A test function, or a class of them, with the reason to leave it out that holds around it."""
        marks = [self.resolve(mark, env) for mark in node.decorator_list]
        reason = reason or next(filter(None, map(pytest_rules.mark_reason, marks)), None)
        if isinstance(node, ast.FunctionDef):
            if reason := reason or pytest_rules.function_reason(node):
                return self.leave(node, reason)
            return self.test(node, dict(env))
        if (mark := pytest_rules.assigned(node.body, "pytestmark")) is not None:
            reason = reason or pytest_rules.mark_reason(self.resolve(mark, env))
        reason = reason or pytest_rules.class_reason(node)
        methods: dict[str, ast.FunctionDef | ast.ClassDef] = {}
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name.startswith("test"):
                self.add(method, methods)
        for method in methods.values():
            self.collected(method, env, reason)
        return None

    def test(self, function: ast.FunctionDef, env: Env) -> None:
        wanted = [a.arg for a in (*function.args.posonlyargs, *function.args.args) if a.arg not in ("self", "cls")]
        grids = [self.cases(function, mark, env) for mark in pytest_rules.decorators(function, "parametrize")]
        if any(grid is None for grid in grids):
            return self.leave(function, "fixture")
        rows = list(itertools.islice(itertools.product(*(grid or [] for grid in grids)), MAX_CASES))
        for row in rows:
            bound = {name: value for case in row for name, value in case.items()}
            for name in wanted:
                if name not in bound and (value := self.fixtures.get(name)) is not None:
                    bound[name] = self.resolve(value, env)
            if not bound.keys() >= set(wanted):
                return self.leave(function, "fixture")
            self.block(function.body, {**env, **bound})
        return None

    def cases(self, function: ast.FunctionDef, mark: ast.Call, env: Env) -> list[Env] | None:
        """The variables of each case of one parametrize mark; None when they are not literals."""
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
            if isinstance(item, ast.Call) and pytest_rules.name_of(item) == "param":
                marks = next((k.value for k in item.keywords if k.arg == "marks"), None)
                if (reason := pytest_rules.mark_reason(marks)) is not None:
                    self.leave(function, reason)
                    continue
                if not item.args:
                    return None
                item = ast.Tuple(item.args, ast.Load()) if len(wanted) > 1 else item.args[0]
            if len(wanted) == 1:
                cases.append({wanted[0]: item})
            elif isinstance(item, ast.List | ast.Tuple) and len(item.elts) == len(wanted):
                cases.append(dict(zip(wanted, item.elts, strict=True)))
            else:
                return None
        return cases

    def block(self, body: list[ast.stmt], env: Env) -> str | None:
        """Reads statements up to one that ends the block; how it does, as `ending` says it."""
        for place, node in enumerate(body):
            if (end := self.statement(node, env)) is not None:
                for unread in body[place + 1 :]:
                    self.leave(unread, "unreachable")
                return end
        return None

    def statement(self, node: ast.stmt, env: Env) -> str | None:
        """Reads one statement; how it ends its block, None when it does not."""
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
            case ast.For(target, iterable, body, []) if (
                not pytest_rules.jumps(body) and (items := _items(self.resolve(iterable, env))) is not None
            ):
                for item in items:
                    self.assign(target, item, env)
                    if (end := self.block(body, env)) in ("break", "return"):
                        return end if end == "return" else None
                return None
            case ast.With(items=[ast.withitem(ast.Call(ast.Attribute(attr="subTest")))], body=body):
                return self.block(body, env)
            case ast.With(items=[ast.withitem(ast.Call(ast.Attribute(attr="raises" | "assertRaises")))]):
                self.out.skipped["raises"] += 1
                self.forget(node, env)
            case _:
                self.leave(node, "loop" if isinstance(node, ast.For | ast.While) else "nested")
                self.forget(node, env)
        return pytest_rules.ending(node)

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
        self.out.skipped[reason] += pytest_rules.asserts_in(node)

    def resolve(self, node: ast.expr, env: Mapping[str, ast.expr]) -> ast.expr:
        if not any(
            child.id in env
            if isinstance(child, ast.Name)
            else isinstance(child, ast.Attribute) and child.attr == self.entry
            for child in ast.walk(node)
        ):
            return node  # as most are: nothing to replace, so nothing to copy
        return _Inline(env, bound_names(node), self.entry).visit(copy.deepcopy(node))

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
                if isinstance(right, ast.Call) and pytest_rules.name_of(right) == "approx":
                    if len(right.args) != 1 or right.keywords:
                        skipped["approx"] += 1
                        return
                    right = right.args[0]
                test = ast.Compare(left, [ast.Eq()], [right])
        text = unparse(ast.fix_missing_locations(ast.Assert(test)))
        found = parse_suite(text, self.entry) if text else []
        if not text or len(found) != 1:
            skipped["too_large"] += 1
            return
        stated = found[0].stated
        reason = found[0].invalid or ("not_literal" if stated is None else "")
        if reason or stated is None:
            skipped[reason] += 1
            self.out.unread[text, reason] += self.entry in names_in(test)
            return
        known = self.calls.setdefault(str(found[0].call), set())
        if known:
            skipped["repeated"] += 1
        if len(self.out.tests) + len(self.out.contrary) >= MAX_TESTS:
            skipped["too_many"] += not known
        elif (value := repr(stated.value)) not in known:
            (self.out.contrary if known else self.out.tests).append(text)
            known.add(value)

    def is_call(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and pytest_rules.name_of(node) == self.entry
        )


def _items(node: ast.expr) -> list[ast.expr] | None:
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) <= MAX_CASES:
        return None if any(isinstance(item, ast.Starred) for item in node.elts) else node.elts
    return None


class _Inline(InlineVariables):
    """Replaces variables by their values, and `module.f(...)` by `f(...)`."""

    def __init__(self, env: Mapping[str, ast.expr], bound: frozenset[str], entry: str) -> None:
        super().__init__(env, bound, MAX_NODES)
        self.entry = entry

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Attribute(ast.Name(module), attribute) if attribute == self.entry and module not in self.variables:
                node.func = ast.Name(self.entry, ast.Load())
        return self.generic_visit(node)
