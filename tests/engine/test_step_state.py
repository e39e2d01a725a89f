"""What the Test LLM is shown in the place of candidates that seem right; a fault ends whoever waits."""

import asyncio
from types import SimpleNamespace

import pytest

from codea1_cli.engine.step_state import StepState
from codea1_cli.game.judged_tests import JudgedCandidate, JudgedTest
from codea1_cli.game.pool import PoolMember
from codea1_cli.game.rules import Game
from codea1_cli.judging.step_judge import Candidate, StepCandidate
from codea1_cli.sandbox.verdicts import Verdict

FAILS = (JudgedTest("assert f(1) == 2", "f(1)", True, verdict=Verdict.FAILED),)
CANDIDATES = [
    Candidate("", "wrong", True, own=FAILS),
    Candidate("", "right", True),
    Candidate("", "broken", False),
    Candidate("", "as right", True),
    Candidate("", "right too", True),
]
POOL = tuple(PoolMember(code, "assert f(1) == 2", True, 1) for code in ("old", "older", "oldest"))


class Judge:
    together = 1

    def __init__(self, rules):
        self.rules = rules

    def ask(self, function, problem, *arguments):
        return function(self, problem, *arguments)

    def load_candidates(self, problem, texts):
        return CANDIDATES

    def attacked(self, candidates):
        return [bool(candidate.loaded) for candidate in candidates]

    def owners(self, candidates):
        return list(range(len(candidates)))

    def judge_suites(self, problem, candidate, texts, book, later):
        return StepCandidate(candidate, JudgedCandidate(candidate.code, candidate.loaded))


def shown(sparring, number=1, pool=POOL):
    """What the Test LLM sees, and what is recorded of it, by candidate."""

    async def play():
        async def at_once(function, *arguments):
            return function(*arguments)

        rules = Game(sparring=sparring)
        step = StepState(number, Judge(rules), {"p": None}, at_once, lambda _: (), lambda _: pool, 7)
        await step.load_candidates({"p": [""]})
        views = await step.views("p")
        for index in range(len(CANDIDATES)):
            await step.judge_suites("p", index, ["a suite"] if views[index].attack else [])
        records = [await step.judged("p", index) for index in range(len(CANDIDATES))]
        assert [record.candidate for record in records] == CANDIDATES  # suites are judged on the candidate itself
        return [view.code for view in views], [record.shown for record in records]

    return asyncio.run(play())


def test_the_candidates_that_are_loaded_first_are_told_without_the_others():
    async def play():
        async def at_once(function, *arguments):
            return function(*arguments)

        step = StepState(1, Judge(Game()), dict.fromkeys("pq"), at_once, lambda _: (), lambda _: (), 7)
        asked = [asyncio.create_task(step.first_views("pq")) for _ in range(2)]
        await asyncio.sleep(0)
        asked.pop().cancel()  # whoever gives up waiting takes nothing from the others
        assert not asked[0].done()
        await step.load_candidates({"q": [""]})
        first, again = await asked[0], await step.first_views("pq")
        await step.load_candidates({"p": [""]})
        return list(first), list(again), list(await step.first_views("pq"))

    assert asyncio.run(play()) == (["q"], ["q"], ["p", "q"])


def test_only_candidates_that_seem_right_give_up_their_place():
    codes, records = shown(sparring=2)
    replaced = [index for index, code in enumerate(codes) if code != CANDIDATES[index].code]
    assert len(replaced) == 2
    assert set(replaced) <= {1, 3, 4}
    assert {codes[index] for index in replaced} <= {"old", "older", "oldest"}
    assert [record for record in records if record] == [codes[index] for index in replaced]


def test_no_more_than_there_are_and_none_without_sparring_or_a_pool():
    assert sum(code.startswith("old") for code in shown(sparring=9)[0]) == 3
    plain = ([candidate.code for candidate in CANDIDATES], [None] * len(CANDIDATES))
    assert shown(sparring=0) == shown(sparring=2, pool=()) == plain


def test_partners_depend_on_the_step_and_are_the_same_when_it_is_played_again():
    drawn = [shown(sparring=1, number=number)[0] for number in range(1, 9)]
    assert drawn == [shown(sparring=1, number=number)[0] for number in range(1, 9)]
    assert len({tuple(codes) for codes in drawn}) > 1


def test_the_judges_tail_is_counted_from_the_last_text_sampled(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("codea1_cli.engine.step_state.time", SimpleNamespace(monotonic=lambda: now[0]))

    async def slowly(function, *arguments):
        now[0] += 10.0
        return function(*arguments)

    async def play():
        step = StepState(1, Judge(Game()), {"p": None}, slowly, lambda _: (), lambda _: (), 7)
        now[0] += 5.0
        await step.load_candidates({"p": [""]})
        assert step.figures["judge_tail_s"] == 10.0
        await step.judge_suites("p", 0, ["a suite"])
        assert step.figures["judge_tail_s"] == 10.0
        await step.judge_suites("p", 1, [])  # nobody has sampled anything for that
        assert step.figures["judge_tail_s"] == 20.0

    asyncio.run(play())


def test_how_far_a_step_is():
    async def play():
        async def at_once(function, *arguments):
            return function(*arguments)

        step = StepState(1, Judge(Game()), {"p": None, "q": None}, at_once, lambda _: (), lambda _: (), 7)
        waiting = [asyncio.create_task(step.candidates(pid)) for pid in ("p", "q")]
        await step.load_candidates({"p": [""]})
        seen = [step.progress]
        await step.load_candidates({"q": [""]})
        waiting += [asyncio.create_task(step.judged(pid, 0)) for pid in ("p", "q")]
        await asyncio.sleep(0)
        seen.append(step.progress)
        await step.judge_groups([("p", 0, ["a suite"]), ("q", 0, ["a suite"])])
        seen.append(step.progress)
        step.scored.set_result({})
        await asyncio.gather(*waiting)
        return [*seen, step.progress]

    assert asyncio.run(play()) == [
        {"problems sampled": (1, 2)},
        {"attacked": (0, 10), "judged": (0, 10)},
        {"attacked": (2, 10), "judged": (2, 10)},
        {},
    ]


def test_a_fault_at_loading_reaches_whoever_waits_for_the_candidates():
    """Nobody waits for the call that posts them."""

    async def play():
        async def fail(*_):
            raise ZeroDivisionError

        step = StepState(1, Judge(Game()), {"p": None}, fail, lambda _: (), lambda _: POOL, 7)
        await step.load_candidates({"p": [""]})
        for waiting in (step.views, step.candidates):
            with pytest.raises(ZeroDivisionError):
                await waiting("p")

    asyncio.run(play())
