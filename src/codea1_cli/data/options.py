"""The options of `codea1 prepare-data`: what each one is for, its flag and its default.

The command line is made of these dataclasses when it starts, so nothing heavy is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from codea1_cli.errors import UserError

if TYPE_CHECKING:
    from codea1_cli.data.decontaminate import Thresholds
    from codea1_cli.data.stages import SolveRule


@dataclass(frozen=True)
class SourceOptions:
    """Where rows come from, and which of their columns are which fields."""

    data: Annotated[
        Path | None, Option(metavar="PATH", help="A downloaded copy of kodcode, mbpp or evalplus: a file or folder.")
    ] = None
    maps: Annotated[
        list[str] | None, Option("--map", metavar="FIELD=COLUMN", help="The column of a problem's field; repeat it.")
    ] = None
    mapping: Annotated[Path | None, Option(metavar="FILE", help="The same as YAML, FIELD: COLUMN a line.")] = None
    difficulty: Annotated[str | None, Option(help="Keep easy, medium or hard rows of kodcode; the paper: hard.")] = None
    split: Annotated[str | None, Option(help="Of a hub dataset; train when left out.")] = None
    revision: Annotated[str | None, Option(help="Of a hub dataset.")] = None
    config: Annotated[str | None, Option(help="Of a hub dataset.")] = None
    license: Annotated[str | None, Option(help="Of rows that do not state their own.")] = None


@dataclass(frozen=True)
class Options:
    """What a preparation keeps and writes. Seconds are wall-clock."""

    limit: Annotated[int | None, Option(min=1, help="Read only the first N rows.")] = None
    min_tests: Annotated[int, Option(min=0, help="Tests that a problem needs.")] = 1
    dedup: Annotated[bool, Option(help="Remove what repeats an earlier row.")] = True
    decontaminate: Annotated[
        bool | None, Option(help="Remove what is or resembles a benchmark's task; on, except for evalplus.")
    ] = None
    benchmarks: Annotated[
        Path | None, Option(metavar="DIR", help="The benchmarks' files; CODEA1_SHARED/data/bench else.")
    ] = None
    threshold: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="Change one of the thresholds in docs/data.md.")
    ] = None
    verify: Annotated[bool, Option(help="Run every reference on its tests, in the sandbox.")] = True
    workers: Annotated[int | None, Option(min=1, help="Programs run at once; one a CPU core when left out.")] = None
    time_limit_s: Annotated[float, Option("--time-limit", min=0.1, help="Seconds for one call.")] = 2.0
    memory_mb: Annotated[int, Option("--memory", min=64, help="MB for one program.")] = 1024
    slow_s: Annotated[float, Option("--slow", min=0.0, help="Seconds from which a reference is slow.")] = 0.5
    python: Annotated[str | None, Option(help="The references' interpreter; codea1's own when left out.")] = None
    sandbox: Annotated[str, Option(metavar="NAME", help="Where programs run: local, or fusion, a service.")] = "local"
    endpoint: Annotated[
        str | None, Option(metavar="URL", help="The service's address; SANDBOX_FUSION_ENDPOINT when left out.")
    ] = None
    max_prompt_tokens: Annotated[int | None, Option(min=1, help="Remove longer prompts; needs --tokenizer.")] = None
    tokenizer: Annotated[
        str | None, Option(metavar="MODEL", help="Counts the rendered prompt; --solve-rate's when left out.")
    ] = None
    chat_template: Annotated[Path | None, Option(metavar="FILE", help="A Jinja file in place of the model's own.")] = (
        None
    )
    solve_rate: Annotated[str | None, Option(metavar="MODEL", help="Sample solutions and keep by their rate.")] = None
    n: Annotated[int, Option(min=1, help="Samples a problem.")] = 8
    keep: Annotated[str, Option(metavar="LOW:HIGH", help="Solve rates to keep.")] = "0.1:0.9"
    temperature: Annotated[float, Option(min=0.01, help="Of the samples.")] = 1.0
    max_new_tokens: Annotated[int, Option(min=1, help="Of a sample.")] = 1024
    val: Annotated[float, Option(min=0.0, max=1.0, help="Share of problems for val.")] = 0.05
    test: Annotated[float, Option(min=0.0, max=1.0, help="Share of problems for test.")] = 0.0
    seed: Annotated[int, Option(help="Of splits and samples.")] = 0
    format: Annotated[Literal["both", "jsonl", "parquet"], Option(help="Files of a split.")] = "both"

    @property
    def formats(self) -> tuple[str, ...]:
        """The kinds of file that a split is written to."""
        return ("jsonl", "parquet") if self.format == "both" else (self.format,)

    @cached_property
    def thresholds(self) -> Thresholds:
        """The thresholds with the changes of `threshold`. Raises UserError for a bad one."""
        from codea1_cli.data.decontaminate import read_thresholds

        return read_thresholds(self.threshold or ())

    @cached_property
    def solve(self) -> SolveRule | None:
        """How problems are kept by a model's solve rate, if at all. Raises UserError when `keep` is not a range."""
        from codea1_cli.data.stages import SolveRule, read_keep

        if self.solve_rate is None:
            return None
        low, high = read_keep(self.keep)
        return SolveRule(self.solve_rate, self.n, low, high, self.temperature, self.max_new_tokens)

    def check(self) -> None:
        """Raises UserError for options that contradict each other or cannot be read."""
        from codea1_cli.sandbox.make import check_backend

        if self.max_prompt_tokens is not None and self.tokenizer is None and self.solve_rate is None:
            raise UserError("--max-prompt-tokens needs a tokenizer to count with", hint="--tokenizer MODEL")
        if self.val + self.test > 1.0:
            what = f"--val {self.val} and --test {self.test} leave nothing to train on"
            raise UserError(what, hint="their sum must stay below 1")
        check_backend(self.sandbox, self.endpoint)
        _ = self.solve, self.thresholds

    def on_the_card(self) -> dict[str, Any]:
        """What of the options decides the rows, by name."""
        shown: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name in _ON_THE_CARD}
        shown |= {"formats": self.formats, "thresholds": self.thresholds.model_dump()}
        return shown if self.solve is None else {**shown, "solve": vars(self.solve)}


_ON_THE_CARD = (
    "limit", "min_tests", "dedup", "decontaminate", "verify", "time_limit_s", "memory_mb", "slow_s", "python",
    "max_prompt_tokens", "tokenizer", "val", "test",
)  # fmt: skip
