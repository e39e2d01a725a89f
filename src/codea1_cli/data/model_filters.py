"""What a model says of a problem: how long its prompt is, and how often its samples solve it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from codea1_cli.errors import UserError
from codea1_cli.extract import extract_code
from codea1_cli.judging.grading import grade_on_tests
from codea1_cli.judging.judge import Judge, ReferenceCache
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import code_messages
from codea1_cli.sandbox.base import Limits, Sandbox

if TYPE_CHECKING:
    from codea1_cli.models.sampler import Sampler as TextSampler


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
        from jinja2 import TemplateError

        from codea1_cli.models.loading import render

        try:
            return len(render(self.tokenizer, code_messages(problem)))
        except TemplateError as error:
            raise UserError(f"the chat template does not render: {error}", hint="see --chat-template") from None


@dataclass(frozen=True)
class SolveRule:
    """`n` samples a problem at `temperature`; problems whose solve rate lies outside [low, high] go."""

    model: str
    n: int = 8
    low: float = 0.0
    high: float = 1.0
    temperature: float = 1.0
    max_new_tokens: int = 1024


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


class Sampler(Protocol):
    def sample(self, problems: Sequence[Problem], seed: int) -> list[list[str]]:
        """`n` replies to each problem's prompt."""
        ...


def make_sampler(rule: SolveRule) -> Sampler:
    """Replies of `rule.model`: vLLM where it is installed and there is a GPU, else transformers' generate."""
    from codea1_cli.models.loading import resolve_model
    from codea1_cli.models.sampler import ModelRef, open_sampler

    return ModelSampler(open_sampler(ModelRef(resolve_model(rule.model), label=rule.model)), rule)


class ModelSampler:
    """Replies to the prompts that training renders."""

    def __init__(self, sampler: TextSampler, rule: SolveRule) -> None:
        self.sampler, self.rule = sampler, rule

    def sample(self, problems: Sequence[Problem], seed: int) -> list[list[str]]:
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


class SolveJudge:
    """Thread-safe."""

    def __init__(self, sandbox: Sandbox, limits: Limits, tolerance: float = 1e-6) -> None:
        self.sandbox, self.limits, self.tolerance = sandbox, limits, tolerance

    def rate(self, problem: Problem, replies: Sequence[str]) -> SolveRate:
        """The share of the scored replies that pass all the problem's tests, in four digits; None without any."""
        judge = Judge(self.sandbox, limits=self.limits, tolerance=self.tolerance, cache=ReferenceCache())
        codes = [extract_code(reply, problem.entry_point) for reply in replies]
        passed = [grade.passed for grade in grade_on_tests(judge, problem, codes) if grade.passed is not None]
        return SolveRate(round(sum(passed) / len(passed), 4) if passed else None, len(passed))
