"""The functions that tests are written for, UnLeakedTestBench's or those of a user's file, and their mutants."""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.evals.registry import benchmark_row
from codea1_cli.evals.test_generation.in_jail import NAMES, TYPES
from codea1_cli.evals.test_generation.split_tests import binds
from codea1_cli.extract.pytest_rules import never_returns
from codea1_cli.extract.source import PARSER, parse, within
from codea1_cli.files import parse_source, read_json
from codea1_cli.problems.benchmark_files import PublicTask
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import whole_rows

TITLE = "UnLeakedTestBench"
_IMPORTS = {
    **{name: f"import {name}" for name in NAMES if name not in ("np", "pd", "pandas", "pytest")},
    "np": "import numpy as np",
    **{name: f"from typing import {name}" for name in TYPES},
}
_OF_SYMBOLS = tuple(f"core/Replace{kind}Operator_" for kind in ("Binary", "Comparison", "Unary"))  # most operators
_SYMBOLS, _PUNCTUATION = ("operator", "comparison", "factor", "not_test"), tuple("()[]{}:,.=")  # where those apply
_DEFINITION = re.compile(r"^(?:async\s+)?def\s+([A-Za-z_]\w*)\s*\(", re.MULTILINE)


@dataclass(frozen=True)
class Function:
    """One function under test. `program` is what loads it; `shown` is what a model sees. `calls` are asserts that came
    with it, of which only the calls are used; `row` is its number in the file; `first` and `last` are its lines."""

    id: str
    name: str
    description: str
    program: str
    shown: str = ""
    calls: tuple[str, ...] = ()
    row: int = 0
    first: int = 1
    last: int = 1_000_000_000

    @property
    def standalone(self) -> str:
        """The program with imports of the usual modules that it mentions and lacks, for a judge that offers none."""
        words = set(re.findall(r"[A-Za-z_]\w*", self.program))
        lines = [line for name, line in _IMPORTS.items() if name in words and not binds(self.program, name)]
        return "\n".join([*lines, self.program])

    @property
    def entry_point(self) -> str:
        """The function's name, as every item of an evaluation has it."""
        return self.name

    @property
    def problem(self) -> Problem:
        """As the training's prompts want it."""
        source = self.shown or self.program
        head = next((line.strip() for line in source.splitlines() if line.lstrip().startswith(("def ", "async "))), "")
        question = self.description.strip() or f"What `{self.name}` does is what its code does."
        return Problem(
            id=self.id,
            question=question,
            declaration=head,
            entry_point=self.name,
            reference=self.program,
            tests=list(self.calls),
        )


def load_ult(data: Path | None) -> list[Function]:
    """The benchmark's functions in the order of its file, which is a JSON list or JSON lines.

    data: the file or a folder that holds it (a clone of the benchmark, say); None: found as `find_file` does.

    Raises:
        UserError: there is none in `data`, or a row lacks a field (its number is named).
        EnvironmentFault: it is nowhere here and cannot be fetched.
    """
    file = benchmark_row("ult").file(data)
    functions = []
    for number, (place, row) in enumerate(whole_rows(file)):
        missing = [name for name in ("code", "task_id") if row.get(name) is None]
        tests = row.get("test_list") or []
        if missing or not isinstance(tests, list):
            what = f"lacks the field {missing[0]}" if missing else "field test_list: not a list"
            raise UserError(f"{place}: {what}", hint=f"a row of {TITLE} has task_id, code, func_name and test_list")
        code, task = str(row["code"]), str(row["task_id"])
        found = _DEFINITION.search(code)
        name = str(row.get("func_name") or (found[1] if found else ""))
        calls = tuple(test for test in tests if isinstance(test, str))
        functions.append(Function(task, name, str(row.get("prompt") or ""), code, code, calls, number))
    if len({function.id for function in functions}) < len(functions):
        raise UserError(f"{file}: a task_id appears twice", hint="keep one of the two rows")
    if not functions:
        raise UserError(f"{file} holds no function", hint=f"give the file of {TITLE}")
    return functions


