"""`rollouts/step-NNNNNN.parquet`: one row per candidate, with everything that ran on it. Written and read here."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codea1_cli.durable import write_atomic
from codea1_cli.errors import UserError, first_line
from codea1_cli.extract.source import parse
from codea1_cli.game.judged_tests import JudgedTest
from codea1_cli.game.scoring import ProblemOutcome
from codea1_cli.judging.step_judge import JudgedProblem, StepCandidate

if TYPE_CHECKING:
    import pyarrow as pa

# The verdicts of a candidate that did run a test and did not pass it.
FAILING = frozenset({"failed", "raised", "timeout", "memory", "crashed", "output_limit", "load_error"})

_COLUMNS = ["step", "problem_id", "candidate_index", "code", "loaded", "load_detail", "reward", "book", "suites"]


def schema() -> pa.Schema:
    """The file's columns; docs/run-directory.md describes them."""
    import pyarrow as pa

    text, flag, number, count = pa.string(), pa.bool_(), pa.float64(), pa.int64()
    ran = {"verdict": text, "expected": text, "got": text}
    book_test = pa.struct({"test": text, **ran})
    test = pa.struct({"test": text, "valid": flag, "reason": text, "stated_correctly": flag, **ran})
    figures = {"reward": number, "validity": number, "adversarial": number}
    suite = pa.struct({"text": text, **figures, "breaks": pa.list_(text), "tests": pa.list_(test)})
    candidate = {"step": count, "problem_id": text, "candidate_index": count, "completion": text, "code": text}
    outcome = {"loaded": flag, "load_detail": text, "reward": number, "selected": flag, "shown": text}
    tests = {"book": pa.list_(book_test), "own": pa.list_(book_test), "suites": pa.list_(suite)}
    return pa.schema(candidate | outcome | tests)


def write_rollouts(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a step's file from rows with the columns of `schema`; it appears whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema()), buffer, compression="zstd")
    write_atomic(path, buffer.getvalue())


def rollout_rows(
    step: int, judged: Mapping[str, JudgedProblem], outcomes: Mapping[str, ProblemOutcome]
) -> list[dict[str, Any]]:
    """A step's rows, one per candidate, problem by problem."""
    return [
        _row(step, pid, index, candidate, outcomes[pid])
        for pid, problem in judged.items()
        for index, candidate in enumerate(problem.candidates)
    ]


def _row(step: int, pid: str, index: int, judged: StepCandidate, outcome: ProblemOutcome) -> dict[str, Any]:
    every = [()] * len(judged.game.suites) if outcome.breaks is None else outcome.breaks[index]
    suites = [
        {
            "text": clean(suite.text),
            "reward": reward,
            "validity": part.validity,
            "adversarial": part.adversarial,
            "breaks": list(breaks),
            "tests": [
                _ran(test)
                | {"valid": test.valid, "reason": test.reason or "", "stated_correctly": test.stated_correctly}
                for test in suite.tests
            ],
        }
        for suite, reward, part, breaks in zip(
            judged.game.suites, outcome.suite_rewards[index], outcome.suite_parts[index], every, strict=True
        )
    ]
    return {
        "step": step,
        "problem_id": pid,
        "candidate_index": index,
        "completion": clean(judged.candidate.completion),
        "code": clean(judged.candidate.code),
        "loaded": judged.candidate.loaded,
        "load_detail": clean(judged.candidate.load_detail),
        "reward": outcome.code_rewards[index],
        "selected": index in outcome.selected,
        "shown": clean(judged.shown) if judged.shown is not None else None,
        "book": [_ran(test) for test in judged.game.book],
        "own": [_ran(test) for test in judged.game.own],
        "suites": suites,
    }


def _ran(test: JudgedTest) -> dict[str, Any]:
    return {
        "test": clean(test.source),
        "verdict": test.verdict.value if test.verdict is not None else None,
        "expected": clean(test.expected),
        "got": clean(test.got),
    }


def clean(text: str) -> str:
    """Parquet keeps UTF-8 only; a lone surrogate, which models do write, is stored as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True)
class RecordedTest:
    """One test on one candidate: the verdict, the reference's answer and the candidate's, both as text."""

    test: str
    verdict: str
    expected: str
    got: str

    @property
    def failing(self) -> bool:
        """Whether the candidate ran the test and did not pass it."""
        return self.verdict in FAILING


@dataclass(frozen=True)
class CandidateRecord:
    """One row of a rollout file: a candidate, how it loaded, and every test that ran on it, book first.

    breaks: per suite, the ids of the pool's members that it breaks.
    """

    step: int
    index: int
    code: str
    loaded: bool | None
    load_detail: str
    reward: float | None
    tests: tuple[RecordedTest, ...]
    breaks: tuple[tuple[str, ...], ...] = ()

    def recorded(self, test: str) -> RecordedTest | None:
        """What is recorded of `test`: by the same text, else by the same call; None when it did not run."""
        call = call_of(test)
        same_text = (own for own in self.tests if own.test == test)
        same_call = (own for own in self.tests if call_of(own.test) == call)
        return next(same_text, None) or next(same_call, None)


def call_of(test: str) -> str:
    """The normalised call of a test, given as `assert f(x) == y` or `f(x)`; the text itself when it does not parse."""
    tree = parse(test.strip())
    match tree.body if tree is not None else []:
        case [ast.Assert(ast.Compare(call)) | ast.Assert(call) | ast.Expr(ast.Compare(call)) | ast.Expr(call)]:
            return ast.unparse(call)
    return test.strip()


def rollout_files(folder: Path) -> dict[int, Path]:
    """The rollout files of a run by step, newest first."""
    files = {int(path.stem.removeprefix("step-")): path for path in folder.glob("step-*.parquet")}
    return dict(sorted(files.items(), reverse=True))


def whole_rollouts(file: Path) -> list[dict[str, Any]]:
    """All rows of a rollout file, with the columns that it has. Raises UserError when it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(file.absolute()).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{file}: the rollouts cannot be read: {first_line(error)}", hint="remove it") from None
    return rows


def candidates_of(file: Path, problem_id: str) -> list[CandidateRecord]:
    """The candidates of one problem in one rollout file, by index; empty when it was not sampled there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(file.absolute(), columns=_COLUMNS, filters=[("problem_id", "=", problem_id)]).to_pylist()
        return sorted((_candidate(row) for row in rows), key=lambda candidate: candidate.index)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{file}: the rollouts cannot be read: {first_line(error)}", hint="remove the file, or restore it"
        ) from None


def sampled_texts(folder: Path, role: str, ids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """What a run's policy sampled for these problems, the newest steps first: (program that it was shown, text), by
    problem; the Code LLM is shown none.

    Raises:
        UserError: a file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, list[tuple[str, str]]] = {}
    columns = ["problem_id", "completion", "code", "shown", "suites"]
    for file in rollout_files(folder).values():
        try:
            rows = pq.read_table(
                file.absolute(), columns=columns, filters=[("problem_id", "in", list(ids))]
            ).to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UserError(f"{file}: the rollouts cannot be read: {first_line(error)}", hint="remove it") from None
        for row in rows:
            suites = [(row["shown"] or row["code"], suite["text"]) for suite in row["suites"] or ()]
            found.setdefault(row["problem_id"], []).extend([("", row["completion"])] if role == "code" else suites)
    return found


