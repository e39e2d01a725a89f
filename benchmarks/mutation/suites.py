"""The functions and tests that the benchmark and the parity check run: a fixed choice from the benchmark's 200."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from codea1_cli.evals.test_generation.mutants import Mutant, make_mutants
from codea1_cli.extract import parse_suite
from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import Limits, Sandbox


@dataclass(frozen=True)
class Case:
    """A function with its suite, all of whose tests pass, and its mutants."""

    id: str
    code: str
    entry_point: str
    tests: list[str]
    mutants: list[Mutant]


def choose(data: Path, sandbox: Sandbox, count: int, runs: int = 150, most: int = 150) -> list[Case]:
    """The first `count` functions by the hash of their id that have tests and at most `most` mutants, with at most 5
    tests and `runs` pairs of a mutant and a test each. The tests are the calls of the benchmark's own tests with the
    function's answers."""
    judge = Judge(sandbox, limits=Limits(time_s=2.0))
    rows = json.loads(data.read_text(encoding="utf-8"))
    rows.sort(key=lambda row: hashlib.sha256(row["task_id"].encode()).hexdigest())
    cases: list[Case] = []
    for row in rows:
        code, entry = row["code"], row["func_name"]
        calls = [s.call for t in row["test_list"] for s in parse_suite(t, entry) if s.call and s.invalid is None]
        answers = judge.expected(code, entry, calls)
        tests = [f"assert {call} == {known.text}" for call, known in answers.items() if known.valid]
        tests = [test for test in tests if _restates(test, entry, answers, judge)]
        mutants = make_mutants(code)
        if not tests or not mutants or len(mutants) > most:
            continue
        cases.append(Case(row["task_id"], code, entry, tests[: min(5, runs // len(mutants))], mutants))
        if len(cases) == count:
            break
    return cases


def _restates(test: str, entry: str, answers, judge: Judge) -> bool:
    """Whether the answer's text is source of the very value."""
    statement = parse_suite(test, entry)[0]
    known = answers.get(statement.call)
    return known is not None and statement.stated is not None and judge.equal(known.value, statement.stated.value)
