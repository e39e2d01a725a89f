"""What `codea1 prepare-data` shows: a line of progress, a summary with histograms, the list of removed rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codea1_cli.cli import console

if TYPE_CHECKING:
    from codea1_cli.data.card import Card

_BAR = 40
STAGES = {
    "read": "reading",
    "filter": "filtering",
    "duplicates": "exact duplicates",
    "benchmarks": "decontaminating",
    "tokens": "counting tokens",
    "verify": "verifying",
    "near": "near-duplicates",
    "solve": "solve rate",
}


def show_summary(card: Card, slow: int, out: Path, benchmark: bool) -> None:
    """Prints what was read, removed and kept, and how many tests and prompt tokens the problems have.

    slow: how many references are. benchmark: these are problems that nobody should train on.
    """
    from codea1_cli.data.card import buckets

    removed = [
        (STAGES.get(stage, stage), console.cell(reason, "name"), f"-{count}")
        for stage, counts in card.removed.items()
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    kept = [[console.cell(text, "ok") for text in ("kept", *split)] for split in card.splits.items()]
    title = f"{card.title}: {card.kept} of {card.read} rows kept"
    rows = [("read", "", card.read), *removed, *kept]
    console.out().print(console.table(title, ("stage", "reason", ">rows"), rows))
    _histogram("tests a problem", buckets(card.tests))
    _histogram("tokens of the prompt", buckets(card.prompt_tokens))
    _histogram("solve rate", [(str(rate), count) for rate, count in sorted(card.solve_rates.items())])
    if slow:
        console.note(f"{slow} slow references are kept; slow.jsonl names them with their seconds")
    console.note(f"{out / 'README.md'} is the data card, {out / 'removed.jsonl'} lists what was removed")
    if not benchmark:
        console.note(f"next: codea1 train --recipe RECIPE data.train={out}")


def _histogram(title: str, rows: Sequence[tuple[str, int]]) -> None:
    if not rows:
        return
    most = max(count for _, count in rows)
    bars = ["█" * max(1 if count else 0, round(_BAR * count / most)) for _, count in rows]
    cells = [(*row, console.cell(bar, "name")) for row, bar in zip(rows, bars, strict=True)]
    console.out().print(console.table(title, (">", ">", ""), cells))


def show_report(listed: Sequence[Mapping[str, Any]]) -> None:
    """Each removed row, and below it what it collides with."""
    rows: list[tuple[object, ...]] = []
    for line in listed:
        row = str(line.get("id") or line.get("where", ""))
        said = str(line.get("text", "")) if "other" in line else str(line.get("detail") or line.get("text", ""))
        rows.append((line["stage"], console.cell(line["reason"], "name"), row, said))
        if "other" in line:
            score = f"{line['score']:.2f}" if "score" in line else line.get("detail", "")
            rows.append(("", console.cell(score, "name"), line["other"], line["other_text"]))
    console.out().print(console.table(None, ("stage", "reason", "row", "text"), rows))
