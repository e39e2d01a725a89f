"""The one-shot protocol on a small fixed set, for an evaluation during training on the policy's own engine.

The engine samples: `prompts` says what to ask (one reply for each), `figures` scores the replies.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codea1_cli.evals.test_generation import oneshot
from codea1_cli.evals.test_generation.evaluation import Scorer, Scoring, score_all, summary
from codea1_cli.evals.test_generation.functions import Function, fixed_sample, load_ult
from codea1_cli.evals.test_generation.sampling import suite_prompts
from codea1_cli.evals.test_generation.suites import suite_of_text
from codea1_cli.sandbox.base import Sandbox


def fixed_set(data: Path | None, count: int) -> list[Function]:
    """`count` functions of the benchmark, the same ones at every step and in every run.

    Raises:
        UserError: the data is not there.
    """
    functions = load_ult(data)
    chosen = fixed_sample(functions, share=min(1.0, count / max(1, len(functions))))
    return [function for function in functions if function.id in chosen]


def prompts(tokenizer: Any, functions: Sequence[Function], tests_per_suite: int) -> list[list[int]]:
    """Token ids of the training's own white-box prompt for each function."""
    return suite_prompts(tokenizer, functions, tests_per_suite)


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
