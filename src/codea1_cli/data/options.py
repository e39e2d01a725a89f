"""Everything that decides what a preparation keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from codea1_cli.data.solve import SolveRule
from codea1_cli.data.thresholds import Thresholds


@dataclass(frozen=True)
class Options:
    """The options of `codea1 prepare-data` behind the source. Seconds are wall-clock."""

    out: Path
    command: str
    limit: int | None = None
    min_tests: int = 1
    dedup: bool = True
    decontaminate: bool = True
    benchmarks: Path | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    verify: bool = True
    workers: int | None = None
    time_limit_s: float = 2.0
    memory_mb: int = 1024
    slow_s: float = 0.5
    python: str | None = None
    max_prompt_tokens: int | None = None
    tokenizer: str | None = None
    chat_template: Path | None = None
    solve: SolveRule | None = None
    val: float = 0.05
    test: float = 0.0
    seed: int = 0
    formats: tuple[str, ...] = ("jsonl", "parquet")
