"""Where problems come from: what every source offers, how its columns become a Problem, or the reason why not, and
which source SOURCE names. One module per kind of source.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from codea1_cli.errors import UserError, did_you_mean, first_line, plain_fault
from codea1_cli.evals.registry import task_sources
from codea1_cli.extract.pytests import Converted, convert_tests
from codea1_cli.extract.source import declaration, normal_newlines, parse
from codea1_cli.files import no_file, user_path
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import FORMATS, Row, Skipped, format_of, no_text
from codea1_cli.recipe.data_options import SourceOptions

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_NO_OPTIONS = SourceOptions()
NOT_UNICODE = "text that is not Unicode (a lone surrogate)"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source(Protocol):
    """A source of problems. `title` and `license` are those of the data card."""

    title: str
    license: str

    def records(self) -> Iterator[tuple[str, Row | Skipped]]:
        """(place, row) in an order that never changes; the place is for messages."""

    def convert(self, row: Row) -> Problem | Skipped:
        """The problem of one row; the same row always gives the same one."""

    def identity(self) -> dict[str, Any]:
        """What decides the records: file hashes, hub revision, options."""


def build(
    *,
    id: str,
    question: Any,
    reference: Any,
    tests: Any = "",
    modules: Sequence[str] = (),
    entry_point: str | None = None,
    extra_tests: Sequence[str] = (),
    keep_test_code: bool = True,
    one_function: bool = False,
    source: str = "",
    license: str = "",
    meta: dict[str, Any] | None = None,
) -> Problem | Skipped:
    """A problem whose declaration, entry point and tests are read from the sources.

    `tests` is a pytest file or asserts, as one text or a list; `modules` are further test files, each read by itself.
    With `one_function`, a row whose tests check several functions of the solution is skipped.

    Reasons: missing_field, reference_syntax, no_function, class, no_entry_point, several_functions, bad_field.
    """
    for name, value in (("question", question), ("reference", reference)):
        if (why := no_text(name, value)) is not None:
            return why
    text = tests if isinstance(tests, str) else "\n".join(str(test) for test in tests or ())
    reference, text = tidy(reference), tidy(text)
    tree = parse(reference)
    if tree is None:
        return Skipped("reference_syntax", "the reference does not parse")
    there = functions(tree)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if not there:
        return Skipped("class" if classes else "no_function", ", ".join(classes))
    if entry_point is None or (entry_point not in there and called(text, set(there))):
        entry_point = guess_entry_point(tree, text)
    if entry_point not in there:
        return Skipped("no_entry_point", f"the reference does not define {entry_point}")
    tested = asserted(text, set(there) | set(classes)) if one_function else set()
    if classes and tested & set(classes):
        return Skipped("class", ", ".join(sorted(tested & set(classes))))
    if len(tested) > 1:
        return Skipped("several_functions", ", ".join(sorted(tested)))
    if isinstance(tests, list) and all("def test" in str(test) for test in tests):
        converted = convert_tests("", entry_point, [*map(str, tests), *modules])  # names may be the same: each a file
    else:
        converted = convert_tests(text, entry_point, modules)
    extra = _asserts(extra_tests, entry_point, converted)
    function = there[entry_point]
    docstring = ast.get_docstring(function)
    details = {**(meta or {}), **({"docstring": docstring} if docstring and docstring not in question else {})}
    if +converted.skipped:
        details["tests_left_out"] = {reason: n for reason, n in sorted(converted.skipped.items()) if n}
    try:
        return Problem(
            id=id,
            question=question.strip(),
            declaration=declaration(function),
            entry_point=entry_point,
            reference=reference,
            tests=converted.tests,
            extra_tests=extra,
            test_code=text if keep_test_code and text else None,
            source=source,
            license=license,
            meta=details,
        )
    except ValidationError as error:
        return Skipped("bad_field", _first_problem(error))
    except ValueError as error:  # a default that cannot be printed, such as an integer of thousands of digits
        return Skipped("bad_field", f"declaration: {first_line(error)}")


def _first_problem(error: ValidationError) -> str:
    """The field that pydantic refuses first, and why."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    why = NOT_UNICODE if first["type"] == "string_unicode" else plain_fault(first["msg"])
    return f"{'.'.join(map(str, first['loc']))}: {why}"


def asserted(tests: str, names: set[str]) -> set[str]:
    """Which of `names` the asserts of a test file call, helpers' bodies left out."""
    tree = parse(tests)
    found: set[str] = set()
    if tree is None:
        return found
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test"):
            for node in ast.walk(test):
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                    found |= {name} & names
    return found


def _asserts(tests: Sequence[str], entry_point: str, known: Converted) -> list[str]:
    extra = convert_tests("\n".join(tests), entry_point)
    return [test for test in extra.tests if test not in known.tests]


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