class UnLeakedTestBench:
    """The benchmark `ult` as an `evals.benchmark.TestBenchmark`."""

    title = TITLE

    def load(self, data: Path | None) -> list[Function]:
        """The functions, as `load_ult`."""
        return load_ult(data)

    def public_task(self, row: Mapping[str, Any]) -> PublicTask:
        """A published row as training data is compared with it."""
        tests = "\n".join(row["test_list"])
        about = benchmark_row("ult")
        return PublicTask(
            about.title, f"{about.prefix}{row['task_id']}", row["prompt"], row["code"], row["func_name"], tests
        )


def fixed_sample(functions: Sequence[Function], file: Path | None = None, share: float = 0.1) -> set[str]:
    """The ids whose mutation score the published figure is about: a tenth, at least one.

    file: a JSON list of ids or of `task_ROW` (the published sample's form), of which those that are here count. Without
    one it is those of smallest SHA-256, so that the choice does not depend on order.

    Raises:
        UserError: the file is not such a list, or names nothing that is here.
    """
    if file is None:
        ordered = sorted(
            functions, key=lambda function: hashlib.sha256(function.id.encode("utf-8", "surrogatepass")).hexdigest()
        )
        return {function.id for function in ordered[: max(1, int(len(ordered) * share))]}
    wanted = set(map(str, read_json(file, list)))
    found = {function.id for function in functions if wanted & {function.id, f"task_{function.row}"}}
    if not found:
        raise UserError(f"{file} names no function that is here", hint="it holds task ids or `task_ROW`")
    return found


def functions_of_file(file: Path) -> list[Function]:
    """The functions at the top level of a Python file, in order; the whole file is the program of each.

    Raises:
        UserError: it cannot be read or parsed, or holds none.
    """
    found = _functions(*parse_source(file))
    if not found:
        raise UserError(f"{file} has no function at its top level", hint="one `def f(...):` at the left margin")
    return found


def functions_of(source: str, file: str = "") -> list[Function]:
    """The functions at the top level of a program, as `functions_of_file`; none of one that does not parse. With `file`
    their ids begin with it."""
    tree = parse(source)
    found = _functions(source, tree) if tree is not None else []
    return [replace(one, id=f"{file}:{one.name}") for one in found] if file else found


def _functions(source: str, tree: ast.Module) -> list[Function]:
    found, lines = list[Function](), source.split("\n")
    for number, node in enumerate(n for n in tree.body if isinstance(n, ast.FunctionDef)):
        first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
        last = node.end_lineno or node.lineno
        shown = "\n".join(lines[first - 1 : last])
        found.append(
            Function(node.name, node.name, ast.get_docstring(node) or "", source, shown, (), number, first, last)
        )
    last_of = {function.name: function for function in found}  # of two with one name the later counts, as in Python
    return list(last_of.values())


def untestable(source: str) -> dict[str, str]:
    """By name, why asserts on returned values cannot test what a program defines at its top level."""
    found = dict[str, str]()
    for node in getattr(parse(source), "body", ()):
        inner = within(node)
        if isinstance(node, ast.ClassDef):
            found[node.name] = "a class: only functions at the top level are tested"
        elif isinstance(node, ast.AsyncFunctionDef):
            found[node.name] = "a coroutine"
        elif not isinstance(node, ast.FunctionDef):
            continue
        elif node.name.startswith("_"):
            found[node.name] = "private: it is tested through the functions that call it"
        elif any(isinstance(part, ast.Yield | ast.YieldFrom) for part in inner):
            found[node.name] = "a generator: what it yields is not compared"
        elif not any(isinstance(part, ast.Return) and part.value is not None for part in inner):
            found[node.name] = "it raises, or never ends" if never_returns(node) else "it returns no value"
    return found


