"""A Python file or a folder of them: each documented function becomes a problem.

The docstring is the question, the function with what it needs of its module is the reference, doctests and the pytest
files beside it are the tests. Nothing is imported or run here.
"""

from __future__ import annotations

import ast
import doctest
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codea1_cli.data.sources import build, called, functions
from codea1_cli.errors import UserError
from codea1_cli.extract.source import names_in, parse, unparse
from codea1_cli.files import read_source
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import Row, Skipped

_SKIPPED_FOLDERS = {".git", ".venv", "venv", "node_modules", "__pycache__", "build", "dist", "site-packages"}


class PythonFolder:
    """One .py file, or all below a folder. Raises UserError when there is none."""

    def __init__(self, path: Path, license: str | None = None) -> None:
        self.path, self.license = path, license or ""
        self.root = path if path.is_dir() else path.parent
        self.title = self.root.resolve().name or "python"
        files = sorted(self._files()) if path.is_dir() else [path]
        self.test_files = [f for f in files if _is_test(f)]
        self.files = [f for f in files if not _is_test(f)]
        if path.is_file():
            self.test_files = [f for f in sorted(self._files()) if _is_test(f)]
        if not self.files:
            raise UserError(f"no Python file in {path}", hint="give a .py file, or a folder with modules in it")

    def _files(self) -> Iterator[Path]:
        for file in self.root.rglob("*.py"):
            if not _SKIPPED_FOLDERS.intersection(file.relative_to(self.root).parts):
                yield file

    def identity(self) -> dict[str, Any]:
        """One digest over all files, tests included."""
        digest = hashlib.sha256()
        for file in (*self.files, *self.test_files):
            data = file.read_bytes()
            digest.update(f"{file.relative_to(self.root)}\0{len(data)}\0".encode())
            digest.update(data)
        return {
            "source": "python",
            "folder": self.title,
            "files": len(self.files),
            "test_files": len(self.test_files),
            "sha256": digest.hexdigest(),
            "license": self.license,
        }

    def records(self) -> Iterator[tuple[str, Row | Skipped]]:
        """Each function at the top level of each file, with the test files that import and call it."""
        tests: dict[Path, str] = {}
        for file in (*self.test_files, *self.files):
            try:
                source = read_source(file)
            except UserError as error:
                yield str(file), Skipped("broken_row", error.what)
                continue
            if file in self.test_files:
                tests[file] = source
                continue
            tree = parse(source)
            if tree is None:
                yield str(file), Skipped("broken_row", "not Python")
                continue
            for name, node in functions(tree).items():
                row = {"file": file, "source": source, "name": name}
                row["tests"] = {f: t for f, t in tests.items() if called(t, {name}) and _imports(t, file.stem, name)}
                yield f"{file}:{node.lineno}", row

    def convert(self, row: Row) -> Problem | Skipped:
        """One function. Reasons besides those of `build`: no_docstring, private, async, local_import."""
        name, tree = row["name"], parse(row["source"])
        assert tree is not None
        node = functions(tree)[name]
        if isinstance(node, ast.AsyncFunctionDef):
            return Skipped("async", name)
        if name.startswith("_"):
            return Skipped("private", name)
        docstring = ast.get_docstring(node)
        if not docstring:
            return Skipped("no_docstring", name)
        needed = _closure(tree, name)
        if local := self._local_import(needed):
            return Skipped("local_import", local)
        relative = row["file"].relative_to(self.root).with_suffix("").as_posix()
        examples, left_out = doctests(docstring, _printing(needed))
        made = build(
            id=f"{self.title}/{relative}:{name}",
            question=docstring,
            reference="\n\n".join(_text(statement, row["source"]) for statement in needed),
            tests=examples,
            modules=list(row["tests"].values()),
            entry_point=name,
            keep_test_code=False,
            source=f"{self.title}/{row['file'].relative_to(self.root).as_posix()}",
            license=self.license,
        )
        if isinstance(made, Skipped):
            return made
        found = Counter(made.meta.get("tests_left_out", {})) + left_out
        meta = {**made.meta, "tests_left_out": dict(sorted(found.items()))} if found else made.meta
        return made.model_copy(update={"test_code": "\n\n".join(row["tests"].values()) or None, "meta": meta})

    def _local_import(self, statements: list[ast.stmt]) -> str | None:
        """The name of a module of this folder that the statements import: the sandbox will not have it."""
        local = {f.stem for f in self.files} | {f.parent.name for f in self.files if f.parent != self.root}
        for node in statements:
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] in local):
                return "." * node.level + (node.module or "")
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] in local:
                        return alias.name
        return None


def _is_test(file: Path) -> bool:
    return file.name.startswith("test_") or file.stem.endswith("_test") or file.name == "conftest.py"


def _imports(test: str, module: str, name: str) -> bool:
    """Whether a test file imports `name`, or the module that defines it."""
    tree = parse(test)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ImportFrom):
            imported = {alias.name for alias in node.names}
            if module in imported or ((node.module or "").split(".")[-1] == module and imported & {name, "*"}):
                return True
        elif isinstance(node, ast.Import) and any(alias.name.split(".")[-1] == module for alias in node.names):
            return True
    return False


def _closure(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a module that `name` needs to run, in their order."""
    defines = [(node, _defined(node)) for node in tree.body]
    wanted, known = {name}, set[str]()
    while wanted - known:
        known |= wanted
        for node, names in defines:
            if names & known:
                wanted |= names_in(node)
    return [node for node, names in defines if names & known or _future(node)]


def _defined(statement: ast.stmt) -> set[str]:
    """The names that a statement at the top level binds, inside its `if` and `try` too but not inside its functions."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    names: set[str] = set()
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            names |= _defined(child)
        elif isinstance(child, ast.ExceptHandler):
            names |= set().union(*map(_defined, child.body))
        else:
            names |= {n.id for n in ast.walk(child) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names


def _printing(statements: list[ast.stmt]) -> set[str]:
    """The functions among `statements` whose bodies may print, by themselves or through another of them."""
    bodies = {name: node for node in statements for name in _defined(node) if not isinstance(node, ast.Import)}
    printing = {name for name, node in bodies.items() if any(map(prints, ast.walk(node)))}
    while more := {name for name, node in bodies.items() if names_in(node) & printing} - printing:
        printing |= more
    return printing


def _future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _text(node: ast.stmt, source: str) -> str:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return "\n".join(source.split("\n")[first - 1 : node.end_lineno])


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
