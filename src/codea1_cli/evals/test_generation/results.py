"""Results on disk: a folder with its settings and one file of rows per protocol, and two such folders compared."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.errors import UserError
from codea1_cli.evals.statistics import paired_bootstrap
from codea1_cli.evals.test_generation.figures import PROTOCOLS, Scoring, share, values
from codea1_cli.files import kept_rows, read_json
from codea1_cli.models.sampler import speed

OWN_FILE = "own file"  # takes the place of a protocol where a result is of a user's functions


class ResultsFolder:
    """The folder of one result, which holds only rows of the same settings. It is made by `begin`, not before."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Raises UserError where the folder holds results of other settings, which are named."""
        self.path, self.settings = path, settings
        self._check()

    def _check(self) -> None:
        before = self.read("settings.json")
        wanted = json.loads(json.dumps(self.settings))
        other = sorted(name for name in {*before, *wanted} if before.get(name) != wanted.get(name)) if before else []
        if other:
            raise UserError(
                f"{self.path} holds results of other settings: {', '.join(other)}",
                hint="give another --out, or remove the folder",
            )

    def begin(self) -> None:
        """Makes the folder, or takes up one that was begun with the same settings. Raises UserError as the folder."""
        self._check()
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / "settings.json").exists():
            self.write("settings.json", self.settings)

    def read(self, name: str) -> Any:
        """What one of the folder's JSON files holds, None where it is not there."""
        file = self.path / name
        return read_json(file, dict) if file.exists() else None

    def write(self, name: str, found: Any) -> None:
        """Writes a JSON file of the folder, whole or not at all."""
        write_atomic(self.path / name, json.dumps(found, indent=2, default=str) + "\n")

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Adds to the seconds spent on `what`, over all calls that worked on this folder, interrupted ones too; a
        folder that was not begun stays unmade."""
        began = time.monotonic()
        try:
            yield
        finally:
            if self.path.is_dir():
                self.add("seconds.json", {what: time.monotonic() - began})

    def add(self, name: str, counts: Mapping[str, float]) -> None:
        """Adds to the numbers that a JSON file of the folder holds."""
        kept = self.read(name) or {}
        self.write(name, kept | {key: round(kept.get(key, 0) + count, 3) for key, count in counts.items()})

    def speed(self) -> dict[str, float | None]:
        """How many tokens were sampled, over all calls, and how many per second."""
        return speed(**(self.read("sampled.json") or {"tokens": 0, "seconds": 0.0}))


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
        """B less A, in points."""
        return self.b - self.a


def compare(first: Path, second: Path) -> list[Difference]:
    """Every figure of every protocol that both folders of results have.

    Raises:
        UserError: one is not a folder of results, or they share nothing, or count tests differently.
    """
    scorings = [_scoring(folder) for folder in (first, second)]
    found: list[Difference] = []
    for protocol in (*PROTOCOLS, OWN_FILE):
        sides = [_values(folder, protocol, made) for folder, made in zip((first, second), scorings, strict=True)]
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
    first, second = [a for _, a, _ in both], [b for _, _, b in both]
    interval = paired_bootstrap(first, second)
    means = 100 * sum(first) / len(both), 100 * sum(second) / len(both)
    won, lost = [name for name, a, b in both if b > a], [name for name, a, b in both if b < a]
    return Difference(protocol, figure, len(both), *means, 100 * interval.low, 100 * interval.high, won, lost)


def _scoring(folder: Path) -> Scoring:
    try:
        return Scoring(**read_json(folder / "settings.json", dict)["scoring"])
    except (UserError, KeyError, TypeError):
        raise UserError(
            f"{folder} is not a folder of eval-tests results", hint="eval-tests says where its results lie as it ends"
        ) from None


def _values(folder: Path, protocol: str, scoring: Scoring) -> dict[str, dict[str, float | None]]:
    try:
        if protocol == OWN_FILE:
            return _own_values(folder)
        rows = [stored["row"] for stored in kept_rows(folder / f"rows.{protocol}.jsonl")]
        return {row["id"]: values(protocol, row, scoring.tests_per_suite) for row in rows if not row["unscored"]}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"the rows in {folder} are broken: {error!r}", hint="score them again") from None


def _own_values(folder: Path) -> dict[str, dict[str, float | None]]:
    """Of a result on a user's file: the shares of tests that pass and of mutants that they kill."""
    file = folder / "results.json"
    functions = read_json(file, dict)["functions"] if file.exists() else ()
    rows = functions if isinstance(functions, list) else ()  # a benchmark's lie by protocol
    return {
        row["id"]: {
            "passing": share(row["passing"], len(row["tests"])),
            "mutation": share(row["killed"], row["mutants"]),
        }
        for row in rows
        if not row["unscored"]
    }
