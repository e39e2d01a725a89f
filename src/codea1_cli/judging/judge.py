"""Compares what candidates answer with what the reference answers; all comparing happens here, in the parent.

Also a problem's own tests: what they expect, and how programs do on them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from codea1_cli.extract import AssertStatement, parse_suite
from codea1_cli.extract.pytests import convert_tests
from codea1_cli.extract.source import imports, parse
from codea1_cli.judging.compare import same
from codea1_cli.judging.references import NEED_FACTOR, ReferenceCache, References, call_limit
from codea1_cli.sandbox.base import Limits, ProgramRun, Sandbox, at_most
from codea1_cli.sandbox.verdicts import OUT_OF_TURN, Answer, AnswerKind, Expected, Value, Verdict, verdict_of

if TYPE_CHECKING:  # a judge needs the standard library alone
    from codea1_cli.problems.problem import Problem

ENOUGH_S = 0.15
"""Seconds after which a program's further calls are answered side by side."""

LOAD_CPU_S = 1.0
"""Processor time that loading may take where a candidate imports the standard library alone, if ten times what the
reference's took is not more: small models like to call their function below it, and that may never end."""

__all__ = ["CandidateResult", "Expected", "Judge", "ReferenceCache", "TestVerdict"]


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """One test's verdict, and what the candidate gave, to show."""

    __test__ = False
    verdict: Verdict
    got: str = ""


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """One candidate's verdicts by call.

    `loaded` is None when the sandbox failed, False when the program did not load, for the reason in `load_verdict`
    (which its tests have too) and `load_detail`.
    """

    loaded: bool | None
    load_detail: str = ""
    verdicts: dict[str, TestVerdict] = field(default_factory=dict)
    load_verdict: Verdict | None = None

    @property
    def given(self) -> dict[str, tuple[Verdict, str]]:
        """By call, the verdict and what the candidate gave."""
        return {call: (test.verdict, test.got) for call, test in self.verdicts.items()}


