"""`codea1 report`: what a run's folder tells, as one page that needs nothing else.

The page's own files lie in `web/`. What models wrote reaches the browser as compressed JSON and is only ever set as
text; the page's content security policy runs no script but its own.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codea1_cli import __version__
from codea1_cli.errors import CodeA1Error, counted, first_line
from codea1_cli.evals.heldout import PARTS
from codea1_cli.files import read_json
from codea1_cli.game.rules import Game
from codea1_cli.methods.registry import method_of
from codea1_cli.mistakes import MistakeStore
from codea1_cli.recipe import flat
from codea1_cli.recipe.resources import heldout_problems
from codea1_cli.report import curves, rollouts
from codea1_cli.report.rollouts import Texts
from codea1_cli.runs.rollout_files import rollout_files
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import Measured, known_info, measured, summarise

_WEB = Path(__file__).parent / "web"
_SCRIPTS = ("base.js", "curves.js", "compare.js", "problems.js", "rollouts.js", "main.js")
_POINTS = 2000  # of all runs together, in one curve


class Gathering:
    """What is read of one run; `missing` says what could not be."""

    def __init__(self, run: RunDir) -> None:
        self.run, self.missing = run, list[str]()

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """One part of a run. A folder may be damaged in any way: the fault is told, the page does without the part."""
        try:
            yield
        except CodeA1Error as error:
            self.missing.append(error.what if what in error.what else f"{what}: {error.what}")
        except Exception as error:
            self.missing.append(f"{what}: {type(error).__name__}: {first_line(error)}")

    def lines(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; those that are none are counted."""
        faults: list[str] = []
        lines = self.run.metrics(faults.append)
        if not self.run.metrics_file.is_file():
            self.missing.append("metrics.jsonl is not there")
            return lines
        written = sum(bool(line.strip()) for line in self.run.metrics_file.read_bytes().splitlines())
        if written > len(lines):
            self.missing.append(f"metrics.jsonl: unreadable: {written - len(lines)} of {counted(written, 'line')}")
            self.missing += faults[:5]
        return lines


