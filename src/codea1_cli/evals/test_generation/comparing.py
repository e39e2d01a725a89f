"""Two results on the same functions, function by function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.statistics import paired_bootstrap
from codea1_cli.evals.test_generation.evaluation import PROTOCOLS, Scoring, values
from codea1_cli.evals.test_generation.suites import read_rows


@dataclass(frozen=True)
class Difference:
    """One figure of B less that of A over the functions that both have, in points, with its 95 % interval; the ids of
    functions where B is better (`won`) and worse (`lost`)."""

    protocol: str
    figure: str
    functions: int
    a: float
    b: float
    low: float
    high: float
    won: list[str]
    lost: list[str]

    @property
    def difference(self) -> float:
        return self.b - self.a


def compare(first: Path, second: Path) -> list[Difference]:
    """Every figure of every protocol that both folders of results have.

    Raises:
        UserError: one is no folder of results, or they share nothing, or count tests differently.
    """
    settings = [_settings(folder) for folder in (first, second)]
    scorings = [Scoring(**one["scoring"]) for one in settings]
    found: list[Difference] = []
    for protocol in PROTOCOLS:
        sides = [_values(folder, protocol, scoring) for folder, scoring in zip((first, second), scorings, strict=True)]
        ids = [name for name in sides[0] if name in sides[1]]
        if ids and (scorings[0].k, scorings[0].tests_per_suite) != (scorings[1].k, scorings[1].tests_per_suite):
            raise UserError("the two results were made with other numbers of tests", hint="--k and --tests must agree")
        for figure in sides[0][ids[0]] if ids else ():
            pairs = [(name, sides[0][name][figure], sides[1][name][figure]) for name in ids]
            both = [(name, a, b) for name, a, b in pairs if a is not None and b is not None]
            if both:
                found.append(_difference(protocol, figure, both))
    if not found:
        raise UserError(f"{first} and {second} share no scored function", hint="compare results on the same functions")
    return found


def _difference(protocol: str, figure: str, both: list[tuple[str, float, float]]) -> Difference:
    interval = paired_bootstrap([a for _, a, _ in both], [b for _, _, b in both])
    return Difference(
        protocol,
        figure,
        len(both),
        100 * sum(a for _, a, _ in both) / len(both),
        100 * sum(b for _, _, b in both) / len(both),
        100 * interval.low,
        100 * interval.high,
        [name for name, a, b in both if b > a],
        [name for name, a, b in both if b < a],
    )


def _settings(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        Scoring(**found["scoring"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{folder} is no folder of eval-tests results", hint="`codea1 eval-tests` says where its results lie"
        ) from None
    return found


def _values(folder: Path, protocol: str, scoring: Scoring) -> Mapping[str, dict[str, float | None]]:
    rows = [stored["row"] for stored in read_rows(folder / f"rows.{protocol}.jsonl")]
    return {row["id"]: values(protocol, row, scoring) for row in rows if not row["unscored"]}
