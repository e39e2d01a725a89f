"""The pytest file that `write-tests` writes, and adds to; and whether it passes."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.errors import UserError, counted, some
from codea1_cli.evals.test_generation import Mutant
from codea1_cli.evals.test_generation.entries import gone_from, importing, module_of, run_pytest, stale_tests
from codea1_cli.evals.test_generation.execution import coverage_of, jail_call
from codea1_cli.evals.test_generation.writing import Case, Studied
from codea1_cli.extract.source import parse, parse_call
from codea1_cli.files import parse_source, read_source
from codea1_cli.sandbox.base import Limits, Sandbox

_SHOWN = 60  # characters of a changed line
MARK = "written by codea1 write-tests"
_RUN = Limits(time_s=60.0, load_s=30.0)


def path_of_tests(file: Path, out: Path) -> Path:
    """Where the tests of a file are written: named after its module, so that no test file of a project is met."""
    return out / f"test_{module_of(file)[0].replace('.', '_')}_generated.py"


def check_distinct(files: Sequence[Path], out: Path) -> None:
    """Raises UserError where two files would share a test file, which could import but one of them by that name."""
    there: dict[Path, Path] = {}
    for file in files:
        if (first := there.setdefault(path_of_tests(file, out), file)) is not file:
            raise UserError(f"{first} and {file} are both the module {module_of(file)[0]}", hint="an --out for each")


def written_before(file: Path, out: Path, foreign: bool = False) -> str:
    """What an earlier call wrote of a file; empty for nothing.

    Raises:
        UserError: what is there is somebody else's, or of another file, unless `foreign` passes that over; or its owner
            has left it so that it does not parse.
    """
    path = path_of_tests(file, out)
    if not path.exists():
        return ""
    ours = MARK in read_source(path).partition("\n")[0]
    text = parse_source(path)[0] if ours else ""
    other = _other_origin(text, file, out)
    if foreign and (other or not ours):
        return ""
    if not ours:
        raise UserError(f"{path} was not written by this command", hint="--out names another folder for the tests")
    if other:
        raise UserError(f"{path} has the tests of {other}", f"another --out for those of {file}")
    return text


def _origin(file: Path, out: Path) -> str:
    """Where a file lies, from the folder of its tests on, as a project may be moved; in a form that a string holds."""
    path = os.path.relpath(file.parent.resolve() / file.name, out.resolve())
    return json.dumps(path, ensure_ascii=False)[1:-1].encode("utf-8", "backslashreplace").decode()


def _other_origin(text: str, file: Path, out: Path) -> str:
    """The file that a test file says to be of, where that is there and is another one."""
    head = ast.get_docstring(parse(text) or ast.Module([], []), clean=False) or ""
    named = head.partition(f", {MARK}")[0].removeprefix("Tests of ")
    there = out.resolve() / named
    return os.path.relpath(there) if named and there.is_file() and not there.samefile(file) else ""


@dataclass(frozen=True)
class TestFunction:
    """One test function: its name, its source, and the cases in the order of its rows."""

    __test__ = False
    name: str
    source: str
    cases: tuple[Case, ...]


def file_of_tests(
    studied: Sequence[Studied], file: Path, out: Path, before: str = ""
) -> tuple[str, list[TestFunction]]:
    """The file of all kept cases, or `before`, an earlier one, with what they add to it; and what is new in it. It says
    what file it is of, as seen from the folder `out` that it lies in."""
    module, taken = module_of(file)[0], set(re.findall(r"^def (test_\w+)\(", before, re.M))
    new = [function for one in studied for function in _functions(one, taken)]
    name = f'"""Tests of {_origin(file, out)}, {MARK}'
    head = before or f'{name}; a later call adds to them."""\n'
    head = re.sub(rf'\A"""Tests of .*, {MARK}', lambda _: name, head)  # of a file that has moved
    head = importing(head, file, {one.function.name for one in studied if one.kept})
    if any("pytest." in function.source for function in new) and not re.search(r"^import pytest$", head, re.M):
        head = re.sub(rf"^(?=from {re.escape(module)} import)", "import pytest\n\n", head, count=1, flags=re.M)
    return "\n\n\n".join([head.rstrip(), *(function.source for function in new)]) + "\n", new


