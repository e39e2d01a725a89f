"""Runs calls, whose answers are known, on many mutants: does any call give something else?

For suites that the judge has read: their calls are plain, their answers come from the function itself and are compared in
the parent. A mutant is one fork that answers its calls in order, each on a module loaded afresh, and is over with the
first that raises, so a mutant that loops costs its time limit once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from codea1_cli.evals.test_generation.execution import MutantLimits, jail_call, jail_program
from codea1_cli.evals.test_generation.mutants import Mutant
from codea1_cli.judging.compare import same
from codea1_cli.judging.judge import Expected, Judge
from codea1_cli.sandbox.verdicts import Answer, AnswerKind

_CHUNK_CALLS, _CHUNK_CHARS = 16, 100_000  # one answer holds a chunk's values, and answers are bounded
_MANY = 1_000_000_000


class CallRunner:
    """The calls of one function. `expected` holds the function's own answer to each, all valid. Thread-safe."""

    def __init__(
        self, judge: Judge, program: str, expected: Mapping[str, Expected], limits: MutantLimits | None = None
    ) -> None:
        self.judge, self.program, self.expected = judge, program, expected
        self.mutant_limits = limits or MutantLimits()

    def exposed(self, mutants: Sequence[Mutant], calls: Sequence[str]) -> list[bool] | None:
        """For each mutant whether any call fails on it (it gives another value, raises, loops, ends); None: the sandbox
        failed. Without calls nothing is exposed; a mutant without source fails every call."""
        found = [bool(calls) and mutant.source is None for mutant in mutants]
        for chunk in self._chunks(calls):
            alive = [at for at, dead in enumerate(found) if not dead]
            if not alive:
                break
            failed = self._failed([mutants[at].source or "" for at in alive], chunk)
            if failed is None:
                return None
            for at, dead in zip(alive, failed, strict=True):
                found[at] = dead
        return found

    def _failed(self, sources: Sequence[str], calls: Sequence[str]) -> list[bool] | None:
        began = time.monotonic()
        own = self._answers([self.program], calls, self.judge.limits.time_s)[0]
        seconds = self.mutant_limits.seconds(time.monotonic() - began)
        if own.kind is AnswerKind.UNSCORED:
            return None
        answers = self._answers(sources, calls, seconds)
        if any(answer.kind is AnswerKind.UNSCORED for answer in answers):
            return None
        return [not self._right(answer, calls) for answer in answers]

    def _answers(self, sources: Sequence[str], calls: Sequence[str], seconds: float) -> list[Answer]:
        jobs = [jail_call("answers", source, list(calls)) for source in sources]
        limits = replace(self.judge.limits, time_s=seconds, patience=_MANY)
        return self.judge.sandbox.run(jail_program(), "answers", jobs, limits).answers

    def _right(self, answer: Answer, calls: Sequence[str]) -> bool:
        values = answer.value.data if answer.value is not None else None
        if not isinstance(values, list) or len(values) != len(calls):
            return False
        pairs = zip(values, calls, strict=True)
        return all(same(value, self.expected[call].value, self.judge.tolerance) for value, call in pairs)

    def _chunks(self, calls: Sequence[str]) -> list[list[str]]:
        chunks: list[list[str]] = []
        room = 0
        for call in calls:
            size = len(self.expected[call].wire) + 1
            if not chunks or len(chunks[-1]) == _CHUNK_CALLS or size > room:
                chunks.append([])
                room = _CHUNK_CHARS
            chunks[-1].append(call)
            room -= size
        return chunks
