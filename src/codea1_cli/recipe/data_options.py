"""The options of `codea1 prepare-data`, and so of a recipe's `data.source`: what each one is for and its default.

The command line and the recipe's schema are made of these dataclasses, so nothing heavy is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from typer import Option

from codea1_cli.errors import UserError, did_you_mean, plain_fault


@dataclass(frozen=True)
class Thresholds:
    """What decontamination and deduplication go by, each adjusted with `--threshold NAME=VALUE`: Jaccard similarities
    above 0 and up to 1, at and above which two rows collide, and one length, 3 or more."""

    near_question: float = 0.85  # questions of two rows
    near_code: float = 0.95  # references of two rows, names apart
    bench_question: float = 0.72  # a row's question and a benchmark's
    bench_name: float = 0.5  # the same, where the function's name is the same too
    bench_code: float = 0.85  # a row's reference and a benchmark's, names apart
    bench_overlap: int = 10  # telling words in a row that a question shares with a benchmark's


def read_thresholds(settings: Iterable[str]) -> Thresholds:
    """Thresholds from `name=value` texts.

    Raises:
        UserError: an unknown name, or a value out of range.
    """
    names = [field.name for field in fields(Thresholds)]
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in names or not text:
            raise UserError(f"no threshold {setting!r}", hint=f"NAME=VALUE with {', '.join(names)}")
        length = name == "bench_overlap"
        try:
            values[name] = int(text) if length else float(text)
        except ValueError:
            values[name] = 0
        if not (values[name] >= 3 if length else 0.0 < values[name] <= 1.0):
            wanted = "a whole number from 3 on" if length else "a share above 0 and up to 1"
            raise UserError(f"threshold {name}: {text} is out of range", hint=wanted)
    return Thresholds(**values)


@dataclass(frozen=True)
class SolveRule:
    """`n` samples per problem at `temperature`; problems whose solve rate lies outside [low, high] go."""

    model: str
    n: int = 8
    low: float = 0.0
    high: float = 1.0
    temperature: float = 1.0
    max_new_tokens: int = 1024


def read_keep(text: str) -> tuple[float, float]:
    """The range of `LOW:HIGH`.

    Raises:
        UserError: the text is not LOW:HIGH with 0 <= LOW <= HIGH <= 1.
    """
    low, colon, high = text.partition(":")
    try:
        bounds = (float(low), float(high))
    except ValueError:
        bounds = (1.0, 0.0)
    if not colon or not 0.0 <= bounds[0] <= bounds[1] <= 1.0:
        raise UserError(f"{text!r} is not a range of solve rates", hint="--keep LOW:HIGH, such as 0.1:0.9")
    return bounds


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
        Path | None, Option(metavar="DIR", help="The benchmarks' files; CODEA1_BENCHMARKS, or fetched once, else.")
    ] = None
    threshold: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="Change one of the thresholds in docs/data.md.")
    ] = None
    verify: Annotated[bool, Option(help="Run every reference on its tests, in the sandbox.")] = True
    workers: Annotated[int | None, Option(min=1, help="Programs run at once; one per CPU core when left out.")] = None
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
    n: Annotated[int, Option(min=1, help="Samples per problem.")] = 8
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
        return read_thresholds(self.threshold or ())

    @cached_property
    def solve(self) -> SolveRule | None:
        """How problems are kept by a model's solve rate, if at all. Raises UserError when `keep` is not a range."""
        if self.solve_rate is None:
            return None
        low, high = read_keep(self.keep)
        return SolveRule(self.solve_rate, self.n, low, high, self.temperature, self.max_new_tokens)

    def check(self) -> None:
        """Raises UserError for options that contradict each other or cannot be read."""
        from codea1_cli.sandbox.make import backend_endpoint

        if self.max_prompt_tokens is not None and self.tokenizer is None and self.solve_rate is None:
            raise UserError("--max-prompt-tokens needs a tokenizer to count with", hint="--tokenizer MODEL")
        idle = [name for name in _OF_SOLVING if getattr(self, name) != getattr(Options, name)]
        if self.solve_rate is None and idle:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
            raise UserError(f"without --solve-rate nothing is sampled, so {flags} would have no effect")
        if self.val + self.test > 1.0:
            what = f"--val {self.val} and --test {self.test} leave nothing to train on"
            raise UserError(what, hint="their sum must stay below 1")
        backend_endpoint(self.sandbox, self.endpoint)
        _ = self.solve, self.thresholds

    def on_the_card(self) -> dict[str, Any]:
        """What of the options decides the rows, by name."""
        shown: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name in _ON_THE_CARD}
        shown |= {"formats": self.formats, "thresholds": asdict(self.thresholds)}
        return shown if self.solve is None else {**shown, "solve": vars(self.solve)}


