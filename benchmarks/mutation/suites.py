"""The functions and tests that the benchmark and the parity check run: a fixed choice from the benchmark's 200."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path

from codea1_cli.evals.test_generation import Mutant, make_mutants
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


# What a suite may hold instead of a bare assert; {0} is the assert, {1} its expression.
FORMS = (
    "try:\n    {0}\nexcept ZeroDivisionError:\n    raise AssertionError('divided')",
    "def test_it():\n    for _ in range(2):\n        {0}",
    "import contextlib\nwith contextlib.suppress(KeyError):\n    {0}",
    "class TestIt:\n    def setup_method(self):\n        self.times = [1]\n\n    def test_it(self):\n        for _ in self.times:\n            {0}",
    "import unittest\n\n\nclass UnitTest(unittest.TestCase):\n    def test_it(self):\n        self.assertTrue({1})",
    "for _ in range(1):\n    if True:\n        {0}",
    "def test_it():\n    try:\n        {0}\n    except (KeyError, IndexError):\n        return",
)


def in_forms(cases: list[Case]) -> list[Case]:
    """The cases with each assert in the next of the forms."""
    turn = itertools.cycle(FORMS)
    return [
        replace(case, tests=[next(turn).format(test, test.removeprefix("assert ")) for test in case.tests])
        for case in cases
    ]


def test_module(entry_point: str, tests: list[str]) -> str:
    """A file for pytest: definitions as they stand, every other test in a function of its own."""
    lines = ["from mod import *", f"from mod import {entry_point}", ""]
    for number, test in enumerate(tests):
        defines = isinstance(ast.parse(test).body[-1], ast.FunctionDef | ast.ClassDef)
        lines += [test] if defines else [f"def test_{number}():", *("    " + line for line in test.splitlines())]
        lines.append("")
    return "\n".join(lines)


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
