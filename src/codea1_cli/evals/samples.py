"""Samples: from a model's text to the program that is scored, and files of them, EvalPlus' and BigCodeBench's jsonl.

Beside `NAME.jsonl`, the sanitised solutions that are scored, lies `NAME.raw.jsonl` with what came before sanitising:
the two files that `evalplus.codegen` writes. A line is added to both when a prompt's samples are there.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from codea1_cli.durable import check_target, write_atomic
from codea1_cli.errors import EnvironmentFault, UserError, some
from codea1_cli.evals.benchmark import CodeBenchmark, CodeTask, Sample
from codea1_cli.extract.source import PARSER, parse
from codea1_cli.files import kept_json, read_source
from codea1_cli.problems.row_files import whole_rows


def raw_file(file: Path) -> Path:
    """The raw file beside a sample file."""
    return file.with_name(file.name.removesuffix(".jsonl") + ".raw.jsonl")


def as_file_name(label: str) -> str:
    """A model's label as part of a file's name."""
    return "".join(c if c.isalnum() or c in "-_.@" else "-" for c in label).strip("-.") or "model"


def read_samples(
    path: Path, benchmark: CodeBenchmark, tasks: Sequence[CodeTask], strangers: list[str] | None = None
) -> list[Sample]:
    """The samples of a file of rows (`row_files.read_rows`), or of a folder with a `TASK_ID/NUMBER.py` a sample.

    `strangers` receives place and id of each row of another task.

    Raises:
        UserError: there is no such file, a row of it is not a sample, or none is of these tasks.
    """
    known = {task.id: task for task in tasks}
    numbers: Counter[str] = Counter()
    samples: list[Sample] = []
    strangers = [] if strangers is None else strangers
    for where, row in _folder(path) if path.is_dir() else whole_rows(path, "it needs task_id and solution"):
        if not isinstance(row.get("task_id"), str):
            raise UserError(
                f"{where} has no task_id", hint=f"each line needs task_id and solution; an id is {tasks[0].id}"
            )
        task = known.get(row["task_id"])
        if task is None:
            strangers.append(f"{where} {row['task_id']}")
            continue
        try:
            samples.append(benchmark.read(row, task, numbers[task.id]))
        except UserError as fault:
            raise UserError(f"{where}: {fault.what}", hint=fault.hint) from None
        numbers[task.id] += 1
    if not samples:
        raise UserError(
            f"{path} holds no sample of {benchmark.title}",
            hint=f"rows of other tasks: {some(strangers)}" if strangers else "each line needs task_id and solution",
        )
    return samples


def missing_tasks(samples: Iterable[Sample], tasks: Iterable[CodeTask]) -> list[str]:
    """Tasks without a sample."""
    there = {sample.task_id for sample in samples}
    return [task.id for task in tasks if task.id not in there]


def _folder(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for folder in sorted(part for part in path.iterdir() if part.is_dir()):
        files = [file for file in folder.glob("*.py") if file.stem.isdigit()]
        for file in sorted(files, key=lambda file: int(file.stem)):
            yield str(file), {"task_id": folder.name.replace("_", "/"), "solution": read_source(file)}


def keep_settings(path: Path, note: Path, settings: Mapping[str, Any], way_out: str) -> None:
    """Writes what `path` is sampled with to `note`, before there is any of it.

    Raises:
        UserError: it was sampled with other settings, or is no file that was sampled here.
    """
    check_target(path, force=True)
    if not path.exists():
        write_atomic(note, json.dumps(settings, indent=1, sort_keys=True) + "\n")
        return
    before, now = kept_json(note), json.loads(json.dumps(settings))
    if not before:
        raise UserError(f"{path} is there already, and no {note.name} says how it was sampled", hint=way_out)
    differing = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    if differing:
        shown = ", ".join(f"{key} {before.get(key)!r} there, {now.get(key)!r} now" for key in differing[:3])
        raise UserError(f"{path} was sampled with other settings: {shown}", hint=way_out)


class SampleFile:
    """The sample file of a job that may be interrupted: what is in it need not be sampled again.

    `settings` are kept in `NAME.settings.json`; a file of other settings is refused.

    Raises:
        UserError: as `keep_settings`.
        EnvironmentFault: it cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.raw = path, raw_file(path)
        self.counts: Counter[str] = Counter()
        note = path.with_name(path.name.removesuffix(".jsonl") + ".settings.json")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            keep_settings(path, note, settings, "choose another --out, or score it with --samples")
            if path.exists():
                self._repair()
        except OSError as fault:
            if isinstance(fault, EnvironmentFault):
                raise
            raise EnvironmentFault(f"cannot write {path}: {fault.strerror}", hint="choose another --out") from None

    def _repair(self) -> None:
        """Cuts off what a crash left: a torn line, or a sample that is in one file only. The raw file is written first,
        so it is the longer one."""
        whole = list(_whole_lines(self.path))
        raws = list(_whole_lines(self.raw))[: len(whole)]
        whole = whole[: len(raws)]
        for path, lines in ((self.path, whole), (self.raw, raws)):
            with open(path, "r+b") as file:
                file.truncate(sum(map(len, lines)))
        for line in whole:
            self.counts[json.loads(line)["task_id"]] += 1

    def append(self, samples: Sequence[Sample]) -> None:
        """Adds a task's samples, flushed to disk."""
        for path, solutions in ((self.raw, [s.raw for s in samples]), (self.path, [s.solution for s in samples])):
            rows = zip(samples, solutions, strict=True)
            text = "".join(json.dumps({"task_id": s.task_id, "solution": solution}) + "\n" for s, solution in rows)
            with open(path, "ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        for sample in samples:
            self.counts[sample.task_id] += 1


def _whole_lines(path: Path) -> Iterator[bytes]:
    if not path.exists():
        path.touch()
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                json.loads(line)["task_id"]
            except (ValueError, KeyError, TypeError):
                return
            yield line


_NEEDS_MORE = ("EOF", "never closed", "unterminated", "expected an indented", "expected 'except'")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_NAME_FIELDS = ("id", "attr", "arg", "name", "rest", "module", "asname")


def sanitize_evalplus(text: str, entry_point: str) -> str:
    """The program in a text; where nothing of it defines or imports anything, its longest run of lines that parses. A
    function without a `return` is left out."""
    code = longest_program(text)
    return _needed(code, entry_point, returning=True).strip() or code


def sanitize_bigcodebench(text: str, entry_point: str) -> str:
    """As EvalPlus', with functions that return nothing, and without what calls the entry point at the end."""
    kept = _without_tail(_needed(longest_program(text.strip()), entry_point), entry_point).strip()
    return kept or longest_program(text)


def longest_program(text: str) -> str:
    """The first of the longest runs of two or more lines that parse, by lines that are not blank; else one line."""
    lines = text.split("\n")
    filled = list(accumulate((bool(line.strip()) for line in lines), initial=0))
    best, best_at = 0, (0, 0)
    for first in range(len(lines)):
        if filled[-1] - filled[first] <= best:
            break
        last = len(lines) - 1
        while last > first and filled[last + 1] - filled[first] > best:
            bad = _first_bad_line("\n".join(lines[first : last + 1]))
            if bad is None:
                while last > first + 1 and not lines[last].strip():
                    last -= 1
                best, best_at = filled[last + 1] - filled[first], (first, last)
                break
            last = min(last - 1, first + bad - 2) if bad else last - 1
    return "\n".join(lines[best_at[0] : best_at[1] + 1])


def _first_bad_line(text: str) -> int | None:
    """None when `text` parses; else the line that no longer text can mend, 0 when the end may be at fault."""
    try:
        with PARSER:
            ast.parse(text, "<reply>")  # the file name whose warnings are not shown
    except SyntaxError as fault:
        open_end = any(words in (fault.msg or "") for words in _NEEDS_MORE)
        return 0 if open_end or not fault.lineno else fault.lineno
    except (ValueError, RecursionError, MemoryError):
        return 0
    return None


def _needed(code: str, entry_point: str, *, returning: bool = False) -> str:
    """The imports at the top level of a program, then the definitions that the entry point reaches through names.

    returning: only functions that hold a `return` count as definitions.
    """
    tree = parse(code)
    if tree is None:
        return ""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    imports = [node for node in imports if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        name = _defined_name(node, returning)
        if name is not None:
            defined.setdefault(name, node)
    reached, waiting = {entry_point}, [entry_point]
    while waiting:
        name = waiting.pop()
        fresh = _names(defined[name]) - reached if name in defined else set()
        reached |= fresh
        waiting += fresh
    lines = _LINE.findall(code.encode())
    kept = [*imports, *(node for name, node in defined.items() if name in reached)]
    return "\n".join(_source(lines, node) for node in kept)


def _defined_name(node: ast.stmt, returning: bool) -> str | None:
    """The name that a class, function or assignment is kept by; None for other statements and decorated definitions."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if node.decorator_list:
            return None
        left_out = returning and not isinstance(node, ast.ClassDef)
        return None if left_out and not any(isinstance(part, ast.Return) for part in ast.walk(node)) else node.name
    if isinstance(node, ast.Assign):
        parts = [node.targets[0], *([node.value] if len(node.targets) == 1 else [])]
    elif isinstance(node, ast.AnnAssign):
        parts = [node.target, *([node.value] if node.value is not None else [])]
    else:
        return None
    return next((part.id for part in parts if isinstance(part, ast.Name)), None)


def _names(node: ast.AST) -> set[str]:
    """All identifiers in a definition: variables, attributes, parameters, keywords and what it defines or imports."""
    names: set[str] = set()
    for part in ast.walk(node):
        for value in (getattr(part, field, None) for field in _NAME_FIELDS):
            if isinstance(value, str):
                names.update(value.split("."))
        if isinstance(part, ast.Global | ast.Nonlocal):
            names.update(part.names)
        elif isinstance(part, ast.MatchClass):
            names.update(part.kwd_attrs)
    return names


def _source(lines: list[bytes], node: ast.stmt) -> str:
    """The text of a statement. `lines` with their ends, as Python counts lines; columns are bytes."""
    part = lines[node.lineno - 1 : node.end_lineno]
    part[-1] = part[-1][: node.end_col_offset]
    part[0] = part[0][node.col_offset :]
    return b"".join(part).decode()


def _without_tail(code: str, entry_point: str) -> str:
    """Cuts from the first of the unindented lines at the end that name the entry point."""
    lines = code.splitlines()
    cut = None
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith(" "):
            break
        if entry_point in lines[number]:
            cut = number
    return code if cut is None else "\n".join(lines[:cut])
