"""What the stages of a preparation share: reading once, judging rows one by one, removing them; all of it resumable."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from codea1_cli.data import Rows, Stage, WorkFolder
from codea1_cli.data.sources import NOT_UNICODE, Source
from codea1_cli.environment import cores
from codea1_cli.errors import UserError, first_line
from codea1_cli.evals.test_generation.sampling import attack_prompts
from codea1_cli.extract import extract_code
from codea1_cli.files import read_text
from codea1_cli.judging.judge import Judge, grade_on_tests
from codea1_cli.models.loading import load_tokenizer, render, resolve_model
from codea1_cli.models.sampler import REPLIES, ModelRef, SamplingSettings, open_sampler
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import code_messages, known_names, real_reply, shown_problem
from codea1_cli.problems.row_files import Skipped
from codea1_cli.recipe.data_options import Options, SolveRule
from codea1_cli.sandbox.base import Limits, Sandbox, in_order

FORMAT = 2  # of the work folder, and of what becomes of a row: what another version wrote is made again

Progress = Callable[[str, int, int | None], None]
"""Told (stage, rows done, rows in all or None)."""
Line = dict[str, Any]


@dataclass
class Prepared:
    """What the stages left: the living rows, the lines of removed rows by stage, and what is known by row number.

    tokens: of the prompt. rates: solve rates. extra: the line of the verify stage that holds the row's extra tests.
    slow: (row, seconds of its reference). unscored: rows that the sandbox failed on. benchmarks: tasks by benchmark.
    """

    rows: Rows
    removed: dict[str, list[Line]] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    extra: dict[int, int] = field(default_factory=dict)
    slow: list[tuple[int, float]] = field(default_factory=list)
    extra_dropped: int = 0
    unscored: int = 0
    benchmarks: dict[str, int] = field(default_factory=dict)
    verify_stage: Stage | None = None


class Stages:
    """The machinery of one preparation inside a locked work folder."""

    def __init__(self, source: Source, options: Options, work: WorkFolder, progress: Progress) -> None:
        self.source, self.options, self.work, self.progress = source, options, work, progress
        self.identity = source.identity()
        self._sandbox: Sandbox | None = None
        self.out: Prepared

    # -- reading ---------------------------------------------------------------------------------------------------
    def read(self) -> Rows:
        """The rows of the source, converted; those that become problems are alive."""
        self.read_key = digest(FORMAT, self.identity, self.options.limit)
        stage = self.work.stage("read", self.read_key, resumable=True)
        if not stage.done:
            with closing(stage):
                limit = None if self.options.limit is None else min(self.options.limit, sys.maxsize)
                for place, row in islice(self.source.records(), len(stage), limit):
                    stage.append(self._converted(place, row))
                    self.progress("read", len(stage), self.options.limit)
            stage.finish()
        rows = Rows(stage)
        for number, line in enumerate(stage):
            rows.alive[number] = "problem" in line
        self.progress("read", len(stage), len(stage))
        return rows

    def _converted(self, place: str, row: Any) -> Line:
        try:
            made = row if isinstance(row, Skipped) else self.source.convert(row)
        except (RecursionError, MemoryError):
            made = Skipped("bad_field", "nested too deeply")
        if isinstance(made, Problem):
            fields = made.model_dump()
            if (why := _unwritable(fields)) is None:
                return {"where": place, "problem": fields}
            made = Skipped("bad_field", why)
        return {"where": place, "reason": made.reason, "detail": made.detail}

    # -- stages that look at each row alone ------------------------------------------------------------------------
    def each(self, name: str, settings: dict[str, Any], judge: Callable[[Problem], Line], workers: int = 1) -> Stage:
        """Applies `judge` to the living rows that have no line yet; a line with a `reason` removes its row."""
        stage = self.work.stage(name, digest(self.read_key, name, settings), resumable=True)
        rows = self.out.rows
        known = {line["row"] for line in stage}
        transient: list[Line] = []
        missing = ((number, problem) for number, problem in rows.living() if number not in known)
        total, done = rows.count(), sum(rows.alive[number] for number in known)
        # Closed before the sandbox is: a program still at work there must have ended.
        with closing(stage), closing(in_order(lambda item: judge(item[1]), missing, workers)) as results:
            for (number, _), line in results:
                line = {"row": number, **line}
                # What is unscored says nothing about the row: the next run shall try again.
                (transient if line.get("reason") == "unscored" else stage).append(line)
                done += 1
                self.progress(name, done, total)
        stage.finish()
        self.progress(name, total, total)
        self.out.unscored += len(transient)
        self.remove(name, stage, transient)
        return stage

    def remove(self, name: str, stage: Stage, transient: list[Line] | None = None) -> None:
        """Takes the rows of a stage's reasons out."""
        alive = self.out.rows.alive
        gone = [line for line in stage if "reason" in line and alive[line["row"]]] + (transient or [])
        for line in gone:
            alive[line["row"]] = 0
        self.out.removed[name] = sorted(gone, key=lambda line: line["row"])

    # -- what stages share -----------------------------------------------------------------------------------------
    def workers(self) -> int:
        """Programs that are asked for at once."""
        return self.sandbox().workers

    def limits(self) -> Limits:
        """The limits on one program."""
        return Limits(time_s=self.options.time_limit_s, memory_mb=self.options.memory_mb)

    def sandbox(self) -> Sandbox:
        """The judge's sandbox, started when first needed."""
        if self._sandbox is None:
            from codea1_cli.sandbox.make import SandboxOptions, make_sandbox

            o = self.options
            self._sandbox = make_sandbox(
                SandboxOptions(o.sandbox, o.endpoint, python=o.python, workers=o.workers or cores())
            )
        return self._sandbox

    def key_of_living(self, *parts: Any) -> str:
        """The key of a stage that looks at all living rows together: another set of them makes it start anew."""
        return digest(self.read_key, hashlib.sha256(self.out.rows.alive).hexdigest(), *parts)


