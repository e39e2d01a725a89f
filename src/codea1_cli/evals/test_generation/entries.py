"""Given tests as they are run: statements, test functions and test classes as pytest and unittest would run them. And
what the test file of a module imports from it."""

from __future__ import annotations

import ast
import builtins
import re
from keyword import iskeyword
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.test_generation.in_jail import MODULE
from codea1_cli.extract.source import bound, loaded, names_in, parse, unparse, within
from codea1_cli.files import parse_source

Statements = list[ast.stmt]
_BLOCKS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OF_PYTEST = re.compile(r"(test|pytest).*|(setup|teardown)(_module|_function)?|(setUp|tearDown)Module")
_TEST = re.compile(r"\bassert|\bdef test")
_RAISES = {"raises", "assertRaises", "assertRaisesRegex", "warns"}


def entry_as_test(entry: str) -> str | None:
    """A given test as statements that run all of it, None where it does not parse or nothing in it can fail.

    Test functions are called after their definition, test classes of either kind run method by method. What pytest
    alone can run (a function with arguments or decorators, a coroutine) becomes a line that raises and says so: it
    counts as a test that fails, by name.
    """
    tree = parse(entry)
    if tree is None or not any(isinstance(node, ast.Assert | ast.Raise | ast.Call) for node in ast.walk(tree)):
        return None
    whole = [part for node in tree.body for run in ([node], *runs_of(node)) for part in run]
    return unparse(ast.Module(whole, []))


def with_own_imports(test: str, module: str, name: str) -> str:
    """A test of a file as it is run: what it imports from `module`, which is the file's name, or from a package's
    module of that name, comes from the function under test. `name`, that function, is there without an import."""
    tree = parse(test)
    return test if tree is None else unparse(ast.fix_missing_locations(_OwnImports(module, name).visit(tree))) or test


class _OwnImports(ast.NodeTransformer):
    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        if (node.module or "").rpartition(".")[2] != self.module:
            return node
        there = {self.name, "*"}  # as are all names of the file
        others = [alias for alias in node.names if alias.name not in there or alias.asname not in (None, self.name)]
        return ast.ImportFrom(MODULE, others, 0) if others else ast.Pass()

    def visit_Import(self, node: ast.Import) -> ast.Import:
        return ast.Import([self._own(alias) for alias in node.names])

    def _own(self, alias: ast.alias) -> ast.alias:
        ours = alias.name == self.module or (alias.asname and alias.name.rpartition(".")[2] == self.module)
        return ast.alias(MODULE, alias.asname or alias.name) if ours else alias


def checks(node: ast.stmt) -> bool:
    """Whether a statement of a suite is a test by itself: an assert, or a block that asserts, raises, expects an
    exception or catches one of a call. A definition, an import, an assignment and the like come before a test."""
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, _BLOCKS):
        return False
    inner = within(node)
    if isinstance(node, ast.Try) and not any(isinstance(part, ast.Import | ast.ImportFrom) for part in inner):
        return any(isinstance(part, ast.Call | ast.Assert | ast.Raise) for part in inner)
    return any(map(_checks, inner))


def _checks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in _RAISES
    return isinstance(node, ast.Assert | ast.Raise)


def runs_of(node: ast.stmt) -> list[Statements]:
    """The statements that run each test which `node` defines: a test function, or the methods of a test class."""
    if isinstance(node, ast.ClassDef):
        return [run for method in node.body if (run := _method_calls(node, method))]
    run = _function_calls(node)
    return [run] if run else []


def _function_calls(node: ast.stmt) -> Statements:
    if not isinstance(node, _FUNCTIONS) or not node.name.startswith("test"):
        return []
    if (why := needs_pytest(node)) is not None:
        return _lines(f"raise RuntimeError({f'{node.name} is not run: {why}'!r})")
    return _lines(f"{node.name}()")


def needs_pytest(function: ast.FunctionDef | ast.AsyncFunctionDef, own: int = 0) -> str | None:
    """Why a test function cannot be called as it stands, its first `own` arguments aside; None when it can."""
    if isinstance(function, ast.AsyncFunctionDef):
        return "a coroutine"
    if any(getattr(mark, "id", "") != "staticmethod" for mark in function.decorator_list):
        return "it has a decorator"
    arguments = [*function.args.posonlyargs, *function.args.args][own:]
    wanted = arguments[: len(arguments) - len(function.args.defaults)] if arguments else []
    return f"it wants the argument {wanted[0].arg}" if wanted else None


def _method_calls(test: ast.ClassDef, method: ast.stmt) -> Statements:
    unit = any("TestCase" in getattr(base, "attr", getattr(base, "id", "")) for base in test.bases)
    if not isinstance(method, _FUNCTIONS) or not method.name.startswith("test"):
        return []
    if not unit and not test.name.startswith("Test"):
        return []
    static = any(getattr(mark, "id", "") == "staticmethod" for mark in method.decorator_list)
    if (why := needs_pytest(method, own=0 if static else 1)) is not None:
        return _lines(f"raise RuntimeError({f'{test.name}.{method.name} is not run: {why}'!r})")
    if unit:
        return _lines(f"{test.name}.setUpClass()\n{test.name}({method.name!r}).debug()")
    around = {
        part.name: f"_case.{part.name}({'None' if len(part.args.args) > 1 else ''})"
        for part in test.body
        if isinstance(part, ast.FunctionDef) and part.name in ("setup_method", "teardown_method")
    }
    steps = (around.get("setup_method"), f"_case.{method.name}()", around.get("teardown_method"))
    return _lines("\n".join([f"_case = {test.name}()", *filter(None, steps)]))


