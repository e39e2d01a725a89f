"""Problems: where they come from and which of them a run can use.

Here is what a prepared folder says of itself: README.md to read, card.json for programs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codea1_cli.errors import counted


@dataclass
class Card:
    """Everything but measured times, so that the same input gives the same bytes.

    removed: rows by stage and reason. tests: problems by their number of tests, prompt_tokens: by tokens.
    """

    title: str
    command: str
    version: str
    seed: int
    source: dict[str, Any]
    options: dict[str, Any]
    read: int = 0
    removed: dict[str, Counter[str]] = field(default_factory=dict)
    kept: int = 0
    splits: dict[str, int] = field(default_factory=dict)
    licenses: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    tests: Counter[int] = field(default_factory=Counter)
    prompt_tokens: Counter[int] = field(default_factory=Counter)
    solve_rates: Counter[float] = field(default_factory=Counter)
    extra_tests_dropped: int = 0
    benchmarks: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """The card in JSON's types."""
        plain = dict(vars(self))
        plain["removed"] = {stage: dict(sorted(counts.items())) for stage, counts in self.removed.items() if counts}
        for name in ("licenses", "sources", "tests", "prompt_tokens", "solve_rates"):
            plain[name] = {str(key): count for key, count in sorted(plain[name].items())}
        return plain

    def json(self) -> str:
        """`card.json`."""
        return json.dumps(self.data(), indent=1, ensure_ascii=False) + "\n"

    def markdown(self) -> str:
        """`README.md`, the data card."""
        licenses = ", ".join(f"{name or 'not stated'}: {count}" for name, count in sorted(self.licenses.items()))
        parts = [
            f"# {self.title}: {counted(self.kept, 'problem')}",
            f"Made by codea1 {self.version} with\n\n    {self.command}",
            f"Of {counted(self.read, 'row')} read, this holds {self.kept}. "
            f"The licence of each row is in its field `license` "
            f"({licenses or 'no rows'}).",
            *([] if not self.notes else ["\n".join(f"- {note}" for note in self.notes)]),
            "## Files",
            table(
                ("file", "rows", "bytes", "SHA-256"),
                [(name, f.get("rows", ""), f["bytes"], f["sha256"]) for name, f in self.files.items()],
            ),
            "## Source",
            table(("", ""), list(_flat(self.source))),
            table(("source", "rows kept"), sorted(self.sources.items())),
            "## Rows removed",
            table(
                ("stage", "reason", "rows"),
                [(stage, reason, n) for stage, counts in self.removed.items() for reason, n in sorted(counts.items())],
            ),
            "`removed.jsonl` lists each of them, with the row that it collides with.",
            "## Tests a problem",
            table(("tests", "problems"), buckets(self.tests)),
        ]
        if self.prompt_tokens:
            parts += ["## Tokens of the prompt", table(("tokens", "problems"), buckets(self.prompt_tokens))]
        if self.solve_rates:
            parts += ["## Solve rate", table(("rate", "problems"), sorted(self.solve_rates.items()))]
        if self.benchmarks:
            parts += ["## Decontaminated against", table(("benchmark", "tasks"), list(self.benchmarks.items()))]
        parts += ["## Options", table(("", ""), list(_flat(self.options)))]
        return "\n\n".join(parts) + "\n"


def buckets(counts: Mapping[int, int], most: int = 12) -> list[tuple[str, int]]:
    """Counts by range, each range as wide as the next of 1, 2, 5, 10, ... that needs no more than `most` of them."""
    if not counts:
        return []
    low, high = min(counts), max(counts)
    width = next(
        base * 10**power for power in range(12) for base in (1, 2, 5) if (high - low) // (base * 10**power) < most
    )
    first = low - low % width
    grouped: Counter[int] = Counter()
    for value, count in counts.items():
        grouped[(value - first) // width] += count
    return [
        (str(start) if width == 1 else f"{start}-{start + width - 1}", grouped[place])
        for place in range(max(grouped) + 1)
        for start in (first + place * width,)
    ]


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            rows += _flat(item, f"{prefix}{key}.")
        elif isinstance(item, list) and item and all(isinstance(part, Mapping) for part in item):
            for place, part in enumerate(item, start=1):
                rows += _flat(part, f"{prefix}{key}.{place}.")
        elif item not in (None, "", [], {}):
            rows.append((f"{prefix}{key}", str(item)))
    return rows


def table(head: tuple[str, ...], rows: list[Any]) -> str:
    """A table in Markdown; a cell is one line."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |" for row in rows
    ]
    return "\n".join(lines)
