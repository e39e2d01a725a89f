"""From parsed suites to judged ones: which calls to ask the reference, and what its and the candidate's answers make of
each assert. Also what held-out problems come to."""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

from codea1_cli.extract import AssertStatement, Stated
from codea1_cli.extract.folding import fold
from codea1_cli.extract.source import parse, unparse
from codea1_cli.game.rules import Game
from codea1_cli.sandbox.values import show
from codea1_cli.sandbox.verdicts import Expected, Verdict

DUPLICATE = "duplicate"
LATE_SHARE, LATE_STEPS = 0.1, 2
"""A problem leaves the schedule after so many steps in which its reference ran out of time on this share, or more, of
the distinct calls of its suites."""
NOT_FOLDABLE = "not_foldable"
UNSCORED = "unscored"


class CallVerdict(Protocol):
    """What a candidate made of one call: the verdict, and what it gave as text."""

    @property
    def verdict(self) -> Verdict:
        """What the candidate did on the test's call."""

    @property
    def got(self) -> str:
        """What the candidate gave, as text."""


@dataclass(frozen=True)
class JudgedTest:
    """One assert, judged. `source` is `assert CALL == EXPECTED` as the Mistake Book keeps it, for an invalid one the
    text that the model wrote. `stated_correctly` and `verdict` are None where there was nothing to compare or run."""

    source: str
    call: str | None
    valid: bool
    reason: str | None = None
    stated_correctly: bool | None = None
    verdict: Verdict | None = None
    expected: str = ""
    got: str = ""


@dataclass(frozen=True)
class JudgedSuite:
    """One suite on one candidate; `unscored` when the sandbox failed on any of its calls."""

    text: str
    tests: tuple[JudgedTest, ...] = field(default=())
    unscored: bool = False


@dataclass(frozen=True)
class JudgedCandidate:
    """One candidate: `loaded` is None when the sandbox failed; `book` are the replayed tests, `suites` those written
    against it (by default none for a candidate that does not load), `own` the problem's own tests, as far as the
    method has them run."""

    code: str
    loaded: bool | None
    book: tuple[JudgedTest, ...] = ()
    suites: tuple[JudgedSuite, ...] = ()
    own: tuple[JudgedTest, ...] = ()


@dataclass(frozen=True)
class BookTest:
    """A test of the Mistake Book, read back: its call and the answer it holds."""

    source: str
    call: str
    stated: Stated | None


@lru_cache(maxsize=8192)  # a problem's candidates face and fail the same tests, step after step
def read_book_test(source: str) -> BookTest | None:
    """The book's test in parts, None for a text that is not `assert CALL == EXPECTED`."""
    tree = parse(source)
    test = tree.body[0].test if tree and len(tree.body) == 1 and isinstance(tree.body[0], ast.Assert) else None
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq) or len(test.ops) > 1:
        return None
    call = unparse(test.left)
    return BookTest(source, call, fold(test.comparators[0])) if call is not None else None


def calls_for_reference(
    rules: Game, suites: Iterable[Sequence[AssertStatement]], book: Iterable[BookTest] = ()
) -> list[str]:
    """The distinct calls whose values the reference decides, in order of appearance; none with validation off."""
    if not rules.validation:
        return []
    calls = [test.call for test in book]
    calls += [s.call for suite in suites for s in suite[: rules.cap] if s.invalid is None and s.call is not None]
    return list(dict.fromkeys(calls))


def stated_answers(tests: Iterable[AssertStatement | BookTest]) -> dict[str, Expected]:
    """What the tests themselves state, by call, the first statement of each call: expected values with validation off.

    One suite (or the book) at a time: two suites may state two answers to one call.
    """
    answers: dict[str, Expected] = {}
    for test in tests:
        if test.call is not None and test.stated is not None:
            answers.setdefault(test.call, Expected(test.call, True, test.stated.value, show(test.stated.value)))
    return answers


def judged_suite(
    rules: Game,
    text: str,
    statements: Sequence[AssertStatement],
    expected: Mapping[str, Expected],
    verdicts: Mapping[str, CallVerdict],
    equal: Callable[[Any, Any], bool],
) -> JudgedSuite:
    """Put a suite's asserts, the expected answers and one candidate's verdicts together.

    `expected` holds every call of `calls_for_reference` (with validation off: `stated_answers` of this suite);
    `verdicts` may lack calls of a candidate that does not load. `equal(value, stated)` decides whether the model's own
    answer is right.
    """
    tests = []
    seen: set[str] = set()
    for statement in statements[: rules.cap]:
        test = _judged(rules, statement, expected, verdicts, equal, seen)
        if test.valid and test.call is not None:
            seen.add(test.call)
        tests.append(test)
    unscored = any(test.reason == UNSCORED or test.verdict is Verdict.UNSCORED for test in tests)
    return JudgedSuite(text, tuple(tests), unscored)


