"""Tests for somebody's own functions: which of a model's calls are worth keeping, beside the tests that exist.

A model states what a call should give; what a test is written with is what the function gives today, asked twice in
interpreters of other hash seeds, then again, at other times and after other calls: where that changes it, or the call
does more than give it, it is none. How many samples state the same, and what the others state, is kept beside it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from codea1_cli.errors import counted
from codea1_cli.evals.test_generation import Function, Mutant, own_mutants
from codea1_cli.evals.test_generation.execution import Arcs, TestRunner
from codea1_cli.evals.test_generation.one_shot import CallRunner
from codea1_cli.extract import parse_suite
from codea1_cli.extract.folding import Stated, fold
from codea1_cli.extract.source import parse
from codea1_cli.extract.suite import readable, votes
from codea1_cli.judging.compare import numbered
from codea1_cli.judging.judge import Judge, well_formed
from codea1_cli.judging.references import VARIES
from codea1_cli.sandbox.values import MAX_SHOWN, TOO_LONG, show
from codea1_cli.sandbox.verdicts import Expected

MAX_CALLS = 64  # of one function that are tried
_UNFIT = "raised: TypeError"  # as for too many arguments: the call does not fit the function


@dataclass(frozen=True)
class Case:
    """One call that the function answers, always alike: `text` is the answer as Python writes it.

    votes: how many samples state that answer, of the `asked` that make the call; others: the other answers stated and
    how many samples do, most first. kills: the mutants that fail on it, by their place in the function's list. arcs:
    what it takes inside the function, from line to line.
    """

    call: str
    text: str
    votes: int = 0
    asked: int = 0
    others: tuple[tuple[str, int], ...] = ()
    kills: frozenset[int] = frozenset()
    arcs: Arcs = frozenset()


@dataclass(frozen=True)
class Alarm:
    """A call whose answer is stated otherwise than the function of this line gives it (`got`, or what it raises).

    votes: samples that state `stated`; against: those that state what it gives, of the `asked` that make the call.
    word: the example or test of this call that there is, else the docstring's first line. by: which of them states it,
    `the docstring` or `an existing test`; empty where samples alone do.
    """

    function: str
    line: int
    call: str
    got: str
    stated: str
    votes: int
    against: int
    asked: int
    word: str
    by: str = ""

    @property
    def given(self) -> str:
        """What the call does, as a predicate."""
        return self.got.replace("raised: ", "raises ", 1) if self.got.startswith("raised: ") else f"gives {self.got}"

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Small where the project itself states it, then where many samples agree: by the votes' lead, then by their
        share."""
        return not self.by, self.against - self.votes, -self.votes / max(self.asked, 1)


@dataclass
class Studied:
    """One function, its `mutants`, and tests of it.

    existing: tests that were there and pass; failing: those that were there and do not. cases: calls that could be
    tests; kept: those that become some. arcs_before, arcs_after: what loading the file and the tests takes of it,
    without and with the kept ones. broken: killed mutants that do not load, so that any test kills them. fault: why no
    test can be written. unscored: the sandbox failed.
    """

    function: Function
    mutants: Sequence[Mutant] = ()
    existing: list[Case] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    kept: list[Case] = field(default_factory=list)
    arcs_before: Arcs = frozenset()
    arcs_after: Arcs = frozenset()
    broken: frozenset[int] = frozenset()
    fault: str = ""
    unscored: bool = False

    def killed(self, cases: Iterable[Case]) -> set[int]:
        """The mutants that any of the cases kills."""
        return set[int]().union(*(case.kills for case in cases))

    @property
    def killed_before(self) -> int:
        """Mutants that the existing tests kill."""
        return len(self.killed(self.existing))

    @property
    def killed_after(self) -> int:
        """Mutants that they and the kept ones kill."""
        return len(self.killed([*self.existing, *self.kept]))

    @property
    def survivors(self) -> list[Mutant]:
        """The others."""
        dead = self.killed([*self.existing, *self.kept])
        return [mutant for at, mutant in enumerate(self.mutants) if at not in dead]

    def alone(self, case: Case) -> list[Mutant]:
        """The mutants that no other of the existing and kept tests kills, but for those that do not load."""
        others = self.killed(one for one in (*self.existing, *self.kept) if one.call != case.call)
        return [self.mutants[at] for at in sorted(case.kills - others - self.broken)]