def _functions(one: Studied, taken: set[str]) -> list[TestFunction]:
    """The test functions of one function's kept cases: one for all calls of a shape, with a row each."""
    shapes: dict[tuple[str, ...] | None, list[Case]] = {}
    for case in one.kept:
        shapes.setdefault(_names(case.call, one.function.shown), []).append(case)
    found = []
    for shape, cases in shapes.items():
        for group in [cases] if shape and len(cases) > 1 else [[case] for case in cases]:
            name = _free(f"test_{one.function.name}", taken)
            about = f'    """{_about(one, group)}"""'
            if len(group) > 1 and shape:
                lines = _table(one, name, about, shape, group)
            else:
                remarks = [f"    # {remark}" for remark in _remarks(one, group[0])]
                lines = [f"def {name}():", about, *remarks, f"    assert {group[0].call} == {_answer(group[0])}"]
            found.append(TestFunction(name, "\n".join(lines), tuple(group)))
    return found


def _table(one: Studied, name: str, about: str, shape: tuple[str, ...], group: Sequence[Case]) -> list[str]:
    rows = [line for case in group for line in (*(f"        # {text}" for text in _remarks(one, case)), _row(case))]
    given = len(parse_call(group[0].call).args)
    passed = ", ".join((*shape[:given], *(f"{word}={word}" for word in shape[given:])))
    columns = (*shape, "expected")
    return [
        "@pytest.mark.parametrize(",
        f"    ({', '.join(map(json.dumps, columns))}),",
        "    [",
        *rows,
        "    ],",
        ")",
        f"def {name}({', '.join(columns)}):",
        about,
        f"    assert {one.function.name}({passed}) == expected",
    ]


def _free(name: str, taken: set[str]) -> str:
    number = 2
    found = name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def _about(one: Studied, group: Sequence[Case]) -> str:
    killed, mutants = len(one.killed(group)), len(one.mutants)
    kills = f"Kills {killed} of {counted(mutants, 'mutant')}." if mutants else "The function has no mutants."
    lines = sorted({line for case in group for line in lines_alone(one, case)})
    numbers = some([str(line) for line in lines], 8)
    return kills + (f" No other test reaches line{'s' * (len(lines) > 1)} {numbers}." if lines else "")


def lines_alone(one: Studied, case: Case) -> set[int]:
    """The lines of the function that no other of the existing and kept tests reaches."""
    others = {line for other in (*one.existing, *one.kept) if other.call != case.call for line in _lines(one, other)}
    return _lines(one, case) - others


def _lines(one: Studied, case: Case) -> set[int]:
    return {line for arc in case.arcs for line in arc if one.function.first < line <= one.function.last}


def _remarks(one: Studied, case: Case) -> list[str]:
    found = []
    if not case.votes:
        found.append("what the function gives today: no sample of the model states it")
    if alone := one.alone(case):
        more = f", and {len(alone) - 1} more" if len(alone) > 1 else ""
        found.append(f"alone kills line {alone[0].line}: {_changed_line(one.function.program, alone[0])}{more}")
    return found


def _changed_line(program: str, mutant: Mutant) -> str:
    """The line of a program as a mutant has it."""
    if mutant.source is None:
        return "(does not compile)"
    pairs = zip(program.splitlines(), mutant.source.splitlines(), strict=False)
    text = next((new.strip() for old, new in pairs if old != new), "(removed)")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _names(call: str, function: str) -> tuple[str, ...] | None:
    """The parameters that a call's arguments go to, in its order; None where they cannot be columns of a table."""
    tree, node = parse(function), parse_call(call)
    head = tree.body[0] if tree is not None and tree.body else None
    if not isinstance(head, ast.FunctionDef) or any(isinstance(one, ast.Starred) for one in node.args):
        return None
    parameters = [one.arg for one in (*head.args.posonlyargs, *head.args.args)]
    words = [str(word.arg) for word in node.keywords if word.arg is not None]
    names = (*parameters[: len(node.args)], *words)
    every = {*names, head.name}
    clash = len(every) <= len(names) or {"expected", "request", "pytest"} & every
    return None if len(names) < len(node.args) + len(node.keywords) or clash else names


def _row(case: Case) -> str:
    node = parse_call(case.call)
    parts = [*map(ast.unparse, node.args), *(ast.unparse(word.value) for word in node.keywords), _answer(case)]
    return f"        ({', '.join(parts)}),"


