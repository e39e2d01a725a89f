"""One suite under the one-shot protocol: judged as in training, its calls run on the function's mutants.

The judge has read the suite: its calls are plain, their answers come from the function itself and are compared in the
parent. A mutant is one fork that answers its calls in order, each on a module loaded afresh, and is over with the first
that raises, so a mutant that loops costs its time limit once.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from codea1_cli.evals.test_generation import Function, Mutant, make_mutants
from codea1_cli.evals.test_generation.execution import MutantLimits, TestRunner, coverage_of, jail_call, jail_program
from codea1_cli.evals.test_generation.figures import FunctionScore
from codea1_cli.extract import parse_suite
from codea1_cli.extract.source import parse
from codea1_cli.game.judged_tests import JudgedTest, judged_suite
from codea1_cli.game.rewards import SuiteCounts, suite_reward
from codea1_cli.game.rules import Game
from codea1_cli.judging.compare import same
from codea1_cli.judging.judge import Expected, Judge
from codea1_cli.judging.references import HASH_SEEDS, VARIES
from codea1_cli.sandbox.verdicts import Answer, AnswerKind

WRONG, _TRIED = 8, 32  # wrong candidates per function, and mutants tried to find them
_CHUNK_CALLS, _CHUNK_CHARS = 16, 100_000  # one answer holds a chunk's values, and answers are bounded
_MANY = 1_000_000_000
_MORE_SEEDS = {seed: threading.Lock() for seed in range(len(HASH_SEEDS), 8)}  # one interpreter of each is enough


class CallRunner:
    """The calls of one function. `expected` holds the function's own answer to each, all valid; `mutant_limits` says
    how long a mutant may take for some of them. Thread-safe."""

    def __init__(
        self,
        judge: Judge,
        program: str,
        expected: Mapping[str, Expected],
        mutant_limits: MutantLimits = MutantLimits(),
    ) -> None:
        self.judge, self.program, self.expected, self.mutant_limits = judge, program, expected, mutant_limits

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

    def kills(self, mutants: Sequence[Mutant], calls: Sequence[str]) -> list[set[str]] | None:
        """For each mutant the calls that fail on it, as `exposed`; None: the sandbox failed.

        A mutant answers all its calls in one fork. Of one that loops or ends its process the calls are run one by one,
        up to the first that is late, which is the last that counts."""
        found: list[set[str]] = [set(calls) if mutant.source is None else set() for mutant in mutants]
        for chunk in self._chunks(calls):
            began = time.monotonic()
            sources = [self.program, *(mutant.source or "" for mutant in mutants)]
            self._answers(sources[:1], chunk, self.judge.limits.time_s, "each")
            seconds = self.mutant_limits.seconds(time.monotonic() - began)
            answers = self._answers(sources[1:], chunk, seconds, "each")
            for mutant, answer, failing in zip(mutants, answers, found, strict=True):
                if answer.kind is AnswerKind.UNSCORED:
                    return None
                if mutant.source is None:
                    continue
                given = answer.value.data if answer.value is not None else None
                if answer.kind is AnswerKind.RAISED:
                    failing.update(chunk)
                elif isinstance(given, list) and len(given) == len(chunk):
                    failing.update(
                        call for call, value in zip(chunk, given, strict=True) if not self._same(value, call)
                    )
                else:
                    jobs = [jail_call("answers", mutant.source, [call]) for call in chunk]
                    limits = replace(self.judge.limits, time_s=seconds, stop_after=1)
                    alone = self.judge.sandbox.run(jail_program(), "answers", jobs, limits).answers
                    if any(one.kind is AnswerKind.UNSCORED for one in alone):
                        return None
                    failing.update(
                        call for call, one in zip(chunk, alone, strict=False) if not self._right(one, [call])
                    )
        return found

    def broken(self, mutants: Sequence[Mutant], places: Iterable[int]) -> list[int]:
        """Those of the places at which the mutant does not load: not the call is what fails on it."""
        asked = [at for at in sorted(places) if mutants[at].source is not None]
        seconds = self.mutant_limits.seconds(0.0)
        answers = self._answers([mutants[at].source or "" for at in asked], ["None"], seconds) if asked else []
        lost = {at for at, answer in zip(asked, answers, strict=True) if answer.kind is not AnswerKind.VALUE}
        return [at for at in sorted(places) if mutants[at].source is None or at in lost]

    def depends(self, calls: Sequence[str]) -> tuple[str, dict[str, str]] | None:
        """Why the function's values cannot be tested, empty where they can: one call's is another by chance, at another
        time, elsewhere, after other calls or in another interpreter; and by call what it does besides, as `it writes
        files`. None: the sandbox failed.

        Of a function that one call shows to depend on such a thing no call is sure: they may come out alike once."""
        effects: dict[str, str] = {}
        for parts, seeds in ([[call] for call in calls], 8), ([list(calls)], 1):  # each by itself, then all together
            parts = [[call for call in part if call not in effects] for part in parts]
            found = self._depends([part for part in parts if part], seeds)
            for call, what, effect in found or ():
                if what:
                    return f"its value depends on {what}: {call} gives several", {}
                effects |= {call: effect} if effect else {}
            if found is None:
                return None
        varies = self._varies([call for call in calls if call not in effects])
        return (f"its value differs between runs: {varies} gives several" if varies else ""), effects

    def _varies(self, calls: Sequence[str]) -> str:
        """The first call found to have another value in an interpreter of another hash seed, empty for none: two of
        them give the same order of two names half of the time."""
        if unlike := [call for call in calls if self.expected[call].reason == VARIES]:
            return unlike[0]
        seconds = sum(self.expected[call].seconds for call in calls)
        limit = self.judge.limits.time_s + 4 * seconds
        for seed, alone in list(_MORE_SEEDS.items())[: None if seconds < 1 else 1]:
            for chunk in self._chunks(calls):
                with alone:
                    [answer] = self._answers([self.program], chunk, limit, "each", seed)
                given = answer.value.data if answer.value is not None else None
                for call, value in zip(chunk, given if isinstance(given, list) else (), strict=False):
                    if not self._same(value, call):
                        return call
        return ""

    def _depends(self, parts: Sequence[list[str]], seeds: int) -> list[tuple[str, str, str]] | None:
        """Each call, what its value depends on and what it does besides. A part's calls share a process: where that
        is ended they depend on each other. Of the first whose time is over, and those behind it, nothing is known."""
        seconds = [sum(self.expected[call].seconds for call in part) for part in parts]
        seeds = min(seeds, 8 if sum(seconds) < 1 else 3)
        jobs = [jail_call("depends", self.program, part, seeds) for part in parts]
        limit = 2 * self.judge.limits.time_s + 4 * (seeds + 7) * max(seconds, default=0.0)
        limits = replace(self.judge.limits, time_s=limit, stop_after=1)
        answers = self.judge.sandbox.run(jail_program(), "depends", jobs, limits).answers if jobs else []
        if any(answer.kind is AnswerKind.UNSCORED for answer in answers):
            return None
        found = []
        for part, answer in zip(parts, answers, strict=False):
            rows = answer.value.data if answer.value is not None else None
            sound = isinstance(rows, list) and len(rows) == len(part)
            unknown = answer.kind in (AnswerKind.TIMEOUT, AnswerKind.RAISED)  # it does not load by that clock
            pairs = rows if isinstance(rows, list) and sound else [("" if unknown else "earlier calls", "")] * len(part)
            found += [(call, str(what), str(effect)) for call, (what, effect) in zip(part, pairs, strict=True)]
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

    def _answers(
        self, sources: Sequence[str], calls: Sequence[str], seconds: float, name: str = "answers", hash_seed: int = 0
    ) -> list[Answer]:
        jobs = [jail_call(name, source, list(calls)) for source in sources]
        limits = replace(self.judge.limits, time_s=seconds, patience=_MANY)
        return self.judge.sandbox.run(jail_program(), name, jobs, limits, hash_seed).answers

    def _right(self, answer: Answer, calls: Sequence[str]) -> bool:
        values = answer.value.data if answer.value is not None else None
        if not isinstance(values, list) or len(values) != len(calls):
            return False
        return all(self._same([value], call) for value, call in zip(values, calls, strict=True))

    def _same(self, given: object, call: str) -> bool:
        """Whether `given`, a list of one value or of none, is the function's own answer."""
        if not isinstance(given, list) or len(given) != 1:
            return False
        return same(given[0], self.expected[call].value, self.judge.tolerance)

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