# -- which source ------------------------------------------------------------------------------------------------------
def make_source(spec: str, options: SourceOptions = _NO_OPTIONS, benchmarks: Path | None = None) -> Source:
    """The source behind a built-in name, a file, a folder or a hub dataset's id.

    Raises:
        UserError: there is no such source, an option that it does not have, or a mapping that cannot be read.
    """
    from codea1_cli.data.sources.kodcode import DIFFICULTIES, BenchmarkTasks, KodCode, Mbpp
    from codea1_cli.data.sources.python_folder import PythonFolder
    from codea1_cli.data.sources.rows import FileRows, HubRows
    from codea1_cli.data.sources.table import MappedRows, read_mapping

    o, path, built_in = options, user_path(spec), ("kodcode", "mbpp", *task_sources())
    mapping = read_mapping(o.maps or [], o.mapping)
    here = o.data is not None or spec in task_sources() or (spec not in built_in and path.exists())
    whole = "a hub dataset; files of this machine are read whole"
    _refuse(
        (spec != "kodcode" and o.difficulty is not None, "--difficulty", "kodcode"),
        (spec not in built_in and o.data is not None, "--data", ", ".join(built_in)),
        (spec in built_in and bool(o.maps), "--map", "a file or a hub dataset"),
        (spec in built_in and o.mapping is not None, "--mapping", "a file or a hub dataset"),
        (here and o.split is not None, "--split", whole),
        (here and o.revision is not None, "--revision", whole),
        ((here or spec in built_in) and o.config is not None, "--config", "a hub dataset given by its id"),
    )
    if o.difficulty is not None and o.difficulty not in DIFFICULTIES:
        raise UserError(f"no difficulty {o.difficulty!r}", hint=f"one of {', '.join(DIFFICULTIES)}")
    if spec == "kodcode":
        return KodCode(o.data, o.difficulty, o.split, o.revision, o.license)
    if spec == "mbpp":
        return Mbpp(o.data, o.split, o.revision, o.license)
    if spec in built_in:
        return BenchmarkTasks(spec, o.data, benchmarks, o.license)
    if path.is_file() and path.suffix == ".py":
        return PythonFolder(path, o.license)
    if path.is_file():
        return MappedRows(FileRows(path), mapping, o.license)
    if path.is_dir():
        return _folder(path, mapping, o)
    if format_of(path) or spec.startswith((".", "/", "~")) or path.suffix == ".py":
        raise UserError(f"cannot read {spec}: {no_file(path)}", hint=f"a {', '.join(FORMATS)} or .py file, or a folder")
    if _HUB_ID.fullmatch(spec):
        hint = f"no file or folder is called {spec}, so it was taken for a dataset of the hub"
        return MappedRows(HubRows(spec, o.split or "train", o.revision, o.config, hint), mapping, o.license)
    known = f"{', '.join(built_in)}, a file, a folder of Python files, or a hub id OWNER/NAME"
    close = did_you_mean(spec, built_in)
    raise UserError(f"no source {spec!r}", hint=f"{f'{close} ' if close else ''}There are {known}")


def expected(spec: str, options: SourceOptions) -> tuple[float, int, int]:
    """About how many bytes a published source has, its rows, and the most problems they make; zeros of others."""
    from codea1_cli.data.sources.kodcode import MBPP_ROWS

    if spec == "kodcode" and options.data is None and options.split in (None, "train"):
        return 2.64e9, 447_000, 9688 if options.difficulty == "hard" else 447_000
    if spec == "mbpp" and options.data is None:
        rows = sum(MBPP_ROWS.get(split, 0) for split in (options.split or "+".join(MBPP_ROWS)).split("+"))
        return 350.0 * rows, rows, rows
    return 0.0, 0, 0


def _folder(path: Path, mapping: Mapping[str, str] | None, options: SourceOptions) -> Source:
    """Tables at a folder's top make it a folder of tables, else Python files below it one of those."""
    from codea1_cli.data.sources.python_folder import PythonFolder
    from codea1_cli.data.sources.rows import FolderRows, named, visible_files
    from codea1_cli.data.sources.table import MappedRows

    top = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    tables = [file for file in top if format_of(file)]
    python = [file for file in top if file.suffix == ".py"]
    if tables and python:
        raise UserError(
            f"{path} holds tables ({named(path, tables)}) and Python files ({named(path, python)})",
            hint="give one of the files, or a folder that holds files of one kind",
        )
    below = [] if tables else list(visible_files(path))
    if not tables and (any(file.suffix == ".py" for file in below) or not any(map(format_of, below))):
        others = "a file, a folder of tables or a hub dataset"
        _refuse((bool(options.maps), "--map", others), (options.mapping is not None, "--mapping", others))
        return PythonFolder(path, options.license)
    return MappedRows(FolderRows(path), mapping, options.license)


def _refuse(*rules: tuple[bool, str, str]) -> None:
    """Refuses options that a source does not have. A rule: whether it is broken, the option, and what has it."""
    if found := {option: sources for wrong, option, sources in rules if wrong}:
        what = f"{', '.join(found)} {'does' if len(found) == 1 else 'do'} not go with this source"
        sources = "; ".join(f"{option} belongs to {of}" for option, of in found.items())
        raise UserError(what, hint=f"leave out {', '.join(found)}: {sources}")
