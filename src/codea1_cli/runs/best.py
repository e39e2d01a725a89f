"""The best checkpoint of a run: which one it is by the figure that the recipe names, and what pruning leaves alone.

Everything is read from metrics.jsonl and the checkpoints that there are: marking again changes nothing, and a resumed
run marks as one that was never interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from codea1_cli.durable import write_atomic

if TYPE_CHECKING:
    from codea1_cli.runs.run_dir import RunDir


def figure_of(line: dict[str, Any], name: str) -> float | None:
    """The value of a figure, `SET/KEY`, in an evaluation's line of metrics.jsonl; None where it is not in it.

    A held-out key (`heldout/pass@1`, `heldout/kill_rate`) is looked up in the Code LLM's part, then in the Test LLM's.
    """
    figures = line.get("eval")
    chosen, _, key = name.partition("/")
    if not isinstance(figures, dict) or figures.get("set") != chosen:
        return None
    for part in (figures, figures.get("code"), figures.get("test")):
        value = part.get(key) if isinstance(part, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def best_of(lines: Iterable[dict[str, Any]], figure: str, steps: Collection[int]) -> tuple[int, float] | None:
    """The step among `steps` with the highest value, the earliest of equals; the last line of a step counts."""
    values = {line["step"]: value for line in lines if (value := figure_of(line, figure)) is not None}
    found = [(step, value) for step, value in values.items() if step in steps]
    return max(found, key=lambda item: (item[1], -item[0]), default=None)


def prunable(steps: Sequence[int], keep: int, spared: Collection[int]) -> list[int]:
    """All but the newest `keep` of the steps, which are in order; at least one stays, and the spared ones do."""
    return [step for step in steps[: -max(keep, 1)] if step not in spared]


def mark_best(run: RunDir, figure: str | None) -> dict[str, Any] | None:
    """Points `checkpoints/best` at the best whole checkpoint and writes best.json; returns what best.json holds, None
    where no checkpoint has the figure. Without a figure nothing is touched."""
    if figure is None:
        return None
    link, file = run.path / "checkpoints" / "best", run.path / "best.json"
    found = best_of(run.metrics(), figure, run.committed_steps())
    if found is None:  # a run that starts over
        link.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        return None
    best = {"step": found[0], "figure": figure, "value": found[1]}
    if best != run.best():
        # The link is last: best.json alone spares the checkpoint from pruning.
        write_atomic(file, json.dumps(best) + "\n")
    run.point("best", found[0])
    return best
