"""The tasks that training data must not contain: HumanEval+, MBPP+, BigCodeBench and UnLeakedTestBench."""

import gzip
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError

FILES = {
    "HumanEval+": "humaneval_plus.jsonl.gz",
    "MBPP+": "mbpp_plus.jsonl.gz",
    "BigCodeBench": "bigcodebench-v0.1.4.jsonl.gz",
    "ULT": "ult_lite.json",
}
ENVIRONMENT = "CODEA1_SHARED"


@dataclass(frozen=True)
class Task:
    """One task of a benchmark; `code` is a whole program, `tests` Python source with asserts or nothing."""

    benchmark: str
    id: str
    question: str
    code: str
    entry_point: str
    tests: str = ""


def benchmark_folder(folder: Path | None) -> Path:
    """`folder`, else the benchmarks below CODEA1_SHARED.

    Raises:
        UserError: there is no such folder.
    """
    root = os.environ.get(ENVIRONMENT)
    chosen = folder or (Path(root) / "data" / "bench" if root else None)
    if chosen is None or not chosen.is_dir():
        where = f"no folder {chosen}" if chosen else "no folder of benchmarks given"
        raise UserError(
            f"{where}: nothing to decontaminate against",
            hint=f"--benchmarks DIR with {', '.join(FILES.values())}; or --no-decontaminate",
        )
    return chosen


def load_benchmarks(folder: Path | None) -> list[Task]:
    """Every task of the benchmarks that lie in the folder.

    Raises:
        UserError: the folder holds none of them, or one that cannot be read.
    """
    chosen = benchmark_folder(folder)
    tasks = [task for name, file in FILES.items() if (chosen / file).is_file() for task in _tasks(name, chosen / file)]
    if not tasks:
        raise UserError(f"{chosen} holds no benchmark", hint=f"it should hold {', '.join(FILES.values())}")
    return tasks


def missing_benchmarks(folder: Path | None) -> list[str]:
    """Names of the benchmarks that the folder lacks."""
    chosen = benchmark_folder(folder)
    return [name for name, file in FILES.items() if not (chosen / file).is_file()]


def _tasks(benchmark: str, file: Path) -> Iterator[Task]:
    for number, row in enumerate(_rows(file), start=1):
        try:
            yield Task(benchmark, *_READ[benchmark](row))
        except (KeyError, TypeError) as error:
            raise UserError(f"{file}:{number}: no row of {benchmark}: {error}", hint="fetch the file again") from None


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    try:
        if file.suffix == ".json":
            yield from json.loads(file.read_text(encoding="utf-8"))
            return
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"cannot read {file}: {error}", hint="fetch the file again") from None


def docstring_of(prompt: str) -> str:
    """The last triple-quoted text of a prompt, which need not parse by itself; without one the prompt."""
    for quote in ('"""', "'''"):
        parts = prompt.split(quote)
        if len(parts) >= 3:
            return parts[-2]
    return prompt


Read = tuple[str, str, str, str, str]


def _humaneval(row: dict[str, Any]) -> Read:
    prompt, entry = row["prompt"], row["entry_point"]
    tests = re.sub(r"\bcandidate\b", entry, row["test"])
    return row["task_id"], docstring_of(prompt), prompt + row["canonical_solution"], entry, tests


def _mbpp(row: dict[str, Any]) -> Read:
    question = docstring_of(row["prompt"])
    return row["task_id"], question, row["canonical_solution"], row["entry_point"], row["assertion"]


def _bigcodebench(row: dict[str, Any]) -> Read:
    code = row["complete_prompt"] + row["canonical_solution"]
    return row["task_id"], row["instruct_prompt"], code, row["entry_point"], ""


def _ult(row: dict[str, Any]) -> Read:
    return f"ULT/{row['task_id']}", row["prompt"], row["code"], row["func_name"], "\n".join(row["test_list"])


_READ = {"HumanEval+": _humaneval, "MBPP+": _mbpp, "BigCodeBench": _bigcodebench, "ULT": _ult}
