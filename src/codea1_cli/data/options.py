"""Everything that decides what a preparation keeps, and how the command line's texts are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from codea1_cli.errors import UserError

Share = Annotated[float, Field(gt=0.0, le=1.0)]


class Thresholds(BaseModel):
    """Jaccard similarities from 0 to 1 at and above which two rows collide, and one length in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    near_question: Share = Field(0.85, description="questions of two rows")
    near_code: Share = Field(0.95, description="references of two rows, names apart")
    bench_question: Share = Field(0.72, description="a row's question and a benchmark's")
    bench_name: Share = Field(0.5, description="the same, where the function's name is the same too")
    bench_code: Share = Field(0.85, description="a row's reference and a benchmark's, names apart")
    bench_overlap: Annotated[int, Field(ge=3)] = Field(
        10, description="telling words in a row that a question shares with a benchmark's"
    )


@dataclass(frozen=True)
class SolveRule:
    """`n` samples a problem at `temperature`; problems whose solve rate lies outside [low, high] go."""

    model: str
    n: int = 8
    low: float = 0.0
    high: float = 1.0
    temperature: float = 1.0
    max_new_tokens: int = 1024


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


def read_thresholds(settings: Iterable[str]) -> Thresholds:
    """Thresholds from `name=value` texts.

    Raises:
        UserError: an unknown name, or a value out of range.
    """
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in Thresholds.model_fields:
            raise UserError(f"no threshold {setting!r}", hint=f"NAME=VALUE with {', '.join(Thresholds.model_fields)}")
        values[name] = value
    try:
        return Thresholds.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"threshold {first['loc'][0]}: {first['msg']}", hint="a share from 0 to 1") from None


def read_keep(text: str) -> tuple[float, float]:
    """The range of `LOW:HIGH`.

    Raises:
        UserError: it is none.
    """
    low, colon, high = text.partition(":")
    try:
        bounds = (float(low), float(high))
    except ValueError:
        bounds = (1.0, 0.0)
    if not colon or not 0.0 <= bounds[0] <= bounds[1] <= 1.0:
        raise UserError(f"{text!r} is no range of solve rates", hint="--keep LOW:HIGH, such as 0.1:0.9")
    return bounds