def late_calls(suites: Iterable[JudgedSuite]) -> tuple[int, int]:
    """On how many distinct calls of a problem's suites the reference ran out of time, and how many there are."""
    tests = [test for suite in suites for test in suite.tests if test.call is not None]
    late = {test.call for test in tests if (test.reason or "").partition(":")[0] == Verdict.TIMEOUT}
    return len(late), len({test.call for test in tests})


def judged_book(
    book: Sequence[BookTest], expected: Mapping[str, Expected], verdicts: Mapping[str, CallVerdict]
) -> tuple[JudgedTest, ...]:
    """The replayed tests of the Mistake Book on one candidate, in order; keeps the book's own text of each test."""
    tests = []
    for test in book:
        answer = expected[test.call]
        found = verdicts.get(test.call)
        tests.append(
            JudgedTest(
                source=test.source,
                call=test.call,
                valid=answer.valid,
                reason=None if answer.valid else _reason(answer),
                verdict=found.verdict if found and answer.valid else None,
                expected=answer.text,
                got=found.got if found else "",
            )
        )
    return tuple(tests)


def open_calls(candidate: JudgedCandidate) -> list[str]:
    """The distinct calls of a candidate's valid tests, of the book and of its suites, that it has not been run on."""
    tests = (*candidate.book, *(test for suite in candidate.suites for test in suite.tests))
    return list(dict.fromkeys(t.call for t in tests if t.valid and t.call is not None and t.verdict is None))


def answered(candidate: JudgedCandidate, verdicts: Mapping[str, CallVerdict]) -> JudgedCandidate:
    """The candidate with what it made of its open calls."""

    def filled(test: JudgedTest) -> JudgedTest:
        found = verdicts.get(test.call or "")
        return replace(test, verdict=found.verdict, got=found.got) if test.valid and found else test

    suites = [replace(suite, tests=tuple(map(filled, suite.tests))) for suite in candidate.suites]
    lost = [suite.unscored or any(t.verdict is Verdict.UNSCORED for t in suite.tests) for suite in suites]
    scored = [replace(suite, unscored=unscored) for suite, unscored in zip(suites, lost, strict=True)]
    return replace(candidate, book=tuple(map(filled, candidate.book)), suites=tuple(scored))


def _judged(
    rules: Game,
    statement: AssertStatement,
    expected: Mapping[str, Expected],
    verdicts: Mapping[str, CallVerdict],
    equal: Callable[[Any, Any], bool],
    seen: set[str],
) -> JudgedTest:
    call, stated = statement.call, statement.stated
    if statement.invalid is not None or call is None:
        return JudgedTest(statement.source, None, valid=False, reason=statement.invalid)
    if not rules.validation and stated is None:
        return JudgedTest(statement.source, call, valid=False, reason=NOT_FOLDABLE)
    answer = expected[call]
    if not answer.valid:
        return JudgedTest(statement.source, call, valid=False, reason=_reason(answer))
    if call in seen:
        return JudgedTest(statement.source, call, valid=False, reason=DUPLICATE, expected=answer.text)
    found = verdicts.get(call)
    return JudgedTest(
        source=f"assert {call} == {answer.text}",
        call=call,
        valid=True,
        stated_correctly=not rules.validation or (stated is not None and equal(answer.value, stated.value)),
        verdict=found.verdict if found else None,
        expected=answer.text,
        got=found.got if found else "",
    )


def _reason(answer: Expected) -> str:
    return str(answer.reason or "no_answer")


@dataclass(frozen=True)
class SolveResult:
    """One held-out problem: which of the sampled solutions pass all its tests."""

    problem_id: str
    passed: tuple[bool, ...]
    wrong: tuple[str, ...]  # distinct programs that load and fail
    unscored: int


@dataclass(frozen=True)
class SuiteResult:
    """One suite on one wrong program of a held-out problem, by its first K asserts.

    asserts: how many there are, up to K. valid: whose call the reference answers. correct, misstated: valid ones that
    state the reference's answer, and the others. kills: valid ones that the program fails by the
    reference's answer, whatever they state. exposed: whether one of them states that answer, so that somebody without a
    reference sees the program fail for a right reason. calls: the valid ones'. validity: the game's.
    """

    problem_id: str
    asserts: int
    valid: int
    correct: int
    misstated: int
    kills: int
    exposed: bool
    calls: tuple[str, ...]
    validity: float
    unscored: bool
