"""From texts to judged candidates: extraction, the sandbox, and the pure game put together. Called from threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any, cast

from codea1_cli.errors import EnvironmentFault
from codea1_cli.extract import extract_code, parse_suite
from codea1_cli.game.judged_tests import (
    UNSCORED,
    BookTest,
    JudgedCandidate,
    JudgedTest,
    SolveResult,
    SuiteResult,
    answered,
    calls_for_reference,
    judged_book,
    judged_suite,
    open_calls,
    read_book_test,
    stated_answers,
)
from codea1_cli.game.pool import (
    SHOWS_WRONG,
    Answers,
    JudgedPool,
    Pool,
    counting_tests,
    evidence,
    judged_pool,
    known_answers,
    may_be_member,
    wrong_candidates,
)
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import score_problem
from codea1_cli.judging.judge import (
    CandidateResult,
    Judge,
    grade_on_tests,
    own_answers,
    own_calls,
)
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.base import B, in_order
from codea1_cli.sandbox.verdicts import Expected, Verdict

OWN_CALLS = 8
"""Of a problem's own tests, how many tell who is known to be wrong, and whether the reference can be played against."""


@dataclass(frozen=True)
class Candidate:
    """One completion of the Code LLM; `loaded` is None when the sandbox failed. `own`: the problem's tests on it."""

    completion: str
    code: str
    loaded: bool | None
    load_detail: str = ""
    own: tuple[JudgedTest, ...] = ()

    @property
    def seems_right(self) -> bool:
        """Whether it loads and nothing is known against it."""
        return bool(self.loaded) and evidence(JudgedCandidate(self.code, True, own=self.own)) is None

    @property
    def is_wrong(self) -> bool:
        """Whether its own tests show that it is wrong, and it ended each of them."""
        verdicts = {test.verdict for test in self.own}
        return bool(self.loaded) and not verdicts <= {Verdict.PASSED} and verdicts <= {Verdict.PASSED, *SHOWS_WRONG}


@dataclass(frozen=True)
class StepCandidate:
    """A step's candidate with everything that ran on it. `shown`: the pool's member that the Test LLM saw in its place.
    `later`: its valid tests have not run yet, `StepJudge.judge_pool` runs them."""

    candidate: Candidate
    game: JudgedCandidate
    shown: str | None = None
    later: bool = False


@dataclass(frozen=True)
class JudgedProblem:
    """One problem of a step: its candidates in the order sampled, and the pool, in a game that has one."""

    candidates: Sequence[StepCandidate]
    pool: JudgedPool | None = None


def reference_answers(judge: Judge, problem: Problem, calls: Sequence[str]) -> dict[str, Expected]:
    """The reference's answers; the first of the problem's own calls say how long the others may take."""
    return judge.expected(problem.reference, problem.entry_point, calls, own_calls(problem)[:OWN_CALLS])