class Student:
    """Runs suites of functions. Thread-safe; blocking. judge and runner share a sandbox."""

    def __init__(self, judge: Judge, runner: TestRunner) -> None:
        self.judge, self.runner = judge, runner

    def study(self, function: Function, suites: Sequence[str], existing: Sequence[str] = ()) -> Studied:
        """The function with the calls of `suites` (a model's replies) and of `existing` asserts, and the fewest of the
        calls that add to what the existing tests kill and reach."""
        name, program = function.name, function.program
        old, stated = well_formed(existing, name), votes(suites, name)
        own = list(dict.fromkeys(str(test.call) for test in old))
        answered = self._answered(function, [*own, *list(stated)[:MAX_CALLS]], own)
        if answered is None:
            return Studied(function, unscored=True)
        expected, fault = answered
        if fault:
            return Studied(function, fault=fault)
        right = [
            (answer := expected[str(one.call)]).valid
            and one.stated is not None
            and self.judge.equal(answer.value, one.stated.value)
            for one in old
        ]
        passing = {str(one.call) for one, passes in zip(old, right, strict=True) if passes}
        usable = [
            c for c, answer in expected.items() if answer.valid and (c in passing or (readable(c) and written(answer)))
        ]
        mutants = own_mutants(function)
        caller = CallRunner(self.judge, program, expected)
        kills = caller.kills(mutants, usable)
        arcs = self.runner.trace_each(program, name, usable)
        if kills is None or arcs is None:
            return Studied(function, unscored=True)
        loading, inside = arcs[0], range(function.first, function.last + 1)
        taken_by = dict(zip(usable, arcs[1:], strict=True))
        every = {}
        for call, taken in taken_by.items():
            new = frozenset(arc for arc in taken - loading if abs(arc[0]) in inside or abs(arc[1]) in inside)
            dead = frozenset(at for at, failing in enumerate(kills) if call in failing)
            every[call] = self._case(expected[call], stated.get(call, []), dead, new)
        found = Studied(function, mutants, [case for call, case in every.items() if call in passing])
        found.failing = [one.source for one, passes in zip(old, right, strict=True) if not passes]
        found.cases = [case for call, case in every.items() if call not in passing and call in stated]
        found.kept = fewest(found.cases, found.existing)
        found.arcs_before = loading.union(*(taken_by[case.call] for case in found.existing))
        found.arcs_after = found.arcs_before.union(*(taken_by[case.call] for case in found.kept))
        if len(found.kept) == 1 and not found.existing:  # else two tests kill what does not load
            found.broken = frozenset(caller.broken(mutants, found.kept[0].kills))
        if not found.cases and not found.existing:
            found.fault = _why(function, suites, stated, expected)
        return found

    def _answered(
        self, function: Function, calls: Sequence[str], own: Sequence[str]
    ) -> tuple[dict[str, Expected], str] | None:
        """What the function gives for each call, those out of `calls` without an answer that do more than give it; and
        why no value of it is to be relied on. None: the sandbox failed."""
        expected = self.judge.expected(function.program, function.name, calls, own)
        answering = [call for call, answer in expected.items() if answer.valid or answer.reason == VARIES]
        found = CallRunner(self.judge, function.program, expected).depends(answering)
        if found is None or any(answer.reason == "unscored" for answer in expected.values()):
            return None
        effects = {call: Expected(call, False, reason=what) for call, what in found[1].items() if call not in own}
        return expected | effects, found[0]

    def _case(self, answer: Expected, stated: Sequence[Stated], kills: frozenset[int], arcs: Arcs) -> Case:
        right, others = tally(self.judge, answer, stated)
        return Case(answer.call, answer.text, right, len(stated), others, kills, arcs)

    def alarms(
        self, function: Function, suites: Sequence[str], existing: Sequence[str] = ()
    ) -> tuple[list[Alarm], str] | None:
        """The calls of which an example of the docstring or one of the `existing` tests states another answer than the
        function's own, then those of which more samples do, those that most agree on first; none of a call whose answer
        an example or test states as it is. With them why no call could become one, empty where any could. None: the
        sandbox failed."""
        stated = votes(suites if len(set(suites)) > 1 else suites[:1], function.name)  # greedy ones are one vote
        examples: dict[str, list[tuple[str, Stated]]] = {}
        for one in well_formed([*existing, *function.calls], function.name):
            if one.stated is not None:
                examples.setdefault(str(one.call), []).append((one.source, one.stated))
        answered = self._answered(function, [*examples, *list(stated)[:MAX_CALLS]], list(examples))
        if answered is None or answered[1]:
            return answered and ([], answered[1])
        summary = function.description.strip().partition("\n")[0]
        compared, found = False, list[Alarm]()
        for call, answer in answered[0].items():
            right, others = tally(self.judge, answer, stated.get(call, []))
            raised = answer.reason.startswith("raised: ")
            known = dict(examples.get(call, ()))
            if not answer.valid and (not raised or (not known and answer.reason.startswith(_UNFIT))):
                continue
            compared = compared or call in stated
            claims = [] if known or not others or others[0][1] <= right else [(*others[0], summary, "")]
            for source, claim in known.items():
                if not answer.valid or not self.judge.equal(answer.value, claim.value):
                    count = sum(self.judge.equal(vote.value, claim.value) for vote in stated.get(call, []))
                    by = "an existing test" if source in existing else "the docstring"
                    claims.append((show(claim.value, 200), count, source, by))
            got, asked = answer.text if answer.valid else answer.reason, len(stated.get(call, []))
            for text, count, word, by in claims:
                found.append(Alarm(function.name, function.first, call, got, text, count, right, asked, word, by))
        fault = "" if compared or found else _why(function, suites, stated, answered[0])
        return sorted(found, key=lambda one: one.rank), fault