def _lines(source: str) -> Statements:
    return ast.parse(source).body


# -- the test file of a module ----------------------------------------------------------------------------------------
def module_of(file: Path) -> tuple[str, Path]:
    """A file's module as a test imports it, and the folder that it is imported from: the one above its packages."""
    root, names = file.parent.resolve(), [file.stem]  # a link is imported by its own name
    while (root / "__init__.py").is_file():
        root, names = root.parent, [root.name, *names]
    return ".".join(names if names[-1] != "__init__" else names[:-1]), root


def read_tests(path: Path) -> list[str]:
    """The source of a test file, or of those below a folder that pytest would find. Raises UserError where one does not
    parse, or there is no test at all."""
    names = ("test_*.py", "*_test.py")
    files = sorted({file for name in names for file in path.rglob(name)}) if path.is_dir() else [path]
    found = [source for source, _ in map(parse_source, files) if _TEST.search(source)]
    if not found:
        wanted = f"{' or '.join(names)} in it" if path.is_dir() else "asserts in it"
        raise UserError(f"{path} holds no test", hint=f"a pytest file is wanted, with {wanted}")
    return found


def unimportable(file: Path) -> str:
    """Why no test can import a file; empty where one can."""
    sound = all(name.isidentifier() and not iskeyword(name) for name in module_of(file)[0].split("."))
    return "" if sound else f"a test cannot import {file.name}: its name is none of a module"


def reserved(name: str) -> str:
    """Why a test file cannot import a function of that name; empty where it can."""
    return "pytest takes a function of that name in a test file for its own" if _OF_PYTEST.fullmatch(name) else ""


def importing(text: str, file: Path, names: set[str]) -> str:
    """A test file that imports these names of `file` too, and none that is gone from it: one would keep every test
    from being run. An import that loses and gains nothing keeps its form."""
    module, lines = module_of(file)[0], text.split("\n")
    found, gone = imports_of(text, module), gone_from(text, file)
    new = names - {alias.name for node in found for alias in node.names if not alias.asname}
    for node in reversed(found):
        kept = {ast.unparse(one) for one in node.names if one.name not in gone} | (new if node is found[0] else set())
        if kept != {*map(ast.unparse, node.names)}:
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            line = f"from {module} import {', '.join(sorted(kept))}" if kept else f"import {module}"
            before = lines[first].encode()[: node.col_offset].decode()
            lines[first:last] = [before + line + lines[last - 1].encode()[node.end_col_offset :].decode()]
    if new and not found:
        lines = ["\n".join(lines).rstrip(), "", f"from {module} import {', '.join(sorted(new))}"]
    return "\n".join(lines)


def imports_of(text: str, module: str) -> list[ast.ImportFrom]:
    """The imports of a module's names at the top level of a test file, but for those of all names."""
    tree = parse(text)
    found = [node for node in (tree.body if tree else ()) if isinstance(node, ast.ImportFrom) and not node.level]
    return [node for node in found if node.module == module and node.names[0].name != "*"]


def gone_from(text: str, file: Path) -> set[str]:
    """The names that a test file imports from `file` and that it binds no more, as far as its source tells."""
    wanted = {alias.name for node in imports_of(text, module_of(file)[0]) for alias in node.names}
    tree = parse_source(file)[1] if wanted else ast.Module([], [])
    there = bound(loaded(tree))
    if {"*", "__getattr__", "globals"} & (there | names_in(tree)):
        return set()
    beside = {path.stem for path in file.parent.iterdir()} if file.stem == "__init__" else set[str]()
    return {name for name in wanted - there - beside if not name.startswith("__")}


def stale_tests(text: str) -> list[dict[str, Any]]:
    """What stands at the top level of a test file and mentions names that nothing in it binds, as a test of a function
    does that is gone: its name, its first and last line, and the names."""
    tree = parse(text) or ast.Module([], [])
    nodes = list(ast.walk(tree))
    there = {*dir(builtins), *bound(nodes), *(node.arg for node in nodes if isinstance(node, ast.arg))}
    found = []
    for node in tree.body if "*" not in there else ():
        if missing := sorted(name for name in names_in(node) - there if not name.startswith("__")):
            first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])
            lines = [first, node.end_lineno or first]
            found.append({"test": getattr(node, "name", type(node).__name__), "lines": lines, "missing": missing})
    return found


def run_pytest(files: dict[str, str], test: str) -> object:
    """[name, outcome, why] of each test of the file `test` under pytest, in order; None where there is no pytest. Its
    source is sent as a program, so it imports what it uses."""
    import os
    import sys

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        import pytest
    except ImportError:
        return None
    found: list[list[str]] = []

    class _Seen:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.failed:
                found.append([report.nodeid.partition("::")[2], report.outcome, str(report.longrepr or "")[-300:]])

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                found.append(["", "failed", str(report.longrepr)[-300:]])

    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
        with open(name, "w", encoding="utf-8") as out:
            out.write(text)
    sys.path.insert(0, os.getcwd())
    plain = [
        "-q", "-s", "--tb=line", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-c", os.devnull,
    ]  # fmt: skip
    pytest.main([*plain, "--rootdir", os.getcwd(), test], plugins=[_Seen()])
    return found
