"""A problem set whose tests a Test LLM wrote, for a Code LLM to learn from (`method: golden-tests`).

Of each call that suites make, the value that most of them state becomes a test. A problem's reference, where there is
one, says how good the tests are; it changes them only where it is asked to validate them. It is not written then
either: a test of a problem with a reference is worth what the reference says, whatever it states.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from codea1_cli import __version__
from codea1_cli.data import buckets, table
from codea1_cli.data.pairs import LONGEST
from codea1_cli.durable import write_atomic
from codea1_cli.errors import counted
from codea1_cli.evals.wrong_programs import programs_to_try
from codea1_cli.extract import Stated
from codea1_cli.extract.source import parse_call
from codea1_cli.extract.suite import readable, votes
from codea1_cli.game.pool import SHOWS_WRONG
from codea1_cli.judging.compare import numbered
from codea1_cli.judging.judge import Judge, own_calls, well_formed
from codea1_cli.judging.step_judge import OWN_CALLS
from codea1_cli.problems.problem import Problem, literal_types, public_problem, write_problems
from codea1_cli.sandbox.base import in_order
from codea1_cli.sandbox.values import show
from codea1_cli.sandbox.verdicts import Verdict

UNSCORED = "the sandbox failed on it"


@dataclass(frozen=True)
class GoldenOptions:
    """tests: of a problem at most, those that most suites agree on. validate: only tests that state the reference's
    answer. min_exposed: wrong programs that a problem's tests expose at least."""

    tests: int = 8
    validate: bool = False
    min_exposed: int = 0


@dataclass(frozen=True)
class Golden:
    """One problem's tests, or `why` it has none.

    asserts: those of its suites that are tests and state a value; distinct: calls and values among them; calls: those
    whose most stated value may be a test; contradicted: calls of which suites state several values; unfit: calls that
    are none of this function. With a reference, and else None: right: the calls whose most stated value is the
    reference's; right_kept: of the `tests`; exposed: of the `tried` programs, those that fail one of these.
    """

    tests: tuple[str, ...] = ()
    why: str = ""
    asserts: int = 0
    distinct: int = 0
    calls: int = 0
    contradicted: int = 0
    unfit: int = 0
    right: int | None = None
    right_kept: int | None = None
    exposed: int | None = None
    tried: int | None = None


@dataclass(frozen=True)
class _Voted:
    call: str
    value: Stated
    votes: int
    source: str


def golden_tests(problem: Problem, suites: Sequence[str], options: GoldenOptions, judge: Judge) -> Golden:
    """The tests of one problem from the replies of a Test LLM. `programs_to_try` are the wrong programs, those that a
    test shows to be wrong; mutants that are none are among those tried."""
    if not problem.reference and (options.validate or options.min_exposed):
        return Golden(
            why=f"it has no reference {'to validate by' if options.validate else 'to tell what its tests expose'}"
        )
    read = {call: values for call, values in votes(suites, problem.entry_point).items() if values and readable(call)}
    stated = {call: values for call, values in read.items() if _fits(call, problem)}
    ranked, distinct, contradicted = list[_Voted](), 0, 0
    for call, values in stated.items():
        kinds = Counter(numbers := numbered(values, judge.equal))
        distinct, contradicted = distinct + len(kinds), contradicted + (len(kinds) > 1)
        number, count = kinds.most_common(1)[0]
        value = values[numbers.index(number)]
        ranked.append(_Voted(call, value, count, f"assert {call} == {show(value.value)}"))
    ranked = [one for one in ranked if len(one.source) <= LONGEST and _states(one, problem.entry_point, judge)]
    ranked.sort(key=lambda one: -one.votes)  # stable: equals stay in the order in which they were written
    asserts, unfit = sum(map(len, stated.values())), len(read) - len(stated)
    found = Golden((), "", asserts, distinct, len(ranked), contradicted, unfit)
    if not ranked:
        return replace(found, why="the model wrote no test of it")
    if not problem.reference:
        return replace(found, tests=tuple(one.source for one in ranked[: options.tests]))
    own, entry = own_calls(problem)[:OWN_CALLS], problem.entry_point
    expected = judge.expected(problem.reference, entry, [one.call for one in ranked], own)
    if any(answer.reason == "unscored" for answer in expected.values()):
        return replace(found, why=UNSCORED)
    answers = {call: answer.value for call, answer in expected.items() if answer.valid}
    right = {one.call for one in ranked if one.call in answers and judge.equal(answers[one.call], one.value.value)}
    kept = [one for one in ranked if one.call in right or not options.validate][: options.tests]
    sound = [one.call for one in kept if one.call in right]
    found = replace(found, right=len(right), right_kept=len(sound))
    if not kept:
        return replace(found, why="no test of it states the reference's answer")
    results = [judge.check(program, entry, sound, expected, stop_late=True) for program in programs_to_try(problem)]
    loaded = [{test.verdict for test in one.verdicts.values()} for one in results if one.loaded]
    if any(one.loaded is None for one in results) or any(Verdict.UNSCORED in verdicts for verdicts in loaded):
        return replace(found, why=UNSCORED)
    exposed = sum(not verdicts.isdisjoint(SHOWS_WRONG) for verdicts in loaded)
    found = replace(found, exposed=exposed, tried=len(loaded))
    if exposed < options.min_exposed:
        return replace(found, why=f"its tests expose fewer than {counted(options.min_exposed, 'wrong program')}")
    return replace(found, tests=tuple(one.source for one in kept))


