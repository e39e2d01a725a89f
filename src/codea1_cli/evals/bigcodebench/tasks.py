"""BigCodeBench's tasks as published: from a file, or from the hub."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError, first_line
from codea1_cli.extract.source import parse

VERSION = "v0.1.4"
HUB = {"full": "bigcode/bigcodebench", "hard": "bigcode/bigcodebench-hard"}
FILE = f"bigcodebench-{VERSION}.jsonl.gz"
CLASS = "TestCases"
_FIELDS = ("task_id", "complete_prompt", "instruct_prompt", "canonical_solution", "code_prompt", "test", "entry_point")


@dataclass(frozen=True)
class BigCodeTask:
    """One task. `names`: its test methods, sorted as unittest runs them; `libs`: the libraries that it says it needs."""

    task_id: str
    complete_prompt: str
    instruct_prompt: str
    canonical_solution: str
    code_prompt: str
    test: str
    entry_point: str
    libs: tuple[str, ...] = ()
    hard: bool = False
    names: tuple[str, ...] = field(default=())

    @property
    def reference(self) -> str:
        """The canonical solution as a whole program, joined as the benchmark's checker joins it."""
        return f"{self.complete_prompt}\n{self.canonical_solution}"

    def calibrated(self, solution: str) -> str:
        """`solution` behind the imports and the head of the task's function, as the checker's default has it."""
        return f"{self.code_prompt}\n    pass\n{solution}"


def read_task(row: Mapping[str, Any]) -> BigCodeTask:
    """A published row. Raises ValueError when a field is missing or the tests hold no class `TestCases`."""
    missing = [name for name in _FIELDS if not isinstance(row.get(name), str)]
    if missing:
        raise ValueError(f"no task of BigCodeBench: it lacks {', '.join(missing)}")
    values = {name: row[name] for name in _FIELDS}
    return BigCodeTask(**values, libs=_libs(row.get("libs")), hard=bool(row.get("hard")), names=methods_of(row["test"]))


def _libs(value: object) -> tuple[str, ...]:
    if isinstance(value, str):  # published as the text of a list
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return ()
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def methods_of(source: str, class_name: str = CLASS) -> tuple[str, ...]:
    """The test methods of a test class, its bases in the same source included, sorted as unittest runs them.

    Raises ValueError when the source does not parse or has no such class.
    """
    tree = parse(source)
    if tree is None:
        raise ValueError("the tests do not parse")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if class_name not in classes:
        raise ValueError(f"the tests have no class {class_name}")
    found: set[str] = set()
    queue, seen = [class_name], set()
    while queue:
        name = queue.pop()
        if name in seen or name not in classes:
            continue
        seen.add(name)
        body = classes[name].body
        defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        found.update(name for name in defined if name.startswith("test"))
        queue += [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
    return tuple(sorted(found))


@dataclass(frozen=True)
class TaskSet:
    """Tasks in their published order; `source` says where they are from, `digest` is a hash of their content."""

    tasks: tuple[BigCodeTask, ...]
    source: str
    digest: str
    subset: str

    def __len__(self) -> int:
        return len(self.tasks)


def load_tasks(data: Path | None = None, subset: str = "full") -> TaskSet:
    """The tasks of a file (jsonl, also gzipped) or of a folder that holds one; without, of CODEA1_SHARED or the hub.

    Raises:
        UserError: an unknown subset, no data, or a row that is no task (file and line are named).
    """
    if subset not in HUB:
        raise UserError(f"no subset {subset!r} of BigCodeBench", hint=f"one of {', '.join(HUB)}")
    file = _file(data)
    if file is None:
        rows: Iterable[tuple[str, Mapping[str, Any]]] = _hub(subset)
        source = f"hub:{HUB[subset]}@{VERSION}"
    else:
        rows, source = _lines(file), str(file)
    tasks = []
    digest = hashlib.sha256()
    known_hard = subset == "hard" and file is None
    for where, row in rows:
        try:
            task = read_task({**row, "hard": True} if known_hard else row)
        except ValueError as fault:
            raise UserError(f"{where}: {fault}", hint="fetch the data again") from None
        if subset == "hard" and not task.hard:
            continue
        tasks.append(task)
        digest.update(json.dumps([getattr(task, name) for name in _FIELDS]).encode())
    if not tasks:
        hint = "the file needs the field `hard`" if subset == "hard" else "fetch the data again"
        raise UserError(f"{source} holds no task of BigCodeBench ({subset})", hint=hint)
    return TaskSet(tuple(tasks), source, digest.hexdigest()[:16], subset)


def _file(data: Path | None) -> Path | None:
    shared = os.environ.get("CODEA1_SHARED")
    chosen = data or (Path(shared) / "data" / "bench" if shared else None)
    if chosen is None:
        return None
    if chosen.is_dir():
        named = [chosen / FILE, *sorted(chosen.glob("*igcode*ench*.jsonl*"))]
        chosen = next((file for file in named if file.is_file()), chosen / FILE)
    if chosen.is_file():
        return chosen
    if data is None:
        return None
    raise UserError(
        f"no data of BigCodeBench at {chosen}", hint="--data FILE.jsonl[.gz], or leave --data out for the hub"
    )


def _lines(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{file}:{number}", json.loads(line)
    except (ValueError, EOFError, gzip.BadGzipFile) as fault:
        raise UserError(f"cannot read {file}: {fault}", hint="fetch the file again") from None


def _hub(subset: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    from datasets import load_dataset

    try:
        rows = load_dataset(HUB[subset], split=VERSION)
    except Exception as fault:
        raise UserError(
            f"cannot fetch {HUB[subset]}: {first_line(fault)}",
            hint="offline: give the file with --data, or a folder in CODEA1_SHARED",
        ) from None
    for number, row in enumerate(rows):
        yield f"{HUB[subset]}[{number}]", row