@dataclass(frozen=True)
class Mutant:
    """One change. `source` is the changed program, None where the operator fails on it (cosmic-ray calls that
    incompetent, and counts it as killed); `line` is where it begins."""

    operator: str
    occurrence: int
    line: int
    source: str | None


def make_mutants(source: str, lines: range | None = None) -> list[Mutant]:
    """Every mutant of a program, by operator and then by place: the same ones, in the same order, as `cosmic-ray init`
    plans by default. It parses a program anew for each. Here it is parsed once; each mutation is made in the tree,
    printed and taken back, which is some 30 times quicker. Each holds the whole program: `lines` makes only those
    that begin there, numbered among themselves.

    Raises:
        EnvironmentFault: cosmic-ray is not installed.
    """
    with PARSER:  # cosmic-ray evaluates numbers, and its parser literals, with Python's own
        tree = _parse(source)
        every = [(name, operator, list[Mutant]()) for name, operator in _operators()]
        few = [kind for kind in every if not kind[0].startswith(_OF_SYMBOLS)]
        for node in _nodes(tree, lines):
            symbol = node.type in _SYMBOLS and getattr(node, "value", "") not in _PUNCTUATION
            for name, operator, made in every if symbol else few:
                for index, (start, _) in enumerate(operator.mutation_positions(node)):
                    if lines is None or start[0] in lines:
                        made.append(Mutant(name, len(made), start[0], _mutated(tree, node, operator, index)))
        return [mutant for *_, made in every for mutant in made]


def own_mutants(function: Function) -> list[Mutant]:
    """The mutants of the function's program that change its own lines."""
    return make_mutants(function.program, range(function.first, function.last + 1))


def show_diff(source: str, mutant: Mutant, name: str = "source") -> str:
    """The change as a unified diff."""
    changed = (mutant.source or "").splitlines()
    lines = difflib.unified_diff(source.splitlines(), changed, name, f"{name} ({mutant.operator})", lineterm="", n=1)
    return "\n".join(lines)


@cache
def _operators() -> list[tuple[str, Any]]:
    """The operators that need no arguments, which are those of a session without operator settings."""
    try:
        from cosmic_ray.plugins import get_operator, operator_names
    except ImportError as error:
        raise EnvironmentFault(f"mutation needs cosmic-ray: {error}", hint="`uv sync` installs it") from None
    return [(name, kind()) for name in operator_names() if not (kind := get_operator(name)).arguments()]


@lru_cache(maxsize=1)  # for all functions of a file
def _parse(source: str) -> Any:
    _operators()
    from cosmic_ray.ast import get_ast

    return get_ast(source)


def _nodes(tree: Any, lines: range | None = None) -> Iterator[Any]:
    """The tree from the top, parents first, without what lies outside of the lines; a stack: programs nest deep."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if lines is not None and (node.end_pos[0] < lines.start or node.start_pos[0] >= lines.stop):
            continue
        yield node
        pending.extend(reversed(getattr(node, "children", ())))


def _mutated(tree: Any, node: Any, operator: Any, index: int) -> str | None:
    start, end = _around(tree, node)
    before = [(p, at, getattr(p, at)[:]) for p in _nodes(node) for at in ("children", "value") if hasattr(p, at)]
    try:
        changed = operator.mutate(node, index)
        code = changed.get_code() if changed is not None else "" if node.parent is not None else None
        return f"{start}{code}{end}" if code is not None else None
    except Exception:  # whatever an operator raises: cosmic-ray reports the mutant, and so do we
        return None
    finally:
        for part, at, value in before:
            setattr(part, at, value)


@lru_cache(maxsize=1)  # for all mutants of a node
def _around(tree: Any, node: Any) -> tuple[str, str]:
    """What a program has before and after a node."""
    from parso.python.tree import Name

    if (parent := node.parent) is None:
        return "", ""
    siblings, place = parent.children, Name("\0", (0, 0))
    parent.children = [place if child is node else child for child in siblings]
    start, _, end = tree.get_code().partition("\0")
    parent.children = siblings
    return start, end