_OF_SOLVING = ("n", "keep", "temperature", "max_new_tokens")
_ON_THE_CARD = (
    "limit", "min_tests", "dedup", "decontaminate", "verify", "time_limit_s", "memory_mb", "slow_s", "python",
    "max_prompt_tokens", "tokenizer", "val", "test",
)  # fmt: skip


_OF_THE_RUN = ("workers", "python", "sandbox", "endpoint", "format")  # which a recipe says elsewhere, or settles


def recipe_options() -> dict[str, tuple[type, str, Any]]:
    """The options that a recipe's `data.source` takes, by their flags' names: group, field and what typer knows."""
    known: dict[str, tuple[type, str, Any]] = {}
    for group in (SourceOptions, Options):
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            about = hints[field.name].__metadata__[0]
            # an Option's first word stands where a default would, until typer reads the signature
            flags = [flag for flag in (about.default, *(about.param_decls or ())) if str(flag).startswith("--")]
            name = flags[0].removeprefix("--").replace("-", "_") if flags else field.name
            if name not in _OF_THE_RUN:
                known[name] = (group, field.name, about)
    return known


def in_keys(text: str) -> str:
    """`text` with a recipe's keys, such as data.source.split, where it names prepare-data's flags. What a command would
    leave out, an override sets to null."""
    keys = {f"--{name.replace('_', '-')}": f"data.source.{name}" for name in recipe_options()}

    def nulls(found: re.Match[str]) -> str:
        return f"write {' '.join(f'{keys.get(flag, flag)}=null' for flag in found[1].split(', '))}:"

    text = re.sub("leave out (--[a-z-]+(?:, --[a-z-]+)*):", nulls, text)
    return re.sub(r"--[a-z][a-z-]*", lambda flag: keys.get(flag[0], flag[0]), text)


def read_options(values: Mapping[str, Any]) -> tuple[SourceOptions, Options]:
    """prepare-data's options from a recipe's keys; a folder has jsonl files then, which training reads.

    Raises:
        ValueError: an unknown key, or a value that the option does not take.
    """
    from pydantic import TypeAdapter, ValidationError

    known, given = recipe_options(), {SourceOptions: dict[str, Any](), Options: {"format": "jsonl"}}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"unknown key {key}; {did_you_mean(key, known) or 'its keys are ' + ', '.join(known)}")
        group, field, about = known[key]
        number = value if isinstance(value, int | float) else None
        if number is not None and not (about.min is None or number >= about.min):
            raise ValueError(f"{key}: {value} is below {about.min}")
        if number is not None and not (about.max is None or number <= about.max):
            raise ValueError(f"{key}: {value} is above {about.max}")
        given[group][field] = value
    try:
        source = TypeAdapter(SourceOptions).validate_python(given[SourceOptions])
        options = TypeAdapter(Options).validate_python(given[Options])
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['loc'][0]}: {plain_fault(first['msg'])}, not {first['input']!r}") from None
    try:
        options.check()
    except UserError as fault:
        raise ValueError(in_keys(fault.what)) from None
    return source, options