class Programs:
    """Has programs answer calls, those of a slow one side by side. Thread-safe; `run` blocks."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox, self.most = sandbox, at_most(sandbox)
        self._parts = min(self.most, getattr(sandbox, "requests", self.most))
        self._threads = ThreadPoolExecutor(self.most, thread_name_prefix="program")

    def run(
        self, program: str, entry_point: str, calls: list[str], limits: Limits, patience: int, seed: int = 0
    ) -> ProgramRun:
        """The answers. A call may take `limits`, and an eighth of them once `patience` were out of time.

        An eighth is enough for most. So one process answers with that while it is quick, then several at once; and a
        call that it was too little for begins again, with all of the limits, as soon as that is known.
        """

        def ask(calls: list[str], limits: Limits) -> ProgramRun:
            return self.sandbox.run(program, entry_point, calls, limits, seed)

        by_itself = self.most == 1 or len(calls) == 1
        hurried, full = replace(limits, patience=0), replace(limits, patience=patience)
        run = ask(calls, full if by_itself else replace(hurried, stop_after=1, enough_s=ENOUGH_S))
        if by_itself or not run.loaded:
            return run
        known, whole = dict(enumerate(run.answers)), dict[int, Answer]()  # by the calls' places
        asked: dict[Future[ProgramRun], tuple[Sequence[int], dict[int, Answer]]] = {}

        def begin(places: Sequence[int], limits: Limits, answers: dict[int, Answer]) -> None:
            asked[self._threads.submit(ask, [calls[place] for place in places], limits)] = places, answers

        slow = _slow(known, whole, patience)
        for place in slow:
            begin([place], full, whole)
        size = math.ceil((len(calls) - len(known)) / self._parts) or 1
        job = (full, whole) if size == 1 and patience >= len(calls) else (hurried, known)
        for start in range(len(known), len(calls), size):
            begin(range(len(calls))[start : start + size], *job)
        try:
            while asked:
                for future in wait(asked, return_when=FIRST_COMPLETED).done:
                    places, answers = asked.pop(future)
                    answers.update(zip(places, future.result().answers, strict=True))
                begun, slow = len(slow), _slow(whole | known, whole, patience)
                for place in slow[begun:]:
                    if place not in whole:
                        begin([place], full, whole)
        finally:
            for future in asked:
                future.cancel()
        run.answers = [(known | whole)[place] for place in range(len(calls))]
        for place, answer in enumerate(run.answers):
            # Ends the program's run, whoever answers the calls after it.
            if answer.kind is AnswerKind.CRASHED and answer.detail.startswith(OUT_OF_TURN):
                run.answers[place:] = [answer] * (len(calls) - place)
                break
        return run


def _slow(hurried: Mapping[int, Answer], whole: Mapping[int, Answer], patience: int) -> list[int]:
    """The calls that an eighth of the limits was too little for, as far as is known, up to the last that is out of time
    with `patience`; one that has not ended in `whole` counts as such."""
    found, place = list[int](), 0
    while patience and place in hurried:
        if hurried[place].kind is AnswerKind.TIMEOUT:
            found.append(place)
            patience -= place not in whole or whole[place].kind is AnswerKind.TIMEOUT
        place += 1
    return found


class Judge:
    """The one judge of training and evaluation. Thread-safe; every method blocks.

    tolerance: floats differ only beyond it, absolutely and relatively. cache: where the reference's answers are kept.
    `limits.time_s` bounds a call by the clock; what the reference needs bounds its processor time (`call_limit`).
    """

    def __init__(
        self, sandbox: Sandbox, *, limits: Limits, tolerance: float = 1e-6, cache: ReferenceCache | None = None
    ) -> None:
        self.sandbox, self.programs = sandbox, Programs(sandbox)
        self.most = self.programs.most
        self.limits, self.tolerance = limits, tolerance
        self.cache = cache if cache is not None else ReferenceCache()
        self.references = References(self.programs.run, limits, tolerance, self.cache)

    def loads(self, program: str, entry_point: str) -> bool | None:
        """Whether a program loads and defines its entry point; None when the sandbox failed."""
        return self.sandbox.run(program, entry_point, [], self.limits).loaded

    def expected(
        self, reference: str, entry_point: str, calls: Sequence[str], own: Iterable[str] = ()
    ) -> dict[str, Expected]:
        """The reference's answer to each distinct call; see `References.answers`."""
        return self.references.answers(reference, entry_point, calls, own)

    def may_be_late(self, program: str, expected: Mapping[str, Expected]) -> bool:
        """Whether a program is likely to run out of time: it may loop for ever, or the reference itself is slow."""
        slowest = max((answer.seconds for answer in expected.values() if answer.valid), default=0.0)
        return "while" in program or NEED_FACTOR * slowest > 2 * self.references.least_s

    def check(
        self,
        candidate: str,
        entry_point: str,
        calls: Sequence[str],
        expected: Mapping[str, Expected],
        stop_late: bool = False,
        late: int = 0,
    ) -> CandidateResult:
        """Runs a candidate on the distinct calls and judges each against `expected`.

        A call whose expected answer is not valid is not run and has no verdict; nor has one after the first that is out
        of time, with `stop_late`. `late`: how many other calls of the candidate have run out of time before.
        """
        distinct = [call for call in dict.fromkeys(calls) if call in expected and expected[call].valid]
        # Answers that no reference gave have no seconds.
        needed = max((getattr(expected[call], "seconds", self.limits.time_s) for call in distinct), default=0.0)
        cpu_s = call_limit(self.limits.time_s, needed, 2 * self.references.least_s)
        loading = max((getattr(expected[call], "load_seconds", math.inf) for call in distinct), default=0.0)
        load_cpu_s = max(LOAD_CPU_S, NEED_FACTOR * loading) if _standard(candidate) else math.inf
        limits = replace(self.limits, cpu_s=cpu_s, load_cpu_s=load_cpu_s)
        if stop_late:
            run = self.sandbox.run(candidate, entry_point, distinct, replace(limits, stop_after=1))
        else:
            patience = max(self.limits.patience - late, 0)
            run = self.programs.run(candidate, entry_point, distinct, limits, patience)
        return self._judge(run, distinct, expected)

    def _judge(self, run: ProgramRun, calls: list[str], expected: Mapping[str, Expected]) -> CandidateResult:
        verdicts = {}
        for call, answer in zip(calls, run.answers, strict=False):
            wanted = expected[call]
            if answer.value is not None and answer.value.wire and answer.value.wire == getattr(wanted, "wire", ""):
                verdicts[call] = TestVerdict(Verdict.PASSED, wanted.text)  # most answers: nothing to rebuild
                continue
            equal = answer.value is not None and same(answer.value.data, wanted.value, self.tolerance)
            verdicts[call] = TestVerdict(verdict_of(answer, equal), answer.text)
        fault = Verdict.UNSCORED if run.loaded is None else None
        if run.loaded is False:
            fault = run.load_kind.verdict if run.load_kind is not None else Verdict.LOAD_ERROR
        return CandidateResult(run.loaded, run.load_detail, verdicts, fault)

    def equal(self, value: object, stated: object) -> bool:
        """Whether an answer that a test states is the reference's value (an array may be stated as nested lists)."""
        plain = [part.data if isinstance(part, Value) else part for part in (value, stated)]
        return same(plain[0], plain[1], self.tolerance, arrays_as_lists=True)