class StepJudge:
    """Judges what the policies sampled, by the rules of one game. Thread-safe.

    judge: None where others do. own_tests: how many of a problem's own a candidate faces when it is loaded; None: all.
    """

    together = 1  # candidates of a problem that are best judged in one job

    def __init__(self, rules: Game, judge: Judge | None, own_tests: int | None = 0) -> None:
        self.rules, self.judge, self.own_tests = rules, cast(Judge, judge), own_tests
        self.sandbox: Any = judge and judge.sandbox
        self.workers: int = getattr(self.sandbox, "workers", 1)  # callers that it keeps busy
        self.places: int = getattr(self.sandbox, "requests", self.workers)  # what it runs at once, or asks a service

    def canary(self) -> dict[str, Any]:
        """Judges one right and one wrong program; says which sandbox layers are missing here.

        Raises:
            EnvironmentFault: the sandbox cannot tell the two apart.
        """
        from codea1_cli.judging.canaries import verdicts_of_canaries

        found = verdicts_of_canaries(self.judge, ("right", "wrong"))
        if found != {"right": Verdict.PASSED, "wrong": Verdict.FAILED}:
            what = f"the sandbox cannot judge: a right program is {found['right']}, a wrong one {found['wrong']}"
            raise self.outage(what)
        return {"missing": [name for name, fault in getattr(self.sandbox, "layers", {}).items() if fault]}

    def outage(self, what: str) -> EnvironmentFault:
        """The error for what the sandbox's failure came to; it names a service and what went wrong there."""
        cause = getattr(self.sandbox, "trouble", "")
        hint = getattr(self.sandbox, "hint", "`codea1 sandbox check` says what is wrong")
        return EnvironmentFault(f"{what}; {cause}" if cause else what, hint=hint)

    def failures(self) -> dict[str, int]:
        """What went wrong with the sandbox so far, retried or not, by kind."""
        return dict(getattr(self.sandbox, "failures", {}))

    def ask(self, function: Callable[..., Any], problem: Problem, *arguments: Any) -> Any:
        """`function(judge, problem, *arguments)` where the problem is judged, in another process perhaps."""
        return function(self, problem, *arguments)

    def reference_fault(self, problem: Problem) -> str | None:
        """Why a problem cannot be played: its reference does not load, or no test of it has one answer."""
        loaded = self.judge.loads(problem.reference, problem.entry_point) if problem.reference else True
        if loaded is None:
            raise self.outage(f"the sandbox failed on the reference of {problem.id}")
        if not loaded:
            return "its reference does not load"
        if not own_calls(problem):
            return None
        expected = own_answers(self.judge, problem, OWN_CALLS)
        if any(answer.reason == UNSCORED for answer in expected.values()):
            raise self.outage(f"the sandbox failed on the reference of {problem.id}")
        if any(answer.valid for answer in expected.values()):
            return None
        if not problem.reference:
            return "none of its own tests states an answer that can be read"
        return f"its reference gives no usable answer to its own tests ({next(iter(expected.values())).reason})"

    def load_candidates(self, problem: Problem, texts: Sequence[str]) -> list[Candidate]:
        """Extracts and loads, side by side; identical programs are loaded once."""
        expected = own_answers(self.judge, problem, self.own_tests) if self.own_tests != 0 else {}
        known = [(call, answer) for call, answer in expected.items() if answer.valid or answer.reason == UNSCORED]
        tests = [BookTest(f"assert {call} == {answer.text}", call, None) for call, answer in known]
        seen: dict[str, tuple[Any, ...]] = {"": (False, "the reply holds no program", ())}
        codes = [extract_code(text, problem.entry_point, mode=self.rules.mode) for text in texts]
        check, entry, new = self.judge.check, problem.entry_point, dict.fromkeys(code for code in codes if code)
        for code, result in self._each(lambda code: check(code, entry, list(expected), expected), new).items():
            own = judged_book(tests, expected, result.verdicts) if result.loaded else ()
            seen[code] = (result.loaded, result.load_detail, own)
        return [Candidate(text, code, *seen[code]) for text, code in zip(texts, codes, strict=True)]

    def judge_pool(self, problem: Problem, candidates: Sequence[StepCandidate], pool: Pool, step: int) -> JudgedProblem:
        """Adds this step's wrong candidates to a problem's pool, and runs the members on the calls that count, side by
        side where it has room for them. Most candidates have answered their own suites' calls already; one marked
        `later` answers them here, with those of the others' suites, in one process."""
        entry, check, rules = problem.entry_point, self.judge.check, self.rules
        calls = [str(t.call) for one in candidates for suite in one.game.suites for t in counting_tests(rules, suite)]
        late = {one.game.code: one.game for one in candidates if one.later}
        own = {call: known for call, known in own_answers(self.judge, problem, OWN_CALLS).items() if known.valid}
        asked = {code: [*open_calls(game), *calls] for code, game in late.items()}
        expected = reference_answers(self.judge, problem, [*calls, *chain.from_iterable(asked.values())]) | own
        known, count = known_answers([one.game for one in candidates]), dict.fromkeys([*calls, *own])
        run = cache(lambda code: check(code, entry, asked[code], expected))

        @cache
        def answers_of(code: str) -> Answers:
            told = {**(run(code).given if code in late else {}), **known.get(code, {})}
            told = {call: answer for call, answer in told.items() if call in count}
            if may_be_member(told) and (missing := [call for call in count if call not in told]):
                told |= check(code, entry, missing, expected, stop_late=True).given
            return told

        likely = [member.code for member in pool if member.code not in late][: max(self.rules.pool_size - len(late), 0)]
        self._each(answers_of, [*late, *likely])
        games = [answered(one.game, run(one.game.code).verdicts) if one.later else one.game for one in candidates]
        known |= known_answers(games)
        new = wrong_candidates(games, step)
        members = [*new, *(member for member in pool if member.code not in {one.code for one in new})]
        self._each(answers_of, [one.code for one in members[: self.rules.pool_size]])
        judged = [replace(one, game=game, later=False) for one, game in zip(candidates, games, strict=True)]
        return JudgedProblem(judged, judged_pool(members, answers_of, self.rules.pool_size))

    def _each(self, function: Callable[[str], B], codes: Collection[str]) -> dict[str, B]:
        """By program, what `function` makes of it, as many at once as there is room for."""
        return dict(in_order(function, codes, min(len(codes), self.judge.most) or 1))

    def owners(self, candidates: Sequence[Candidate]) -> list[int]:
        """For each candidate the one whose suites it is judged by: itself, or the first identical one if they share."""
        if not self.rules.share_identical:
            return list(range(len(candidates)))
        first: dict[str, int] = {}
        return [first.setdefault(candidate.code, index) for index, candidate in enumerate(candidates)]

    def attacked(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Which candidates the Test LLM writes suites for: by default those that load, in paper mode all."""
        return [
            owner == index and (self.rules.paper or candidates[index].loaded is True)
            for index, owner in enumerate(self.owners(candidates))
        ]

    def judge_suites(
        self, problem: Problem, candidate: Candidate, texts: Sequence[str], book: Sequence[str], later: bool = False
    ) -> StepCandidate:
        """Runs the suites and the replayed book on one candidate. With `later` one that is wrong, and not likely to run
        out of time, waits for `judge_pool`, which runs it anyway: that costs one process in place of two."""
        rules, entry, later = self.rules, problem.entry_point, later and self.rules.has_pool and candidate.is_wrong
        suites = [parse_suite(text, entry, cap=rules.cap, mode=rules.mode) for text in texts]
        replayed = [test for source in book if (test := read_book_test(source)) is not None]
        if rules.validation:
            expected = reference_answers(self.judge, problem, calls_for_reference(rules, suites, replayed))
            later = later and not self.judge.may_be_late(candidate.code, expected)
            result = CandidateResult(True) if later else self._check(candidate, entry, expected)
            judged = [
                judged_suite(rules, text, statements, expected, result.verdicts, self.judge.equal)
                for text, statements in zip(texts, suites, strict=True)
            ]
            on_book = judged_book(replayed, expected, result.verdicts)
        else:
            judged = []
            for text, statements in zip(texts, suites, strict=True):
                stated = stated_answers(s for s in statements if s.invalid is None)
                result = self._check(candidate, entry, stated)
                judged.append(judged_suite(rules, text, statements, stated, result.verdicts, self.judge.equal))
            stated = stated_answers(replayed)
            usable = [test for test in replayed if test.call in stated]
            on_book = judged_book(usable, stated, self._check(candidate, entry, stated).verdicts)
        game = JudgedCandidate(candidate.code, candidate.loaded, on_book, tuple(judged), candidate.own)
        return StepCandidate(candidate, game, later=later)

    def _check(self, candidate: Candidate, entry_point: str, expected: Any) -> CandidateResult:
        if not candidate.loaded or not any(answer.valid for answer in expected.values()):  # nothing is to be run
            return CandidateResult(candidate.loaded, candidate.load_detail)
        late = sum(test.verdict is Verdict.TIMEOUT for test in candidate.own)
        return self.judge.check(candidate.code, entry_point, list(expected), expected, late=late)

    # -- held-out evaluation ---------------------------------------------------------------------------------------
    def solve_rate(self, problem: Problem, texts: Sequence[str]) -> SolveResult:
        """Runs each solution on the problem's own tests; it passes when it passes them all."""
        codes = [extract_code(text, problem.entry_point, mode=self.rules.mode) for text in texts]
        grades = grade_on_tests(self.judge, problem, codes)
        failing = [code for code, grade in zip(codes, grades, strict=True) if grade.loaded and grade.passed is False]
        return SolveResult(
            problem.id,
            tuple(grade.passed is True for grade in grades),
            tuple(dict.fromkeys(failing)),
            sum(grade.passed is None for grade in grades),
        )

    def suite_on_wrong(self, problem: Problem, wrong: str, text: str) -> SuiteResult:
        """One suite on one wrong program; only the first K asserts count, so that long suites gain nothing. The
        reference decides, also for a game that plays without it: figures of two games can be compared."""
        if not self.rules.validation:
            rules = self.rules.model_copy(update={"validation": True})
            return StepJudge(rules, self.judge).suite_on_wrong(problem, wrong, text)
        judged = self.judge_suites(problem, Candidate("", wrong, True), [text], ()).game
        tests = (suite := judged.suites[0]).tests[: self.rules.tests_per_suite]
        valid = [test for test in tests if test.valid]
        failed = [test for test in valid if test.verdict not in (None, Verdict.PASSED, Verdict.UNSCORED)]
        correct = sum(test.stated_correctly is True for test in valid)
        return SuiteResult(
            problem.id,
            asserts=len(tests),
            valid=len(valid),
            correct=correct,
            misstated=len(valid) - correct,
            kills=len(failed),
            exposed=any(test.stated_correctly for test in failed),
            calls=tuple(test.call for test in valid if test.call is not None),
            validity=score_problem(self.rules, (), [judged]).suite_parts[0][0].validity,
            unscored=suite.unscored,
        )

    def close(self) -> None:
        """Ends the sandbox and closes the file of the reference's answers."""
        self.sandbox.close()
        self.judge.cache.close()
