"""The one-shot protocol on a small fixed set, for an evaluation during training on the policy's own engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codea1_cli.evals.benchmark import TestBenchmark
from codea1_cli.evals.eval_set import Figures, SetOptions, Texts
from codea1_cli.evals.test_generation import oneshot
from codea1_cli.evals.test_generation.evaluation import WARM, Scorer, Scoring, score_all, summary
from codea1_cli.evals.test_generation.functions import Function, fixed_sample
from codea1_cli.evals.test_generation.sampling import suite_prompts
from codea1_cli.evals.test_generation.suites import suite_of_text
from codea1_cli.models.sampler import SamplingSettings
from codea1_cli.sandbox.base import Sandbox

FUNCTIONS = 64  # where the recipe sets no limit


class SuiteSet:
    """A test benchmark under the one-shot protocol, with the training's own white-box prompt; see `eval_set.EvalSet`."""

    role = "test"

    def __init__(self, name: str, benchmark: TestBenchmark, options: SetOptions) -> None:
        self.name, self.benchmark, self.options = name, benchmark, options
        self.items: list[Function] = []
        self.sandbox: Any = None

    def load(self) -> Sequence[Function]:
        """Functions of the benchmark up to the limit, the same ones at every step and in every run."""
        self.items = fixed_set(self.benchmark.load(self.options.data), self.options.limit or FUNCTIONS)
        return self.items

    def prompts(self, tokenizer: Any, items: Sequence[Function]) -> list[list[int]]:
        """Token ids of each function's prompt."""
        return suite_prompts(tokenizer, items, self.options.tests_per_suite)

    def sampling(self) -> SamplingSettings:
        """One suite per function."""
        wish = self.options
        return SamplingSettings(1, wish.temperature, wish.top_p, wish.max_new_tokens)

    def score(self, texts: Texts) -> tuple[Figures, dict[str, Any]]:
        """The one-shot figures; there are no rows."""
        from codea1_cli.sandbox.make import SandboxOptions, make_sandbox

        wish = self.options
        if self.sandbox is None:
            wanted = SandboxOptions(python=wish.python, require=wish.require, workers=wish.workers, warm=WARM)
            self.sandbox = make_sandbox(wanted)
        replies = [texts[function.id][0] for function in self.items]
        return figures(self.sandbox, self.items, replies, wish.tests_per_suite, wish.workers), {}

    def close(self) -> None:
        """Ends the sandbox."""
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None


def fixed_set(functions: Sequence[Function], count: int) -> list[Function]:
    """`count` of the functions, chosen by their ids alone."""
    chosen = fixed_sample(functions, share=min(1.0, count / max(1, len(functions))))
    return [function for function in functions if function.id in chosen]


def figures(
    sandbox: Sandbox, functions: Sequence[Function], replies: Sequence[str], tests_per_suite: int, workers: int = 2
) -> dict[str, Any]:
    """The one-shot figures of the replies, flat, in percent where a share; blocking. `sandbox` is the judge's own.

    Numbers only, fit for a line of metrics.jsonl; intervals are left out.
    """
    scoring = Scoring(tests_per_suite=tests_per_suite)
    suites = {f.id: suite_of_text(f.id, reply) for f, reply in zip(functions, replies, strict=True)}
    scorer = Scorer(sandbox, scoring)
    rows = score_all(scorer, oneshot.PROTOCOL, functions, suites, None, workers=workers)
    found = summary(oneshot.PROTOCOL, rows, scoring, set())
    return {name: value for name, value in found.items() if value is None or isinstance(value, int | float)}
