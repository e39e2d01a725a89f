"""The run directory: its files, written and read. Here is what a line of metrics.jsonl is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from codea1_cli.errors import counted
from codea1_cli.methods.registry import ROLES


def is_metrics(line: object) -> bool:
    """Whether a line of metrics.jsonl is one that a run writes: a step, a time, and objects of figures. A file that was
    changed by hand, or by a broken disk, may hold others, which no reader has to expect."""
    if not isinstance(line, dict) or type(line.get("step")) is not int or not _is_figure(line.get("time", 0.0)):
        return False
    parts = [line.get(name, {}) for name in (*ROLES, "timing", "arena", "eval")]
    if not all(isinstance(part, dict) for part in parts):
        return False
    *own, _, evaluation = parts
    own += [part for part in evaluation.values() if isinstance(part, dict)]
    others = [part for part in evaluation.values() if not isinstance(part, dict | str)]
    return all(_is_figure(value) for part in own for value in part.values()) and all(map(_is_figure, others))


def _is_figure(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def figures(line: Mapping[str, Any], sign: str = ".") -> dict[str, float]:
    """The finite numbers of a line of metrics.jsonl, or of a part of it, their nested keys joined by `sign`."""
    from codea1_cli.recipe.files import flat

    return {
        key: value
        for key, value in flat(dict(line), sign=sign).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def trained_on(data: Mapping[str, Any], source: str | None, shown: Callable[[str], str] = str) -> str:
    """What a run learned from, in words: problems, or the pairs of each policy. data: the section of run.json; source:
    where the problems come from; shown: how a file is written."""
    if pairs := data.get("pairs"):
        of = {role: data.get("files", {}).get(role) or source for role in pairs}
        return ", ".join(
            f"{counted(count, 'pair')} for the {role.title()} LLM{f', of {shown(str(of[role]))}' if of[role] else ''}"
            for role, count in pairs.items()
        )
    return f"{counted(data.get('problems') or 0, 'problem')} of {shown(source or '?')}"


_WAITS = {
    "code": ("the Code LLM", "give code.gpus more than test.gpus, or both the same"),
    "test": ("the Test LLM", "give test.gpus more than code.gpus, or both the same"),
    "judge": ("the judge", "raise judge.workers, or take a machine with more cores"),
    "rest": ("evaluations, saving and the like", ""),
}


def gpu_hours(spent: Mapping[str, Any]) -> list[str]:
    """What the GPUs of a run did, and a second line where they idled more than half of their time: what to change.
    Nothing for a run without GPUs."""
    from codea1_cli.methods.code_a1 import percent

    hours, idle, waits = spent["gpu_hours"], spent["idle_gpu_hours"], spent["waits"]
    if not hours:
        return []
    parts = [f"{_WAITS[cause][0]} {percent(share)}" for cause, share in waits.items()]
    told = [f"{hours:.2f}, {idle:.2f} of them waiting" + (f" ({', '.join(parts)})" if parts else "")]
    if idle > hours / 2:
        most = max((cause for cause in waits if cause != "rest"), key=waits.__getitem__)
        who, change = _WAITS[most]
        told.append(f"the GPUs idled {percent(idle / hours)} of their time, most of it for {who}: {change}")
    return told