def _unwritable(fields: dict[str, Any]) -> str | None:
    """The field that no file can hold, and why."""
    for name, value in fields.items():
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            return f"{name}: {NOT_UNICODE}"
        except (TypeError, ValueError) as error:  # a date from parquet; not a number
            return f"{name}: {first_line(error)}"
    return None


def digest(*parts: Any) -> str:
    """SHA-256 (hex) of parts that JSON can hold; others count by their text."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


class PromptCounter:
    """Tokens of the Code LLM's rendered prompt under a model's tokenizer and chat template.

    Raises:
        UserError: the tokenizer cannot be found or has no chat template, or the template does not render.
    """

    def __init__(self, tokenizer: str, chat_template: Path | None = None) -> None:

        self.tokenizer: Any = load_tokenizer(tokenizer)
        if chat_template is not None:
            self.tokenizer.chat_template = read_text(chat_template)

    def count(self, problem: Problem) -> int:
        """Tokens of one problem's prompt."""
        from jinja2 import TemplateError

        try:
            return len(render(self.tokenizer, code_messages(shown_problem(problem, known_names(self.tokenizer)))))
        except TemplateError as error:
            raise UserError(f"the chat template does not render: {error}", hint="see --chat-template") from None


class ProblemSampler:
    """Replies to the prompts that training renders, by the rule's model: vLLM where it is installed and there is a GPU,
    else transformers' generate."""

    def __init__(
        self, rule: SolveRule, engine: str = "auto", ref: ModelRef | None = None, kept: Path = Path(REPLIES)
    ) -> None:
        """`ref`: the model, where it is another than the one of that name; kept: as `models.sampler.open_sampler`."""
        self.rule = rule
        self.sampler = open_sampler(ref or ModelRef(resolve_model(rule.model), label=rule.model), engine, kept)

    def sample(self, problems: Sequence[Problem], seed: int) -> list[list[str]]:
        """`n` replies to each problem's prompt; they depend on which problems are sampled together."""

        tokenizer, names = self.sampler.tokenizer, known_names(self.sampler.tokenizer)
        prompts = [render(tokenizer, code_messages(shown_problem(problem, names))) for problem in problems]
        return self._replies(problems, prompts, seed)

    def attack(
        self, shown: Sequence[tuple[Problem, str]], tests_per_suite: int, white_box: bool, seed: int
    ) -> list[list[str]]:
        """`n` suites against each program."""
        asked = [(problem, program if white_box else None) for problem, program in shown]
        prompts = attack_prompts(self.sampler.tokenizer, asked, tests_per_suite)
        return self._replies([problem for problem, _ in shown], prompts, seed)

    def _replies(self, problems: Sequence[Problem], prompts: list[list[int]], seed: int) -> list[list[str]]:
        rule, names = self.rule, known_names(self.sampler.tokenizer)
        settings = SamplingSettings(
            n=rule.n, temperature=rule.temperature, max_new_tokens=rule.max_new_tokens, seed=seed
        )
        groups = zip(problems, self.sampler.generate(prompts, settings), strict=True)
        return [[real_reply(text, problem.entry_point, names) for text in group] for problem, group in groups]


@dataclass(frozen=True)
class SolveRate:
    """`rate` is over the samples that could be scored; None when none could, or the problem has no usable test."""

    rate: float | None
    scored: int


def solve_rate(sandbox: Sandbox, limits: Limits, problem: Problem, replies: Sequence[str]) -> SolveRate:
    """The share of the scored replies that pass all the problem's tests, in four digits. Thread-safe."""
    judge = Judge(sandbox, limits=limits)  # its cache lives for one problem: all answers would fill the memory
    codes = [extract_code(reply, problem.entry_point) for reply in replies]
    passed = [grade.passed for grade in grade_on_tests(judge, problem, codes) if grade.passed is not None]
    return SolveRate(round(sum(passed) / len(passed), 4) if passed else None, len(passed))