@lru_cache(maxsize=4096)
def _standard(program: str) -> bool:
    """Whether a program imports nothing but the standard library."""
    tree = parse(program)
    return tree is None or imports(tree) <= sys.stdlib_module_names - {"importlib"}


@dataclass(frozen=True, slots=True)
class Grade:
    """One program on a problem's own tests.

    loaded: None when nothing is known of it. share: of the tests, how many it passes, from 0 to 1; None is unscored.
    verdicts: by test; an assert is named by its call.
    """

    loaded: bool | None
    share: float | None
    verdicts: Mapping[str, TestVerdict] = field(default_factory=dict)

    @property
    def passed(self) -> bool | None:
        """Whether it passes every test; None is unscored."""
        return None if self.share is None else self.share == 1.0


def grade_on_tests(judge: Judge, problem: Problem, programs: Sequence[str], stop_late: bool = False) -> list[Grade]:
    """Runs each program on the problem's own tests, identical programs once; one grade per program, in order.

    An empty program passes no test. All grades are unscored when no test has an answer, or the sandbox failed on the
    reference; one is when the sandbox failed on its program. stop_late: a program is run no further once a call of it
    is out of time, and the calls after that are not passed.
    """
    entry = problem.entry_point
    expected = own_answers(judge, problem)
    calls = [call for call, answer in expected.items() if answer.valid]
    if not calls or any(answer.reason == "unscored" for answer in expected.values()):
        return [Grade(None, None)] * len(programs)
    grades = {"": Grade(False, 0.0)}
    for program in programs:
        if program not in grades:
            result = judge.check(program, entry, calls, expected, stop_late)
            found = [test.verdict for test in result.verdicts.values()]
            unscored = result.loaded is None or Verdict.UNSCORED in found
            share = None if unscored else found.count(Verdict.PASSED) / len(calls)
            grades[program] = Grade(result.loaded, share, result.verdicts)
    return [grades[program] for program in programs]


def own_tests(problem: Problem) -> tuple[AssertStatement, ...]:
    """The problem's own tests: its `tests`, or where it has none those of its `test_code`."""
    return _own_tests(tuple(problem.tests), problem.test_code or "", problem.entry_point)


@lru_cache(maxsize=1024)
def _own_tests(tests: tuple[str, ...], test_code: str, entry_point: str) -> tuple[AssertStatement, ...]:
    return tuple(well_formed(tests or convert_tests(test_code, entry_point).tests, entry_point))


def own_calls(problem: Problem) -> list[str]:
    """The distinct calls that the problem's own tests make, in order."""
    return list(dict.fromkeys(str(test.call) for test in own_tests(problem)))


def own_answers(judge: Judge, problem: Problem, most: int | None = None) -> dict[str, Expected]:
    """What the problem's first `most` own calls should give, all of them when None.

    What counts is the reference's answer, not the one that the test states: the two are the same where the problem is
    verified. Without a reference it is the stated one, and a test that states none that can be read is left out.
    """
    if problem.reference:
        own = own_calls(problem)[:most]
        return judge.expected(problem.reference, problem.entry_point, own, own)
    from codea1_cli.game.judged_tests import stated_answers

    stated = list(stated_answers(own_tests(problem)).items())[:most]
    return {
        call: Expected(call, True, one.value, one.text, seconds=math.inf, load_seconds=math.inf) for call, one in stated
    }


def well_formed(tests: Sequence[str], entry_point: str) -> list[AssertStatement]:
    """The asserts among `tests` that call the entry point as a suite must, in order."""
    found = [statement for test in tests for statement in parse_suite(test, entry_point)]
    return [statement for statement in found if statement.invalid is None and statement.call is not None]
