"""From verdicts to figures: unbiased pass@k, avg@n, intervals over tasks, with and without tasks whose reference fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from codea1_cli.evals.benchmark import COUNTED, Scored, Status, Truth
from codea1_cli.evals.passk import bootstrap, mean, pass_at_k

KS = (1, 2, 4, 5, 8, 10, 16, 32, 64, 100, 200)


def task_rows(scored: Iterable[Scored], columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By task: `n` samples that were scored, how many passed each column (and all columns before), and what kept the
    others out."""
    rows: dict[str, dict[str, Any]] = {}
    for sample in scored:
        row = rows.setdefault(
            sample.task_id, {"n": 0, "unscored": 0, "not_run": 0, "timeouts": 0, **dict.fromkeys(columns, 0)}
        )
        statuses = [sample.verdicts[column] for column in columns]
        if not all(status in COUNTED for status in statuses):
            row["not_run" if Status.NOT_RUN in statuses else "unscored"] += 1
            continue
        row["n"] += 1
        row["timeouts"] += Status.TIMEOUT in statuses
        for place, column in enumerate(columns):
            row[column] += all(status is Status.PASS for status in statuses[: place + 1])
    return rows


def figures(
    rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str], truth: Truth | None = None
) -> dict[str, dict[str, Any]]:
    """By column: `pass@k` for every k that all tasks have samples for, `avg@n`, and `interval` (95 %) of pass@1.

    With a truth whose references fail, `valid` holds pass@1 over the tasks whose reference passes. A task without a
    scored sample is in no figure.
    """
    counted = {task: row for task, row in rows.items() if row["n"]}
    result: dict[str, dict[str, Any]] = {}
    for column in columns:
        if not counted:
            result[column] = {"tasks": 0}
            continue
        n = min(row["n"] for row in counted.values())
        single = [row[column] / row["n"] for row in counted.values()]
        spread = bootstrap(single)
        told: dict[str, Any] = {"tasks": len(counted), "n": n}
        for k in sorted({k for k in KS if k <= n} | {n}):
            told[f"pass@{k}"] = mean([pass_at_k(row["n"], row[column], k) for row in counted.values()])
        told[f"avg@{n}"] = spread.mean
        told["interval"] = [spread.low, spread.high]
        if truth is not None and truth.failing:
            kept = [row[column] / row["n"] for task, row in counted.items() if task not in truth.failing]
            told["valid"] = {"tasks": len(kept), "pass@1": mean(kept) if kept else None}
        result[column] = told
    return result


def flat(name: str, told: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The figures as one level, for a metrics line: `humaneval/plus/pass@1` and so on."""
    return {
        f"{name}/{column}/{key}": float(value)
        for column, part in told.items()
        for key, value in part.items()
        if isinstance(value, int | float)
    }
