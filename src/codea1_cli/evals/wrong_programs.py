"""Wrong programs of a problem, its own or mutants of its reference, and the calls that tell them from it."""

from __future__ import annotations

import ast
import hashlib
import random
from collections.abc import Sequence
from typing import Any

from codea1_cli.evals.test_generation import make_mutants
from codea1_cli.extract import parse_suite
from codea1_cli.game.pool import SHOWS_WRONG
from codea1_cli.judging.judge import CandidateResult, Judge, grade_on_tests, own_calls
from codea1_cli.judging.step_judge import OWN_CALLS, StepJudge
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.base import in_order
from codea1_cli.sandbox.verdicts import Verdict

PROGRAMS_TRIED = 24  # per problem: mutation makes hundreds of a long reference


def wrong_programs(problem: Problem) -> list[str]:
    """The wrong programs of `meta.wrong`; none where that field is not a list of texts, since it may be anybody's."""
    wrong = problem.meta.get("wrong")
    return wrong if isinstance(wrong, list) and all(isinstance(source, str) for source in wrong) else []


def programs_to_try(problem: Problem) -> list[str]:
    """The problem's own wrong programs, then mutants of its reference in the order of their hashes, which favours no
    operator and no place; `PROGRAMS_TRIED` at most."""
    mutants = {mutant.source for mutant in make_mutants(problem.reference) if mutant.source is not None}
    by_hash = sorted(mutants, key=lambda source: hashlib.sha256(source.encode()).digest())
    return list(dict.fromkeys([*wrong_programs(problem), *by_hash]))[:PROGRAMS_TRIED]


def near_misses(judge: StepJudge, problem: Problem, limit: int) -> list[str]:
    """Up to `limit` programs that pass at least half of the problem's tests and not all, those that pass most first.

    They are looked for among `programs_to_try`. `tests` and `extra_tests` count, where the reference answers them. Of
    programs that fail the same calls only the first is taken, and none that times out, which might be the machine's
    doing. None are found where no test is a plain call of the function.

    Raises:
        EnvironmentFault: the sandbox failed on all of them.
    """
    tested = problem.model_copy(update={"tests": [*problem.tests, *problem.extra_tests]})
    if not own_calls(tested):
        return []
    programs = programs_to_try(problem)
    grades = grade_on_tests(judge.judge, tested, programs, stop_late=True)
    if programs and all(grade.share is None for grade in grades) and judge.reference_fault(problem) is None:
        raise judge.outage(f"the sandbox failed on {problem.id}")
    found: dict[tuple[str, ...], tuple[float, str]] = {}
    for program, grade in zip(programs, grades, strict=True):
        failed = {call: test.verdict for call, test in grade.verdicts.items() if test.verdict is not Verdict.PASSED}
        if grade.loaded and 0.5 <= (grade.share or 0.0) < 1 and Verdict.TIMEOUT not in failed.values():
            found.setdefault(tuple(failed), (grade.share or 0.0, program))
    nearest = sorted(found.values(), key=lambda item: -item[0])  # stable: equals stay in order
    return [program for _, program in nearest[:limit]]


CALLS = 32  # of a problem's own, at most, that `broken_programs` tells wrong programs by


def broken_programs(
    problem: Problem, judge: Judge, limit: int, least: int, draw: random.Random
) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
    """Up to `limit` of `programs_to_try` that are wrong, with the calls that each fails: those that fail fewest first,
    no two the same, none that runs out of a limit. And tests by call, stated as the reference answers: the problem's
    own calls, and where they are fewer than `least` variations of them."""
    entry = problem.entry_point
    own = own_calls(problem.model_copy(update={"tests": [*problem.tests, *problem.extra_tests]}))[:CALLS]
    calls = list(dict.fromkeys([*own, *varied_calls(own, draw, max(0, least - len(own)))]))
    expected = judge.expected(problem.reference, entry, calls, own[:OWN_CALLS]) if calls else {}
    tests: dict[str, str] = {}
    for call in calls:
        test = f"assert {call} == {expected[call].text}"
        read = parse_suite(test, entry) if expected[call].valid else []
        stated = read[0].stated if read and read[0].call == call else None
        if stated is not None and judge.equal(expected[call].value, stated.value):
            tests[call] = test

    def check(program: str) -> CandidateResult:
        return judge.check(program, entry, list(tests), expected, stop_late=True)

    found: dict[frozenset[str], str] = {}
    untried = programs_to_try(problem) if tests else []
    while untried and len(found) < limit:
        # At least as many more have to be tried as are wanted: none is run in vain, whatever the others turn out to be.
        beside, untried = untried[: limit - len(found)], untried[limit - len(found) :]
        for program, result in in_order(check, beside, min(len(beside), judge.most)):
            verdicts = {call: test.verdict for call, test in result.verdicts.items()}
            failed = frozenset(call for call, verdict in verdicts.items() if verdict is not Verdict.PASSED)
            if result.loaded and failed and all(verdicts[call] in SHOWS_WRONG for call in failed):
                found.setdefault(failed, program)
    return {program: failed for failed, program in sorted(found.items(), key=lambda item: len(item[0]))}, tests


def varied_calls(calls: Sequence[str], draw: random.Random, count: int) -> list[str]:
    """Up to `count` calls like the given ones, an argument of each changed a little; of calls with literals alone."""
    found: dict[str, None] = {}
    for _ in range(4 * count if calls else 0):
        call = ast.parse(draw.choice(calls), mode="eval").body
        if len(found) == count or not isinstance(call, ast.Call) or not call.args:
            break
        place = draw.randrange(len(call.args))
        try:
            value = _varied(ast.literal_eval(call.args[place]), draw)
            call.args[place] = ast.parse(repr(value), mode="eval").body
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        found[ast.unparse(call)] = None
    return [call for call in found if call not in calls]


def _varied(value: Any, draw: random.Random) -> Any:
    """A value of the same type, changed in one place; the same value where there is nothing to change."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice((-2, -1, 1, 2, 7, -value))
    if isinstance(value, float):
        return value + draw.choice((-1.5, -0.5, 0.5, 1.0))
    if isinstance(value, str):
        return draw.choice((value[::-1], value[1:], value[:-1], value + value[:1], value.swapcase()))
    if isinstance(value, list | tuple) and value:
        place = draw.randrange(len(value))
        whole = list(value)
        changed = [_varied(whole[place], draw)]
        change = draw.choice(("shorter", "longer", "turned", "other", "other"))
        if change == "turned":
            return type(value)(reversed(whole))
        changed = {"shorter": [], "longer": [whole[place]] * 2}.get(change, changed)
        return type(value)([*whole[:place], *changed, *whole[place + 1 :]])
    if isinstance(value, dict) and value:
        key = draw.choice(list(value))
        return {**value, key: _varied(value[key], draw)}
    return value
