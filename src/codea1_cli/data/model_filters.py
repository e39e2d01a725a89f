"""What a model says of a problem: how long its prompt is, and how often its samples solve it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.extract import extract_code
from codea1_cli.judging.grading import grade_on_tests
from codea1_cli.judging.judge import Judge
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import code_messages
from codea1_cli.sandbox.base import Limits, Sandbox


class PromptCounter:
    """Tokens of the Code LLM's rendered prompt under a model's tokenizer and chat template.

    Raises:
        UserError: the tokenizer cannot be found or has no chat template, or the template does not render.
    """

    def __init__(self, tokenizer: str, chat_template: Path | None = None) -> None:
        from codea1_cli.models.loading import load_tokenizer

        self.tokenizer: Any = load_tokenizer(tokenizer)
        if chat_template is not None:
            try:
                self.tokenizer.chat_template = chat_template.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"cannot read {chat_template}: {error}", hint="give a Jinja file") from None

    def count(self, problem: Problem) -> int:
        """Tokens of one problem's prompt."""
        from jinja2 import TemplateError

        from codea1_cli.models.loading import render

        try:
            return len(render(self.tokenizer, code_messages(problem)))
        except TemplateError as error:
            raise UserError(f"the chat template does not render: {error}", hint="see --chat-template") from None


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


class ProblemSampler:
    """Replies to the prompts that training renders, by the rule's model: vLLM where it is installed and there is a GPU,
    else transformers' generate."""

    def __init__(self, rule: SolveRule) -> None:
        from codea1_cli.models.loading import resolve_model
        from codea1_cli.models.sampler import ModelRef, open_sampler

        self.rule = rule
        self.sampler = open_sampler(ModelRef(resolve_model(rule.model), label=rule.model))

    def sample(self, problems: Sequence[Problem], seed: int) -> list[list[str]]:
        """`n` replies to each problem's prompt; they depend on which problems are sampled together."""
        from codea1_cli.models.loading import render
        from codea1_cli.models.sampler import SamplingSettings

        rule = self.rule
        settings = SamplingSettings(
            n=rule.n, temperature=rule.temperature, max_new_tokens=rule.max_new_tokens, seed=seed
        )
        prompts = [render(self.sampler.tokenizer, code_messages(problem)) for problem in problems]
        return self.sampler.generate(prompts, settings)


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
