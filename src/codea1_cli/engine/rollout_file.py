"""`rollouts/step-NNNNNN.parquet`: one row a candidate, with everything that ran on it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codea1_cli.durable import write_atomic
from codea1_cli.game.judged_tests import JudgedTest
from codea1_cli.game.scoring import ProblemOutcome
from codea1_cli.judging.step import Judged

if TYPE_CHECKING:
    import pyarrow as pa


def schema() -> pa.Schema:
    import pyarrow as pa

    book_test = pa.struct([(name, pa.string()) for name in ("test", "verdict", "expected", "got")])
    test = pa.struct(
        [
            ("test", pa.string()),
            ("valid", pa.bool_()),
            ("reason", pa.string()),
            ("stated_correctly", pa.bool_()),
            ("verdict", pa.string()),
            ("expected", pa.string()),
            ("got", pa.string()),
        ]
    )
    suite = pa.struct(
        [
            ("text", pa.string()),
            ("reward", pa.float64()),
            ("validity", pa.float64()),
            ("adversarial", pa.float64()),
            ("tests", pa.list_(test)),
        ]
    )
    return pa.schema(
        [
            ("step", pa.int64()),
            ("problem_id", pa.string()),
            ("candidate_index", pa.int64()),
            ("completion", pa.string()),
            ("code", pa.string()),
            ("loaded", pa.bool_()),
            ("load_detail", pa.string()),
            ("reward", pa.float64()),
            ("selected", pa.bool_()),
            ("book", pa.list_(book_test)),
            ("suites", pa.list_(suite)),
        ]
    )


def write_rollouts(
    path: Path, step: int, judged: Mapping[str, Sequence[Judged]], outcomes: Mapping[str, ProblemOutcome]
) -> None:
    """Writes a step's file; it appears whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        _row(step, pid, index, candidate, outcomes[pid])
        for pid, candidates in judged.items()
        for index, candidate in enumerate(candidates)
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema()), buffer, compression="zstd")
    write_atomic(path, buffer.getvalue())


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
