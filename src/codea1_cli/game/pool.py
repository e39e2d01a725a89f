"""The pool of one problem: distinct programs known to be wrong, which the Test LLM is paid for breaking."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from codea1_cli.game.judged_tests import JudgedCandidate, JudgedSuite, JudgedTest
from codea1_cli.game.rules import Game
from codea1_cli.sandbox.verdicts import Verdict

# A time-out may only say that the machine was busy, and a program that ends the process costs a process per call.
SHOWS_WRONG = (Verdict.FAILED, Verdict.RAISED)
Answers = Mapping[str, tuple[Verdict, str]]
"""What one program made of calls: by call, the verdict and what it gave, as text."""


@dataclass(frozen=True)
class PoolMember:
    """A wrong program, why it is known to be wrong, and the step that found it.

    `evidence` is a test with the reference's answer that it fails: one of the problem's own tests (`own`), or of a
    suite or the Mistake Book.
    """

    code: str
    evidence: str
    own: bool
    step: int

    @property
    def id(self) -> str:
        """By which rollouts and `mistakes inspect` name the program: the start of its SHA-256."""
        return hashlib.sha256(self.code.encode("utf-8", "backslashreplace")).hexdigest()[:8]


Pool = tuple[PoolMember, ...]
"""One problem's pool, the newest member first."""


class PoolEvent(NamedTuple):
    """A program that enters (`change` 1) or leaves (-1) a problem's pool; see `PoolMember`."""

    problem_id: str
    change: int
    code: str
    evidence: str
    own: bool


def events_between(problem_id: str, before: Pool, after: Pool) -> list[PoolEvent]:
    """What leads from one pool of a problem to the next: who leaves, then who enters, in order."""
    gone, new = set(before) - set(after), set(after) - set(before)
    return [
        PoolEvent(problem_id, change, member.code, member.evidence, member.own)
        for change, members, which in ((-1, before, gone), (1, after, new))
        for member in members
        if member in which
    ]


@dataclass(frozen=True)
class JudgedPool:
    """A problem's pool in one step, this step's programs among its members, and what breaks them.

    broken: the members, by index, that do not pass the test of a call. unjudged: earlier members on which the sandbox
    failed; they stay in the pool and count for nothing in this step.
    """

    members: Pool = ()
    broken: Mapping[str, frozenset[int]] = field(default_factory=dict)
    unjudged: Pool = ()

    def after(self, before: Pool) -> Pool:
        """The pool that the next step starts from; `before` is the one that this step started from."""
        stay = {*self.members, *self.unjudged}
        gone = {member.code for member in before if member not in stay}
        return changed_pool(before, gone, [member for member in self.members if member not in before])

    def breaks(self, rules: Game, suite: JudgedSuite) -> frozenset[int]:
        """The members that a suite breaks, by index."""
        calls = (test.call for test in counting_tests(rules, suite) if test.call is not None)
        return frozenset().union(*(self.broken.get(call, frozenset()) for call in calls))

    def breaks_ids(self, rules: Game, suite: JudgedSuite) -> tuple[str, ...]:
        """As `breaks`, by the members' ids."""
        return tuple(self.members[index].id for index in sorted(self.breaks(rules, suite)))


def changed_pool(pool: Pool, gone: Collection[str], new: Sequence[PoolMember]) -> Pool:
    """The pool without the programs in `gone` and with the `new` members in front."""
    return (*new, *(member for member in pool if member.code not in gone))


def counting_tests(rules: Game, suite: JudgedSuite) -> list[JudgedTest]:
    """The tests that can break a member: the first K valid ones that state the right answer.

    A kill that rests on the reference's answer alone is worth nothing to somebody who has no reference.
    """
    return [test for test in suite.tests if test.valid and test.stated_correctly][: rules.tests_per_suite]


def evidence(candidate: JudgedCandidate) -> tuple[JudgedTest, bool] | None:
    """A test that shows the candidate to be wrong, and whether it is one of the problem's own; None without one."""
    for test in candidate.own:
        if test.valid and test.verdict in SHOWS_WRONG:
            return test, True
    for test in (*candidate.book, *(test for suite in candidate.suites for test in suite.tests)):
        if test.valid and test.verdict in SHOWS_WRONG:
            return test, False
    return None