def some_rollouts(file: Path, count: int = 8, longest: int = 4000) -> list[dict[str, Any]]:
    """For a table: the first candidate of the first `count` problems of a step, each with its first suite, texts cut at
    `longest` characters; none where the step has no file, or one that cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = ["problem_id", "reward", "code", "suites"]
    try:
        found = pq.read_table(file, columns=columns, filters=[("candidate_index", "=", 0)]).slice(0, count).to_pylist()
    except (OSError, pa.ArrowException):
        return []
    rows = []
    for row in found:
        suite = (row["suites"] or [{}])[0]
        texts = {"code": row["code"], "suite": suite.get("text")}
        rows.append(
            {
                "problem": row["problem_id"],
                "reward": row["reward"],
                **{key: (text or "")[:longest] for key, text in texts.items()},
                **{f"suite {key}": suite.get(key) for key in ("reward", "validity")},
            }
        )
    return rows


def history(folder: Path, problem_id: str, *, since: int = 0) -> Iterator[list[CandidateRecord]]:
    """The problem's candidates step by step, newest first, down to step `since`; steps without it are skipped."""
    for step, file in rollout_files(folder).items():
        if step < since:
            return
        if found := candidates_of(file, problem_id):
            yield found


def _candidate(row: dict[str, Any]) -> CandidateRecord:
    entries = [*(row["book"] or ()), *(test for suite in row["suites"] or () for test in suite["tests"] or ())]
    return CandidateRecord(
        step=row["step"],
        index=row["candidate_index"],
        code=row["code"] or "",
        loaded=row["loaded"],
        load_detail=row["load_detail"] or "",
        reward=row["reward"],
        # Without a verdict it did not run: an invalid test, or a candidate that does not load.
        tests=tuple(_recorded(entry) for entry in entries if entry["verdict"]),
        breaks=tuple(tuple(suite.get("breaks") or ()) for suite in row["suites"] or ()),
    )


def _recorded(entry: dict[str, Any]) -> RecordedTest:
    return RecordedTest(entry["test"], entry["verdict"], entry["expected"] or "", entry["got"] or "")