def run_data(
    run: RunDir, arm: str, texts: Texts, *, points: int, budget: int, wanted: Sequence[str] = ()
) -> dict[str, Any]:
    """What the page holds of one run.

    points: of a curve. budget: bytes of the page for its rollouts. wanted: problems that come first there.
    """
    at = Gathering(run)
    data: dict[str, Any] = {"name": run.name, "arm": arm, "path": str(run.path), "state": "unknown", "step": 0}
    with at.reading("run.json"):
        if not (run.path / "run.json").is_file():
            at.missing.append("run.json is not there: the run has not started, or lost it")
        info = run.info()
    info = known_info(run)
    with at.reading("the run's state"):
        told = summarise(run)
        data |= {key: getattr(told, key) for key in ("state", "step", "total", "recipe", "started", "error")}
    rules, recipe = Game(), None
    with at.reading("recipe.yaml"):
        recipe = run.recipe()
        rules = recipe.game
    data |= {"keys": flat(recipe.dump()) if recipe else {}, "alpha": rules.resolved_alpha, "info": _facts(info)}
    lines = at.lines()
    found = {}
    with at.reading("metrics.jsonl"):
        found = curves.tables(lines)
        data["events"] = curves.events(lines, info)
    sets: dict[str, dict[int, Measured]] = {}
    with at.reading("evaluation"):
        sets = measured(run, at.missing.append)
        if "heldout" in found:
            found["heldout"] = curves.with_intervals(found["heldout"], sets.get("heldout", {}))
    data["tables"] = {name: curves.thinned(table, points) for name, table in found.items()}
    data["marks"] = {"checkpoints": run.committed_steps(), "best": run.best(at.missing.append)}
    data["sets"] = {kind: _ends(steps) for kind, steps in sets.items()}
    sampled = True
    with at.reading("recipe.yaml"):
        sampled = recipe is None or not method_of(recipe).pairs
    if sampled:
        data |= _texts(at, texts, rules, budget, wanted)
    questions: dict[str, Any] = {}
    if recipe is not None:
        with at.reading("the held-out problems"):
            questions = {problem.id: rollouts.question_of(problem, texts) for problem in heldout_problems(recipe)}
        with at.reading("the training problems"):
            kept = data.get("rollouts", {})
            questions |= {pid: rollouts.question_of(one, texts) for pid, one in run.problems().items() if pid in kept}
    data["questions"] = questions
    with at.reading("evaluation"):
        data["samples"] = _samples(run, texts, budget // 3)
    return {**data, "missing": list(dict.fromkeys(at.missing))}


def _facts(info: Mapping[str, Any]) -> dict[str, Any]:
    """What run.json tells a reader; the long lists stay there."""
    return {key: value for key, value in info.items() if key not in ("problem_ids", "environment", "name", "started")}


def _ends(steps: Mapping[int, Measured]) -> dict[str, Any]:
    """A set's figures by problem at its first and last evaluation, each a share, None where nothing gives it."""
    ends = sorted({min(steps), max(steps)})
    problems = sorted({pid for step in ends for pid in steps[step].problems})
    names = dict.fromkeys(name for step in ends for name in steps[step].figures)

    def share(step: int, name: str, pid: str) -> float | None:
        above, below = steps[step].figures.get(name, {}).get(pid, (0.0, 0.0))
        return round(above / below, 4) if below else None

    figures = {name: [[share(step, name, pid) for pid in problems] for step in ends] for name in names}
    return {"steps": ends, "problems": problems, "figures": figures}


def _texts(at: Gathering, texts: Texts, rules: Game, budget: int, wanted: Sequence[str]) -> dict[str, Any]:
    """The run's problems, and the rollouts, book and pool of those that fit."""
    run = at.run
    rewards: dict[str, dict[int, float | None]] = {}
    store = None
    data: dict[str, Any] = {}
    files = {}
    with at.reading("rollouts"):
        files = rollout_files(run.path / "rollouts")
        if not files:
            at.missing.append("rollouts: there are none")
        rewards = rollouts.mean_rewards(files, at.missing.append)
    with at.reading("mistakes.sqlite"):
        store = MistakeStore(run.mistakes_file, read_only=True)
    with at.reading("rollouts"):
        order = rollouts.in_order(rewards, wanted)
        for pid, own in rollouts.candidates(files, rewards, order, rules, texts, budget):
            data.setdefault("rollouts", {})[pid] = own
    with at.reading("mistakes.sqlite"):
        data["problems"] = rollouts.problem_rows(rewards, None)
        if store is not None:
            with store:
                data["problems"] = rollouts.problem_rows(rewards, store)
                data["books"] = {pid: rollouts.book_of(store, pid, texts) for pid in data.get("rollouts", {})}
    steps = sorted({step for own in rewards.values() for step in own})
    data["kept"] = {"steps": len(steps), "problems": len(rewards), "shown": len(data.get("rollouts", {}))}
    return data


def _samples(run: RunDir, texts: Texts, budget: int) -> dict[str, Any]:
    """What the policies answered to held-out problems at the first and the last evaluation whose texts are kept, by
    problem; those come first whose solutions differ most.

    Of each reply: `step`, `part` (a key of `heldout.PARTS`), whether it is `good` (solves the problem, exposes the
    program), whether it raises a false `alarm`, and the `program` that a suite was written against.
    """
    folder = run.path / "evaluation"
    steps = sorted({int(file.name.split("-")[1]) for file in folder.glob("step-*-replies.json.gz")})
    found: dict[str, list[dict[str, Any]]] = {}
    for step in sorted({*steps[:1], *steps[-1:]}):
        for part in PARTS:
            file = folder / f"step-{step:06d}-{part}-replies.json.gz"
            rows = read_json(folder / f"step-{step:06d}-{part}.json", list) if file.is_file() else []
            for row, kept in zip(rows, read_json(file, list) if rows else [], strict=True):
                for place, reply in enumerate(kept["replies"]):
                    told = (
                        {"good": row["passed"][place]}
                        if part == "code"
                        else {"good": row["exposed"], "alarm": row["misstated"] > 0}
                    )
                    one = {"step": step, "part": part, "reply": reply, "program": kept.get("program")}
                    found.setdefault(kept["problem_id"], []).append(one | told)

    def moved(pid: str) -> float:
        own = [(one["step"], one["good"]) for one in found[pid] if one["part"] == "code"]
        return -abs(sum(good * (1 if step == steps[-1] else -1) for step, good in own))

    shown: dict[str, Any] = {}
    for pid in sorted(found, key=moved):
        if budget <= 0:
            break
        budget -= rollouts.packed(found[pid])
        shown[pid] = [one | {key: texts.number(one[key]) for key in ("reply", "program")} for one in found[pid]]
    return shown


def page_data(
    arms: Mapping[str, Sequence[RunDir]], comparison: Mapping[str, Any], *, budget: int, wanted: Sequence[str] = ()
) -> dict[str, Any]:
    """What the page of these runs holds. `comparison`: what `codea1 compare --json` gives of them, or its `error`."""
    texts, count = Texts(), sum(map(len, arms.values()))
    points = min(400, max(60, _POINTS // count))
    runs = [
        run_data(run, arm, texts, points=points, budget=budget // count, wanted=wanted)
        for arm, own in arms.items()
        for run in own
    ]
    panels = [
        {key: getattr(panel, key) for key in ("title", "table", "share")} | {"figures": dict(panel.figures)}
        for panel in curves.PANELS
    ]
    limits = {"points": points, "steps": rollouts.STEPS_PER_PROBLEM, "text": rollouts.TEXT}
    made = {"made": time.strftime("%Y-%m-%d %H:%M:%S %z"), "version": __version__}
    return {**made, "limits": limits, "panels": panels, "runs": runs, "compare": comparison, "texts": texts.all}


def page(data: Mapping[str, Any]) -> str:
    """The page, whole, from data in JSON's types."""
    packed = gzip.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), 9, mtime=0)
    library = _read("uPlot.iife.min.js")
    script = "\n".join(_read(name) for name in _SCRIPTS)
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in (library, script))
    parts = {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'",
        "style": _read("uPlot.min.css") + _read("page.css"),
        "license": _read("uPlot.LICENSE"),
        "library": library,
        "script": script,
        "data": base64.b64encode(packed).decode(),
    }
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: parts[match[1]], _read("page.html"))


def _read(name: str) -> str:
    return (_WEB / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
