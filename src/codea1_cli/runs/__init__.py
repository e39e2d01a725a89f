"""The run directory: its files, written and read. Here are run.json, a line of metrics.jsonl, and what a
run cost."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, RootModel

from codea1_cli.errors import UserError, counted
from codea1_cli.files import Broken, Model, decode_json, name_of, read_json, read_model
from codea1_cli.methods.registry import ROLES

if TYPE_CHECKING:
    from codea1_cli.runs.run_dir import RunDir


class _Resumed(BaseModel, strict=True):
    step: int = 0
    changed: dict[str, Annotated[list[Any], Field(min_length=2, max_length=2)]] = {}


class _Environment(BaseModel, strict=True):
    given: dict[str, dict[str, str | None]] = {}


class _Data(BaseModel, strict=True):
    problems: int | None = None
    heldout_sha256: str | None = None
    pairs: dict[str, int] | None = None
    files: dict[str, str | None] = {}


class _Info(BaseModel, strict=True):
    """What readers of run.json rest on; each field may be missing, others may be there."""

    total_steps: int | None = None
    stop: int | None = None
    until: int | None = None
    seed: int = 0
    error: str | None = None
    problem_ids: list[str] = []
    pair_ids: dict[str, list[str]] = {}
    devices: dict[str, str] = {}
    versions: dict[str, Any] = {}
    environment: _Environment = _Environment()
    data: _Data = _Data()
    resumed: list[_Resumed] | None = None


def read_info(file: Path) -> dict[str, Any]:
    """A run.json; an empty mapping where there is none. Raises UserError where it is broken, by file and field."""
    found: dict[str, Any] = read_json(file, dict) if file.exists() else {}
    if found:
        read_model(file, _Info)
    return found


class Best(BaseModel, strict=True):
    """best.json: the best checkpoint's step, the figure that it is the best by, and its value."""

    step: int
    figure: str
    value: float


class Phases(RootModel[dict[str, Annotated[tuple[str, int, float], Field(strict=False)]]], strict=True):
    """phases.json: by a rank's label its phase, its step and the time that the phase began."""


def read_part(file: Path, kind: type[Model], told: Callable[[str], None] | None = None) -> Model | None:
    """What a small file of a run holds; None where it is not there. A broken one is `told` of, and None, where somebody
    is to be told, else raised as UserError by file and field."""
    try:
        return read_model(file, kind, "restore it, or remove it") if file.exists() else None
    except UserError as error:
        if told is None:
            raise
        told(error.what)
        return None


