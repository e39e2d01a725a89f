"""The honest protocol's figures: suites of K tests as in training, judged as in training, scored on every function.

The judge compares values in the parent, so a suite can only ask calls and state answers. A suite's right tests are those
a user could keep: the call is answered, it is no repetition, and the answer stated is the function's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from codea1_cli.evals.test_generation.calls import CallRunner
from codea1_cli.evals.test_generation.coverage import covered
from codea1_cli.evals.test_generation.execution import TestRunner
from codea1_cli.evals.test_generation.functions import Function
from codea1_cli.evals.test_generation.mutants import Mutant, make_mutants
from codea1_cli.extract import parse_suite
from codea1_cli.extract.source import parse
from codea1_cli.game.judged_tests import JudgedTest, judged_suite
from codea1_cli.game.rewards import SuiteCounts, suite_reward
from codea1_cli.game.rules import Game
from codea1_cli.judging.judge import Judge

PROTOCOL = "one-shot"
WRONG, _TRIED = 8, 32  # wrong candidates a function, and mutants tried to find them


@dataclass(frozen=True)
class OneShotRow:
    """One function and its suite.

    `asserts` read of at most 2K; `valid` calls that the function answers, none twice; `right` of those with the right
    answer; `validity` as the game has it. Of `mutants`, `killed` by the right tests and `killed_by_calls` by all valid
    calls with the function's own answers, both among the first K valid ones. `wrong`: mutants (at most 8) that the calls
    which came with the function expose, `exposed` those that the suite's calls expose too.
    """

    id: str
    asserts: int = 0
    valid: int = 0
    right: int = 0
    validity: float = 0.0
    mutants: int = 0
    killed: int = 0
    killed_by_calls: int = 0
    wrong: int = 0
    exposed: int = 0
    lines: int = 0
    all_lines: int = 0
    branches: int = 0
    all_branches: int = 0
    unscored: bool = False
    invalid: dict[str, int] = field(default_factory=dict)
    tests: list[str] = field(default_factory=list)


def score(judge: Judge, runner: TestRunner, function: Function, text: str, k: int) -> OneShotRow:
    """Judges one suite. `judge` and `runner` share a sandbox."""
    name, program = function.name, function.program
    rules = Game(tests_per_suite=k)
    statements = parse_suite(text, name, cap=rules.cap)
    own = [part.call for test in function.calls for part in parse_suite(test, name) if part.invalid is None]
    own_calls = list(dict.fromkeys(call for call in own if call is not None))
    asked = [part.call for part in statements if part.invalid is None and part.call is not None]
    expected = judge.expected(function.judged, name, [*asked, *own_calls])
    suite = judged_suite(rules, text, statements, expected, {}, judge.equal)
    if any(known.reason == "unscored" for known in expected.values()):
        return OneShotRow(function.id, unscored=True)
    valid = [test for test in suite.tests if test.valid]
    first = valid[:k]
    calls = [test.call for test in first if test.call is not None]
    right = {test.call for test in first if test.stated_correctly and test.call is not None}
    mutants = make_mutants(program)
    runner_of_calls = CallRunner(judge, program, expected)
    by_right = runner_of_calls.exposed(mutants, sorted(right, key=calls.index))
    by_rest = (
        None
        if by_right is None
        else runner_of_calls.exposed(
            [mutant for mutant, dead in zip(mutants, by_right, strict=True) if not dead],
            [call for call in calls if call not in right],
        )
    )
    wrong = known_wrong(runner_of_calls, mutants, [call for call in own_calls if expected[call].valid])
    arcs = runner.trace_calls(program, name, calls)
    if by_right is None or by_rest is None or wrong is None or arcs is None:
        return OneShotRow(function.id, unscored=True)
    rest = iter(by_rest)
    killed = [dead or next(rest) for dead in by_right]
    return OneShotRow(
        function.id,
        asserts=len(statements),
        valid=len(valid),
        right=sum(bool(test.stated_correctly) for test in valid),
        validity=_validity(suite.tests, k),
        mutants=len(mutants),
        killed=sum(by_right),
        killed_by_calls=sum(killed),
        wrong=len(wrong),
        exposed=sum(killed[at] for at in wrong),
        **asdict(covered(program, arcs)),
        invalid=_reasons(suite.tests),
        tests=[test.source for test in first],
    )


def _validity(tests: Sequence[JudgedTest], k: int) -> float:
    valid = sum(test.valid for test in tests)
    invalid = len(tests) - valid + sum(test.stated_correctly is False for test in tests)
    return suite_reward(SuiteCounts(valid, invalid, 0, 0), k=k, alpha=1.0, loads=True).validity


def _reasons(tests: Sequence[JudgedTest]) -> dict[str, int]:
    found: dict[str, int] = {}
    for test in tests:
        if not test.valid:
            reason = (test.reason or "").partition(":")[0]
            found[reason] = found.get(reason, 0) + 1
    return found


def known_wrong(runner: CallRunner, mutants: Sequence[Mutant], calls: Sequence[str]) -> list[int] | None:
    """Up to 8 mutants that `calls` expose, as indices: wrong candidates, whatever suite is scored. None: the sandbox
    failed. They are looked for among at most 32, taken in the order of a hash, so that no kind of operator prevails."""
    names = [f"{mutant.operator} {mutant.occurrence}".encode() for mutant in mutants]
    parsing = [at for at, mutant in enumerate(mutants) if mutant.source is not None and parse(mutant.source)]
    order = sorted(parsing, key=lambda at: hashlib.sha256(names[at]).digest())[:_TRIED]
    found: list[int] = []
    for at in range(0, len(order) if calls else 0, WRONG):
        part = order[at : at + WRONG]
        exposed = runner.exposed([mutants[index] for index in part], calls)
        if exposed is None:
            return None
        found += [index for index, wrong in zip(part, exposed, strict=True) if wrong]
        if len(found) >= WRONG:
            break
    return found[:WRONG]


def figures(rows: Sequence[OneShotRow], k: int) -> dict[str, Any]:
    """Means over all functions, in percent unless said otherwise; None where there is nothing to take a mean of.

    `validity` of the game; `valid_tests` and `right_tests` over the K asked; `stated_correctly` right over valid, in
    sum; `distinct_calls` a suite, a number. `mutation` by right tests, `mutation_by_calls` by all valid calls;
    `kill_rate` the share of wrong candidates exposed, over the `kill_rate_functions` that have any.
    """
    scored = [row for row in rows if not row.unscored]
    found: dict[str, Any] = {"protocol": PROTOCOL, "functions": len(scored), "unscored": len(rows) - len(scored)}
    parts = [values(asdict(row), k) for row in scored]
    names = {
        "validity": "validity",
        "valid_tests": "valid tests",
        "right_tests": "right tests",
        "mutation": "mutation",
        "mutation_by_calls": "mutation by calls",
        "kill_rate": "kill rate",
    }
    for figure, value in names.items():
        there = [part[value] for part in parts if part[value] is not None]
        found[figure] = 100.0 * sum(v for v in there if v is not None) / len(there) if there else None
    valid = sum(row.valid for row in scored)
    found["stated_correctly"] = 100.0 * sum(row.right for row in scored) / valid if valid else None
    found["distinct_calls"] = valid / len(scored) if scored else None
    found["mutation_functions"] = sum(bool(row.mutants) for row in scored)
    found["kill_rate_functions"] = sum(bool(row.wrong) for row in scored)
    for figure, part, whole in (
        ("line_coverage", sum(r.lines for r in scored), sum(r.all_lines for r in scored)),
        ("branch_coverage", sum(r.branches for r in scored), sum(r.all_branches for r in scored)),
    ):
        found[figure] = 100.0 * part / whole if whole else None
    found["mutants"] = sum(row.mutants for row in scored)
    invalid: dict[str, int] = {}
    for row in scored:
        for reason, count in row.invalid.items():
            invalid[reason] = invalid.get(reason, 0) + count
    found["invalid"] = dict(sorted(invalid.items()))
    return found


def values(row: Mapping[str, Any], k: int) -> dict[str, float | None]:
    """One function's share of each figure, for intervals and comparisons; None where it has none."""
    return {
        "validity": row["validity"],
        "valid tests": min(row["valid"], k) / k,
        "right tests": min(row["right"], k) / k,
        "mutation": row["killed"] / row["mutants"] if row["mutants"] else None,
        "mutation by calls": row["killed_by_calls"] / row["mutants"] if row["mutants"] else None,
        "kill rate": row["exposed"] / row["wrong"] if row["wrong"] else None,
        "line coverage": row["lines"] / row["all_lines"] if row["all_lines"] else None,
        "branch coverage": row["branches"] / row["all_branches"] if row["all_branches"] else None,
    }