def tally(judge: Judge, answer: Expected, stated: Sequence[Stated]) -> tuple[int, tuple[tuple[str, int], ...]]:
    """How many of the stated answers are the given one, and the others with how often each is stated, most first."""
    wrong = [one for one in stated if not (answer.valid and judge.equal(answer.value, one.value))]
    numbers = numbered(wrong, judge.equal)
    ranked = Counter(numbers).most_common()  # of equals the first stated
    others = tuple((show(wrong[numbers.index(number)].value, 200), count) for number, count in ranked)
    return len(stated) - len(wrong), others


def written(answer: Expected) -> bool:
    """Whether an answer's text is a literal that means the answer, so that a test file can hold it."""
    tree = parse(answer.text)
    node = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    if not isinstance(node, ast.Expr) or any(isinstance(part, ast.Name) for part in ast.walk(node)):
        return False
    stated = fold(node.value)
    return stated is not None and type(stated.value) is type(answer.value) and stated.value == answer.value


def _unwritten(answer: Expected) -> str:
    """Why a valid answer is in no test file."""
    if written(answer):
        return "an argument is a comparison, as of a call that is cut off"
    size = len(answer.text) > MAX_SHOWN or TOO_LONG in answer.text
    return "its value is too long to be written out" if size else "its value has no literal"


def fewest(cases: Sequence[Case], existing: Sequence[Case]) -> list[Case]:
    """Few cases that kill what all of them kill and reach what all reach, beyond the existing tests: greedily the one
    that adds most, of equals one whose answer a sample states, and the shorter. One that the later make needless goes.
    """

    def gains(case: Case) -> set[object]:
        return {*case.kills, *case.arcs}

    have = set[object]().union(*map(gains, existing))
    chosen: list[Case] = []
    while left := [case for case in cases if gains(case) - have]:
        best = max(left, key=lambda case: (len(gains(case) - have), case.votes > 0, -len(case.call)))
        chosen.append(best)
        have |= gains(best)
    for case in list(chosen):
        others = set[object]().union(*(gains(one) for one in (*existing, *chosen) if one is not case))
        if gains(case) <= others:
            chosen.remove(case)
    return chosen


def _why(
    function: Function, suites: Sequence[str], stated: dict[str, list[Stated]], expected: dict[str, Expected]
) -> str:
    """Why no call of a model's became a test."""
    asserts = [one for suite in suites for one in parse_suite(suite, function.name)]
    replies = counted(len(suites), "reply", "replies")
    if not stated:
        reasons = Counter(one.invalid for one in asserts if one.invalid)
        mostly = f", mostly {reasons.most_common(1)[0][0]}" if reasons else ""
        return f"the model wrote no test of it: {replies}, {counted(len(asserts), 'assert')}{mostly}"
    reasons = Counter(answer.reason or _unwritten(answer) for answer in expected.values())
    reason, count = reasons.most_common(1)[0]
    typed = "->" in function.shown or ": " in function.shown.partition(")")[0]
    hint = "; it has no annotations" if not typed and reason.startswith("raised: ") else ""
    return f"none of {counted(len(expected), 'call')} makes a test: {reason} ({count}){hint}"