def read_metrics(file: Path, told: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl that a run wrote. A file that was changed by hand, or by a broken disk, may hold
    others: they are left out, and `told` of by number and field. A torn last line, which only a crash leaves, is none.
    """
    lines = []
    with contextlib.suppress(FileNotFoundError, IsADirectoryError), open(file, "rb") as stream:
        for number, raw in enumerate(stream, 1):
            line = decode_json(raw)
            if (fault := metrics_fault(line)) is None:
                lines.append(line)
            elif told is not None and raw.strip() and raw.endswith(b"\n"):
                told(f"{file}, line {number}: {fault}; it is left out")
    return lines


def metrics_fault(line: object) -> str | None:
    """What is wrong with a line of metrics.jsonl, by field; None for one that a run may have written: a step, a time,
    objects of figures."""
    if not isinstance(line, dict):
        return line.why if isinstance(line, Broken) else f"{name_of(line)}, not an object"
    parts = {name: line.get(name, {}) for name in (*ROLES, "timing", "arena", "eval")}
    wrong = {name: part for name, part in parts.items() if not isinstance(part, dict)}
    if type(line.get("step")) is not int:
        wrong["step"] = line.get("step")
    if not isinstance(line.get("time", 0.0), int | float):
        wrong["time"] = line["time"]
    if not wrong:
        arena, evaluation = parts.pop("arena"), parts.pop("eval")
        failed = arena.get("sandbox_failures") or {}
        if not isinstance(failed, dict) or not all(isinstance(count, int) for count in failed.values()):
            wrong["arena.sandbox_failures"] = failed
        if not isinstance(arena.get("leaving") or [], list):
            wrong["arena.leaving"] = arena["leaving"]
        parts |= {f"eval.{name}": part for name, part in evaluation.items() if isinstance(part, dict)}
        parts["eval"] = {name: part for name, part in evaluation.items() if not isinstance(part, dict | str)}
        for name, part in parts.items():
            kinds = int | float if name == "timing" else int | float | None
            wrong |= {f"{name}.{key}": value for key, value in part.items() if not isinstance(value, kinds)}
    return next((f"{field} is {name_of(value)}, which no run writes" for field, value in wrong.items()), None)


def figures(line: Mapping[str, Any], sign: str = ".") -> dict[str, float]:
    """The finite numbers of a line of metrics.jsonl, or of a part of it, their nested keys joined by `sign`."""
    from codea1_cli.recipe import flat

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


def spent(run: RunDir) -> dict[str, Any]:
    """Steps done, seconds of them, tokens sampled in them and GPU hours; how many hours were waited, and `waits`, which
    share of all for what: the `judge`, the `code` or the `test` policy. `rest` is evaluations, saving and the like, in
    which a GPU may have worked: they do not count as waited."""
    steps, cards = [line for line in run.metrics() if "eval" not in line], _cards(run)
    seconds = sum(line.get("timing", {}).get("step_s", 0.0) for line in steps)
    waits: Counter[str] = Counter()
    placed = {role for card in cards for role in card}
    for line in steps:
        timing = line.get("timing", {})
        played = {role for role in ROLES if any(key.startswith(f"{role}_") for key in timing)} - placed
        for roles in cards:  # one policy in both roles is on every card
            waits.update(_waits(timing, roles | played, placed - roles))
    whole = len(cards) * seconds
    return {
        "steps": len(steps),
        "seconds": seconds,
        "tokens": sum(line.get(role, {}).get("sampled_tokens") or 0 for line in steps for role in ROLES),
        "gpu_hours": whole / 3600,
        "idle_gpu_hours": (waits.total() - waits["rest"]) / 3600,
        "waits": {cause: seconds / whole for cause, seconds in sorted(waits.items()) if seconds},
    }


def _cards(run: RunDir) -> list[set[str]]:
    """The policies on each GPU that a run has."""
    info = run.info()
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for label, values in info.get("environment", {}).get("given", {}).items():
        if gpu := values.get("CUDA_VISIBLE_DEVICES"):
            node = info.get("devices", {}).get(label, "").partition(" of node ")[2]
            found[node, gpu].add(label.partition("[")[0])
    return list(found.values())


def _waits(timing: Mapping[str, float], roles: set[str], others: set[str]) -> dict[str, float]:
    """Seconds of a step in which a GPU had nothing to do, by cause. roles: the policies on it; others: those that are
    elsewhere, which it may have waited for. Policies on one GPU are taken to work one after the other."""
    busy = sum(timing.get(f"{role}_{part}_s", 0.0) for role in roles for part in ("sampling", "updating"))
    free = max(0.0, timing.get("step_s", 0.0) - busy)
    waits = [timing[key] for role in roles if (key := f"{role}_waiting_s") in timing]
    waiting = min(free, *waits) if waits else 0.0
    judge = min(waiting, timing.get("judge_tail_s", 0.0)) if others else waiting
    return {"judge": judge, "rest": free - waiting} | dict.fromkeys(others, waiting - judge)


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
    parts = {cause: f"{_WAITS[cause][0]} {percent(share)}" for cause, share in waits.items()}
    rest = parts.pop("rest", "")
    told = [f"{hours:.2f}, {idle:.2f} of them waiting" + (f" ({', '.join(parts.values())})" if parts else "")]
    told[0] += f"; {rest}" if rest else ""
    if idle > hours / 2:
        most = max((cause for cause in waits if cause != "rest"), key=waits.__getitem__)
        who, change = _WAITS[most]
        told.append(f"the GPUs idled {percent(idle / hours)} of their time, most of it for {who}: {change}")
    return told
