"""The rows of `rollouts/step-NNNNNN.parquet` (see `runs.rollouts`), from a step's judged candidates and rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codea1_cli.game.judged_tests import JudgedTest
from codea1_cli.game.scoring import ProblemOutcome
from codea1_cli.judging.step import Judged


def rollout_rows(
    step: int, judged: Mapping[str, Sequence[Judged]], outcomes: Mapping[str, ProblemOutcome]
) -> list[dict[str, Any]]:
    """One row per candidate, problem by problem."""
    return [
        _row(step, pid, index, candidate, outcomes[pid])
        for pid, candidates in judged.items()
        for index, candidate in enumerate(candidates)
    ]


def _row(step: int, pid: str, index: int, judged: Judged, outcome: ProblemOutcome) -> dict[str, Any]:
    suites = [
        {
            "text": _clean(suite.text),
            "reward": reward,
            "validity": part.validity,
            "adversarial": part.adversarial,
            "tests": [
                {
                    **_ran(test),
                    "valid": test.valid,
                    "reason": test.reason or "",
                    "stated_correctly": test.stated_correctly,
                }
                for test in suite.tests
            ],
        }
        for suite, reward, part in zip(
            judged.game.suites, outcome.suite_rewards[index], outcome.suite_parts[index], strict=True
        )
    ]
    return {
        "step": step,
        "problem_id": pid,
        "candidate_index": index,
        "completion": _clean(judged.candidate.completion),
        "code": _clean(judged.candidate.code),
        "loaded": judged.candidate.loaded,
        "load_detail": _clean(judged.candidate.load_detail),
        "reward": outcome.code_rewards[index],
        "selected": index in outcome.selected,
        "book": [_ran(test) for test in judged.game.book],
        "suites": suites,
    }


def _ran(test: JudgedTest) -> dict[str, Any]:
    return {
        "test": _clean(test.source),
        "verdict": test.verdict.value if test.verdict is not None else None,
        "expected": _clean(test.expected),
        "got": _clean(test.got),
    }


def _clean(text: str) -> str:
    """Parquet keeps UTF-8 only; a lone surrogate, which models do write, is stored as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