def _answer(case: Case) -> str:
    value = ast.parse(case.text, mode="eval").body
    number = value.operand if isinstance(value, ast.UnaryOp) else value
    if not isinstance(number, ast.Constant) or not isinstance(number.value, float):
        return case.text
    return f"pytest.approx({case.text if number.value else '0.0'})"  # to which -0.0 is equal


def passes(sandbox: Sandbox, file: Path, text: str) -> list[tuple[str, bool, str]] | None:
    """Each test of a test file on `file`, run by pytest in the sandbox: its name, whether it passes, why not. None
    where its interpreter has no pytest, or the sandbox failed."""
    module = module_of(file)[0].split(".")
    folders = ["/".join(module[:depth]) for depth in range(1, len(module))]
    files = {f"{folder}/__init__.py": "" for folder in folders} | {f"{'/'.join(module)}.py": read_source(file)}
    job = jail_call("run_pytest", files | {"test_generated.py": text}, "test_generated.py")
    program = f"from __future__ import annotations\n{inspect.getsource(run_pytest)}"
    answer = sandbox.run(program, "run_pytest", [job], _RUN).answers[0]
    rows = answer.value.data if answer.value is not None else None
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 3 for row in rows):
        return None
    return [(str(name), outcome == "passed", str(why)) for name, outcome, why in rows]


def write_tests(studied: Sequence[Studied], file: Path, out: Path, sandbox: Sandbox) -> dict[str, Any]:
    """Writes the kept cases of a file's functions, those out that fail under pytest, to its test file; without a new
    test nothing is written. What it comes to is returned as `--json` has it: `written` counts new tests, `passing_by`
    is who says that they pass, `pytest` or, where it is not there to be asked, `judge`.

    Raises:
        UserError: a file of that name is somebody else's, or has the tests of another one.
    """
    path = path_of_tests(file, out)
    before = written_before(file, out)
    count, by, failing = 0, "", dict[Case | None, str]({None: ""})
    while failing and any(one.kept for one in studied):
        text, new = file_of_tests(studied, file, out, before)
        rows = passes(sandbox, file, text)
        failing = dict(_failing(new, rows) if rows is not None else ())
        for one in studied:
            why = next((failing[case] for case in one.kept if case in failing), "")
            one.kept = [case for case in one.kept if case not in failing]
            if why and not one.kept and not one.existing:
                one.fault = f"no test of it passes under pytest: {why}"
        if not failing:
            count, by = sum(len(function.cases) for function in new), "judge" if rows is None else "pytest"
    gone = sorted(gone_from(before, file))
    text = file_of_tests(studied, file, out, before)[0] if count or gone else before
    if text != before:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    program = studied[0].function.program if studied else ""
    arcs = {"before": [one.arcs_before for one in studied], "after": [one.arcs_after for one in studied]}
    return {
        "file": str(file),
        "tests_file": str(path),
        "written": count,
        "passing_by": by,
        "gone": gone,
        "stale": stale_tests(text),
        "coverage": {name: vars(coverage_of(program, frozenset().union(*part))) for name, part in arcs.items() if part},
        "functions": [_report(one) for one in studied],
    }


def _report(one: Studied) -> dict[str, Any]:
    """The function's counts, its kept tests and the mutants that survive, as `--json` has them."""
    program = one.function.program
    alive = [{"line": m.line, "operator": m.operator, "changed": _changed_line(program, m)} for m in one.survivors]
    kept = [{"call": c.call, "answer": c.text, "votes": c.votes, "asked": c.asked} for c in one.kept]
    return {
        "name": one.function.name,
        "not_tested": one.fault,
        "unscored": one.unscored,
        "mutants": len(one.mutants),
        "killed_before": one.killed_before,
        "killed_after": one.killed_after,
        "existing": len(one.existing),
        "failing": one.failing,
        "kept": kept,
        "survivors": alive,
    }


def _failing(new: Sequence[TestFunction], rows: Sequence[tuple[str, bool, str]]) -> Iterator[tuple[Case, str]]:
    """The cases that pytest did not see pass, and why; its rows are in the file's order, what fails to load has no
    name."""
    unseen = next((why for name, _, why in rows if not name), "it is not run")
    for function in new:
        own = [(passed, why) for name, passed, why in rows if name.partition("[")[0] == function.name]
        for at, case in enumerate(function.cases):
            passed, why = own[at] if at < len(own) else (False, unseen)
            if not passed:
                yield case, (why.strip().splitlines() or ["no reason is given"])[-1].removeprefix("E").strip()
