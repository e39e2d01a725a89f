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
    """What was read, removed and kept; how many tests and prompt tokens the problems have. `benchmark`: not to train on."""
    from rich.table import Table

    from codea1_cli.data.card import buckets

    table = Table(title=f"{card.title}: {card.kept} of {card.read} rows kept", title_justify="left", box=None)
    table.add_column("stage")
    table.add_column("reason", style="name")
    table.add_column("rows", justify="right")
    table.add_row("read", "", str(card.read))
    for stage, counts in card.removed.items():
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(STAGES.get(stage, stage), reason, f"-{count}")
    for name, count in card.splits.items():
        table.add_row("kept", name, str(count), style="ok")
    console.out().print(table)
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
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, show_header=False)
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column(style="name")
    most = max(count for _, count in rows)
    for label, count in rows:
        table.add_row(label, str(count), "█" * max(1 if count else 0, round(_BAR * count / most)))
    console.out().print(table)


def show_report(listed: Sequence[Mapping[str, Any]]) -> None:
    """Each removed row, and below it what it collides with."""
    from rich.table import Table

    table = Table(box=None)
    for name in ("stage", "reason", "row", "text"):
        table.add_column(name, overflow="fold", style="name" if name == "reason" else None)
    for line in listed:
        row = str(line.get("id") or line.get("where", ""))
        said = str(line.get("text", "")) if "other" in line else str(line.get("detail") or line.get("text", ""))
        table.add_row(line["stage"], line["reason"], console.printable(row), console.printable(said))
        if "other" in line:
            score = f"{line['score']:.2f}" if "score" in line else console.printable(str(line.get("detail", "")))
            table.add_row("", score, console.printable(str(line["other"])), console.printable(line["other_text"]))
    console.out().print(table)