def wrong_candidates(candidates: Iterable[JudgedCandidate], step: int) -> Pool:
    """The distinct candidates known to be wrong, as members, in order; less those that no file could hold."""
    found: dict[str, PoolMember] = {}
    for candidate in candidates:
        if candidate.loaded and candidate.code not in found and (shown := evidence(candidate)) is not None:
            test, own = shown
            if storable(candidate.code) and storable(test.source):
                found[candidate.code] = PoolMember(candidate.code, test.source, own, step)
    return tuple(found.values())


def storable(text: str) -> bool:
    """Whether UTF-8 can hold a text: models do write lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def known_answers(candidates: Iterable[JudgedCandidate]) -> dict[str, dict[str, tuple[Verdict, str]]]:
    """What the candidates have answered already, by program and call."""
    known: dict[str, dict[str, tuple[Verdict, str]]] = {}
    for candidate in candidates:
        answers = known.setdefault(candidate.code, {})
        tests = (*candidate.own, *candidate.book, *(test for suite in candidate.suites for test in suite.tests))
        answers.update({t.call: (t.verdict, t.got) for t in tests if t.valid and t.call and t.verdict is not None})
    return known


def may_be_member(answers: Answers) -> bool:
    """Whether what a program has answered so far leaves it a place in the pool: it has ended each call."""
    return {verdict for verdict, _ in answers.values()} <= {Verdict.PASSED, Verdict.UNSCORED, *SHOWS_WRONG}


def judged_pool(members: Sequence[PoolMember], answers_of: Callable[[str], Answers | None], size: int) -> JudgedPool:
    """The first `size` members that differ in behaviour, and what breaks them.

    members: the newest first. answers_of: a program's answers, asked for until the pool is full; a member without any
    is left out. So is one that ran out of time, memory or output, which costs too much to keep. Two members behave
    alike when they gave the same answer to every call that both answered; the later one in the order is left out.
    """
    kept: list[PoolMember] = []
    unjudged: list[PoolMember] = []
    answers: dict[str, Answers] = {}
    for member in members:
        if len(kept) == size:
            break
        own = answers_of(member.code)
        if own is None:
            continue
        answers[member.code] = own
        verdicts = {verdict for verdict, _ in own.values()}
        if Verdict.UNSCORED in verdicts:
            unjudged.append(member)
        if verdicts - {Verdict.PASSED, *SHOWS_WRONG}:
            continue
        if not any(_alike(own, answers[other.code]) for other in kept):
            kept.append(member)
    broken: dict[str, set[int]] = {}
    for index, member in enumerate(kept):
        for call, (verdict, _) in answers[member.code].items():
            if verdict is not Verdict.PASSED:
                broken.setdefault(call, set()).add(index)
    return JudgedPool(tuple(kept), {call: frozenset(which) for call, which in broken.items()}, tuple(unjudged))


def _alike(one: Answers, other: Answers) -> bool:
    common = one.keys() & other.keys()
    return bool(common) and all(one[call] == other[call] for call in common)


def kills(rules: Game, candidate: JudgedCandidate, pool: JudgedPool) -> list[float]:
    """The kill term of each of a candidate's suites, from 0 to 1.

    The share of the pool that the suite breaks; with `game.kill=marginal` each kill counts one over the number of the
    candidate's suites that make it. With `game.trust` it counts times the share of the suite's first K valid tests that
    state the right answer. Without any pool: whether the suite breaks its own candidate.
    """
    if not pool.members:
        return [float(breaks_own(rules, suite)) for suite in candidate.suites]
    broken = [pool.breaks(rules, suite) for suite in candidate.suites]
    made = [sum(index in members for members in broken) for index in range(len(pool.members))]
    worth = [1 / count if rules.kill == "marginal" and count else 1.0 for count in made]
    shares = [sum(worth[index] for index in members) / len(pool.members) for members in broken]
    return [share * _trust(rules, suite) for share, suite in zip(shares, candidate.suites, strict=True)]


def _trust(rules: Game, suite: JudgedSuite) -> float:
    right = [test.stated_correctly is True for test in suite.tests if test.valid][: rules.tests_per_suite]
    return sum(right) / len(right) if rules.trust and right else 1.0


def breaks_own(rules: Game, suite: JudgedSuite) -> bool:
    """Whether the candidate that the suite ran on fails one of its counting tests."""
    return any(test.verdict not in (None, Verdict.PASSED, Verdict.UNSCORED) for test in counting_tests(rules, suite))