def _fits(call: str, problem: Problem) -> bool:
    """Whether a call passes as many arguments as some own test of the problem, each of a type that own tests pass
    there; true where they do not say."""
    mine = literal_types(parse_call(call))
    own = [types for one in own_calls(problem) if (types := literal_types(parse_call(one)))]
    if mine is None or not own:
        return True
    alike = [types for types in own if len(types) == len(mine)]
    return bool(alike) and all(kind in {types[at] for types in alike} for at, kind in enumerate(mine))


def _states(one: _Voted, entry_point: str, judge: Judge) -> bool:
    """Whether the text of a test says what it is to say: not every value has a literal."""
    read = well_formed([one.source], entry_point)
    stated = read[0].stated if len(read) == 1 and read[0].call == one.call else None
    return stated is not None and judge.equal(one.value.value, stated.value)


def with_tests(problem: Problem, golden: Golden, by: str) -> Problem:
    """The problem with these tests alone, `by` whom; without its reference. What types of arguments it takes is told as
    its own tests show it, so that a model is shown the same as with them."""
    public = public_problem(problem)
    meta = {**problem.meta, **public.meta, "tests_by": by}
    change = {"reference": "", "tests": list(golden.tests), "meta": meta, "source": problem.source}
    return public.model_copy(update={**change, "license": problem.license})


def make_golden(
    problems: Sequence[Problem], suites: Mapping[str, Sequence[str]], options: GoldenOptions, judge: Judge
) -> Generator[Golden, None, None]:
    """The tests of each problem, in order, as they are there. suites: by the problem's id, as far as asked for."""

    def make(problem: Problem) -> Golden:
        return golden_tests(problem, suites.get(problem.id, ()), options, judge)

    with closing(in_order(make, problems, judge.sandbox.workers)) as results:
        for _, golden in results:
            yield golden


def golden_card(made: Iterable[Golden], options: GoldenOptions, about: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the set, for programs; about: what made it.

    duplicates: asserts that another one of the problem repeats. stated_rightly: of the calls of problems with a
    reference, the share whose most stated value is right; stated_rightly_kept: of the tests that are written.
    exposed: the share of wrong programs tried; exposing_none: problems whose tests expose none.
    """
    made = list(made)
    kept = [one for one in made if one.tests]
    known, told = [one for one in made if one.right is not None], [one for one in kept if one.exposed is not None]
    without = Counter(one.why for one in made if one.why)
    return {
        **about,
        **asdict(options),
        "version": __version__,
        "problems": len(made),
        "with_tests": len(kept),
        "without": dict(sorted(without.items(), key=lambda item: (-item[1], item[0]))),
        "tests": sum(len(one.tests) for one in kept),
        "tests_per_problem": dict(sorted(Counter(len(one.tests) for one in kept).items())),
        "asserts": sum(one.asserts for one in made),
        "duplicates": sum(one.asserts - one.distinct for one in made),
        "calls": sum(one.calls for one in made),
        "contradicted": sum(one.contradicted for one in made),
        "unfit": sum(one.unfit for one in made),
        "with_reference": len(known),
        "stated_rightly": _share((one.right for one in known), sum(one.calls for one in known)),
        "stated_rightly_kept": _share((one.right_kept for one in told), sum(len(one.tests) for one in told)),
        "exposed": _share((one.exposed for one in told), sum(one.tried or 0 for one in told)),
        "exposing_none": sum(one.exposed == 0 for one in told),
    }


def _share(parts: Iterable[int | None], whole: int) -> float | None:
    return sum(part or 0 for part in parts) / whole if whole else None


def write_golden(
    file: Path, problems: Sequence[Problem], made: Sequence[Golden], card: Mapping[str, Any], command: str
) -> None:
    """Writes the problems that have tests, and their card beside them: `NAME.card.json` first, since by it the next
    call knows the other files as its own, and `NAME.md` to read."""
    by = str(card.get("model", ""))
    write_atomic(beside(file, ".card.json"), json.dumps(card, indent=1) + "\n")
    write_problems(file, [with_tests(one, tests, by) for one, tests in zip(problems, made, strict=True) if tests.tests])
    rows = [(name, _text(value)) for name, value in card.items() if not isinstance(value, dict)]
    text = [
        f"# {counted(card['with_tests'], 'problem')} with {counted(card['tests'], 'test')} by {by}",
        f"Made by codea1 {__version__} with\n\n    {command}",
        table(("", ""), rows),
        table(("tests", "problems"), buckets(card["tests_per_problem"])),
        table(("why a problem has none", "problems"), list(card["without"].items())),
    ]
    write_atomic(beside(file, ".md"), "\n\n".join(text) + "\n")


def _text(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, float) else str(value)


def beside(file: Path, ending: str) -> Path:
    """The file of that ending beside a golden set."""
    return file.with_name(file.name.removesuffix(".gz").rpartition(".")[0] + ending)
