"""Result files: what `codea1 eval-code` found and all that it takes to find it again; and two of them compared."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.errors import EnvironmentFault, UserError, command
from codea1_cli.evals import registry
from codea1_cli.evals.benchmark import COUNTED, ReferenceReport, Scored, Status
from codea1_cli.evals.statistics import Interval, paired_bootstrap
from codea1_cli.files import kept_json, read_json

FORMAT = "codea1-eval-code-1"


def result_file(samples: Path, out: Path | None = None) -> Path:
    """The result file beside a sample file or folder; with `out` that file, or the one of that name in the folder
    `out`, or the one beside the sample file `out`."""
    if out is not None and out.suffix == ".json":
        return out
    if out is not None:
        samples = out / samples.name if out.is_dir() else out
    return samples.with_name(samples.name.removesuffix(".gz").removesuffix(".jsonl") + ".results.json")


def writable(file: Path) -> Path:
    """`file`, once its folder is there and takes a file: before the hour of scoring, not after it.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as fault:
        raise EnvironmentFault(
            f"the result {file} cannot be written: {fault.strerror}", hint="choose another place with --out"
        ) from None
    return file


def samples_hash(samples: Path) -> str:
    """sha256 of a sample file, or of the names and programs of a folder of samples."""
    digest = hashlib.sha256()
    if not samples.is_dir():
        digest.update(samples.read_bytes())
    else:
        for file in sorted(samples.glob("*/*.py")):
            digest.update(f"{file.relative_to(samples)} {file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def keep_origin(samples: Path, origin: Mapping[str, Any]) -> None:
    """Writes beside a sample file what made it: `NAME.origin.json`, for results of a later scoring."""
    text = json.dumps({**origin, "samples_hash": samples_hash(samples)}, indent=1)
    write_atomic(_origin_file(samples), text + "\n")


def read_origin(samples: Path) -> dict[str, Any]:
    """What `keep_origin` wrote of this very file; empty where nothing did, or where the file is another one now."""
    origin = kept_json(_origin_file(samples))
    return origin if origin and origin.pop("samples_hash", None) == samples_hash(samples) else {}


def _origin_file(samples: Path) -> Path:
    return samples.with_name(samples.name.removesuffix(".jsonl") + ".origin.json")


def references_record(report: ReferenceReport) -> dict[str, Any]:
    """How the references fared, as a result file has it."""
    return {"tasks": report.tasks, "rate": report.rate, **vars(report)}


def verdict_rows(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """Each sample's verdict by column, as a result file has it."""
    return [
        {"task_id": one.task_id, "number": one.number, **{k: str(v) for k, v in one.verdicts.items()}}
        | ({"detail": one.detail} if one.detail else {})
        for one in scored
    ]


def passed_by_task(verdicts: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, list[bool]]:
    """Which of a task's samples pass all of these columns, by number; a task with one that has no verdict is left
    out."""
    found: dict[str, list[bool]] = {}
    without = set()
    for row in sorted(verdicts, key=lambda row: int(row["number"])):
        statuses = [Status(row[column]) for column in columns]
        found.setdefault(row["task_id"], []).append(all(status is Status.PASS for status in statuses))
        without |= set() if all(status in COUNTED for status in statuses) else {row["task_id"]}
    return {task: passed for task, passed in found.items() if task not in without}


def kept_result(file: Path, python: str | None, **about: Any) -> dict[str, Any] | None:
    """The result in a file, if it is of what `about` says under that interpreter, of samples as they are, and each has
    its verdict; else None."""
    result = kept_json(file)
    same = result.get("format") == FORMAT and all(result.get(key) == value for key, value in about.items())
    whole = not result.get("unscored") and not result.get("sanitised") and "verdicts" in result
    return result if same and whole and result.get("options", {}).get("python") == python else None


def read_result(path: Path) -> dict[str, Any]:
    """A result file, by its own path or that of its samples; EvalPlus' own result files too.

    Raises:
        UserError: it is not a result, or the samples were changed since.
    """
    chosen = path if path.suffix == ".json" else result_file(path)
    result = read_json(chosen, dict)
    if result.get("format") == FORMAT:
        if why := _not_a_result(result):
            raise UserError(f"{chosen}: {why}", hint="score the samples again")
        scored = result.get("samples_hash")
        if scored and chosen != path and path.exists() and samples_hash(path) != scored:
            raise UserError(
                f"{path} was changed after it was scored: {chosen.name} is of other samples",
                hint=f"`{command('eval-code', result['benchmark'], '--samples', path)}` scores it again",
            )
        return result
    if isinstance(result.get("eval"), dict):
        try:
            return _of_evalplus(result, chosen)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{chosen}: a broken result of EvalPlus: {error!r}", hint="score again") from None
    raise UserError(f"{chosen} is not a result of eval-code", hint="give a .results.json file or its samples")


def _not_a_result(result: Mapping[str, Any]) -> str | None:
    """Which field of a result file is missing or of a wrong type."""
    for name, kind in (("benchmark", str), ("columns", list), ("tasks", dict)):
        if not isinstance(result.get(name), kind):
            return f"field {name}: {'missing' if name not in result else 'of a wrong type'}"
    for task, row in result["tasks"].items():
        counts = [row.get(name) for name in ("n", *result["columns"])] if isinstance(row, dict) else [None]
        if not all(isinstance(count, int) for count in counts):
            return f"field tasks.{task}: not the counts of its samples"
    return None


def _of_evalplus(result: Mapping[str, Any], path: Path) -> dict[str, Any]:
    rows = {}
    for task, samples in result["eval"].items():
        base = sum(s["base_status"] == Status.PASS for s in samples)
        plus = sum(s["base_status"] == s.get("plus_status") == Status.PASS for s in samples)
        rows[task] = {"n": len(samples), "base": base, "plus": plus}
    columns = ["base", "plus"]
    first = next(iter(rows), "")
    known = [row.name for row in registry.ROWS.values() if row.prefix and first.startswith(row.prefix)]
    if not known:
        raise UserError(
            f"{path} is not a result of a benchmark that is known here", hint=f"its first task is {first!r}"
        )
    return {"benchmark": known[0], "columns": columns, "tasks": rows, "label": path.name, "data_hash": None}


@dataclass(frozen=True)
class Compared:
    """B against A in one column, over the tasks that both have: pass@1 of each, their paired difference, and the tasks
    on which B has the higher or the lower rate."""

    column: str
    tasks: int
    a: float
    b: float
    difference: Interval
    won: list[str]
    lost: list[str]


def unshared(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[int, int]:
    """How many tasks with samples only A has, and only B."""
    first, second = ({task for task, row in one["tasks"].items() if row["n"]} for one in (a, b))
    return len(first - second), len(second - first)


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Compared]:
    """Each column of two results.

    Raises:
        UserError: they are of different benchmarks or different data, or share no task.
    """
    if a["benchmark"] != b["benchmark"]:
        raise UserError(f"{a['benchmark']} cannot be compared with {b['benchmark']}")
    if a.get("data_hash") and b.get("data_hash") and a["data_hash"] != b["data_hash"]:
        raise UserError("the two results are of different data", hint="score both sample files with one --data")
    tasks = [task for task, row in a["tasks"].items() if row["n"] and b["tasks"].get(task, {}).get("n")]
    if not tasks:
        raise UserError("the two results share no task")
    found = []
    for column in a["columns"]:
        before = [a["tasks"][task][column] / a["tasks"][task]["n"] for task in tasks]
        after = [b["tasks"][task][column] / b["tasks"][task]["n"] for task in tasks]
        pairs = list(zip(tasks, before, after, strict=True))
        won, lost = [task for task, x, y in pairs if y > x], [task for task, x, y in pairs if y < x]
        means = sum(before) / len(tasks), sum(after) / len(tasks)
        found.append(Compared(column, len(tasks), *means, paired_bootstrap(before, after), won, lost))
    return found