def score(judge: Judge, runner: TestRunner, function: Function, text: str, k: int) -> FunctionScore:
    """Judges one suite of which the first `k` tests count; `judge` and `runner` share a sandbox."""
    name, program = function.name, function.program
    rules = Game(tests_per_suite=k)
    statements = parse_suite(text, name, cap=rules.cap)
    own = [part.call for test in function.calls for part in parse_suite(test, name) if part.invalid is None]
    own_calls = list(dict.fromkeys(call for call in own if call is not None))
    asked = [part.call for part in statements if part.invalid is None and part.call is not None]
    expected = judge.expected(function.standalone, name, [*asked, *own_calls], own_calls)
    suite = judged_suite(rules, text, statements, expected, {}, judge.equal)
    if any(known.reason == "unscored" for known in expected.values()):
        return FunctionScore(function.id, unscored=True)
    valid = [test for test in suite.tests if test.valid]
    first = valid[:k]
    calls = [test.call for test in first if test.call is not None]
    right = {test.call for test in first if test.stated_correctly and test.call is not None}
    mutants = make_mutants(program)
    runner_of_calls = CallRunner(judge, program, expected, runner.mutant_limits)
    by_right = runner_of_calls.exposed(mutants, sorted(right, key=calls.index))
    if by_right is None:
        return FunctionScore(function.id, unscored=True)
    alive = [mutant for mutant, dead in zip(mutants, by_right, strict=True) if not dead]
    by_rest = runner_of_calls.exposed(alive, [call for call in calls if call not in right])
    wrong = known_wrong(runner_of_calls, mutants, [call for call in own_calls if expected[call].valid])
    arcs = runner.trace_calls(program, name, calls)
    if by_rest is None or wrong is None or arcs is None:
        return FunctionScore(function.id, unscored=True)
    rest = iter(by_rest)
    killed = [dead or next(rest) for dead in by_right]
    return FunctionScore(
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
        **asdict(coverage_of(program, arcs)),
        invalid=dict(Counter((test.reason or "").partition(":")[0] for test in suite.tests if not test.valid)),
        tests=[test.source for test in first],
    )


def _validity(tests: Sequence[JudgedTest], k: int) -> float:
    valid = sum(test.valid for test in tests)
    invalid = len(tests) - valid + sum(test.stated_correctly is False for test in tests)
    return suite_reward(Game(tests_per_suite=k), SuiteCounts(valid, invalid, 0, 0), loads=True).validity


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
