"""The methods of the paper. Code-A1: a Code LLM and a Test LLM with weights of their own, trained against each other
(docs/method.md). Self-play: the same game between a policy and itself; one set of weights plays both roles and learns
from both in one update. Golden tests: GRPO of a Code LLM alone, paid by what its candidates pass of each problem's own
tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from codea1_cli.errors import UserError, counted
from codea1_cli.extract.pytests import convert_tests
from codea1_cli.game.judged_tests import UNSCORED, JudgedCandidate
from codea1_cli.game.mistake_book import Entries
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import ProblemOutcome, Stats, merge_stats, score_problem, select, signal_share
from codea1_cli.judging.judge import own_calls, own_tests
from codea1_cli.judging.step_judge import OWN_CALLS, Candidate, JudgedProblem, StepCandidate, StepJudge
from codea1_cli.methods.base import Method, Rollouts, SamplePlan, Step
from codea1_cli.methods.rollouts import CodeRollouts, SelfPlayRollouts, TestRollouts
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.verdicts import Verdict

UNTESTED = "it has no tests of its own"
UNREAD = "none of its own tests is an equality that can be read (assert f(...) == value)"


class CodeA1(Method):
    """Two policies; each candidate is attacked by suites, and both learn from what the tests find."""

    name = "code-a1"
    roles = ("code", "test")
    ignores: ClassVar[tuple[str, ...]] = ("game.golden", "code.weight", "test.weight", "train.equal_budget")

    @classmethod
    def also_ignores(cls, keys: Mapping[str, Any]) -> dict[str, str]:
        game = keys.get("game") or {}
        alone = {"kill": "own", "mode": "paper", "validation": False}  # any of these: suites are not paid by a pool
        own = next((f"game.{key}={str(value).lower()}" for key, value in alone.items() if game.get(key) == value), "")
        found = dict.fromkeys(("game.trust", "game.pool_size"), own) if own else {}
        return found | ({"game.book_replay": "game.book=false"} if game.get("book") is False else {})

    def own_tests(self, game: Game) -> int | None:
        return OWN_CALLS if game.has_pool else 0

    def plan(self, game: Game, role: str) -> SamplePlan:
        if role == "code":
            return SamplePlan(sampled=game.n_code, group=game.n_code, groups=1)
        return SamplePlan(sampled=game.n_code * game.n_test, group=game.n_test, groups=game.update_n)

    def rollouts(self, policy: str) -> type[Rollouts]:
        return CodeRollouts if policy == "code" else TestRollouts

    async def judge(self, step: Step, problem_id: str) -> JudgedProblem:
        candidates = await step.candidates(problem_id)
        owners, attacked = step.owners(candidates), step.attacked(candidates)
        alone = [index for index, owner in enumerate(owners) if owner == index and not attacked[index]]
        # A candidate that nobody attacks is judged on the Mistake Book alone.
        await asyncio.gather(*(step.judge_suites(problem_id, index, []) for index in alone))
        judged = [
            replace(await step.judged(problem_id, owner), candidate=candidate)
            for candidate, owner in zip(candidates, owners, strict=True)
        ]
        return await step.judge_pool(problem_id, judged)

    def score(self, game: Game, book: Entries, judged: JudgedProblem, problem_id: str) -> ProblemOutcome:
        outcome = score_problem(game, book, [one.game for one in judged.candidates], problem_id, judged.pool)
        if not game.share_identical:
            return outcome
        # Candidates that share one set of suites are one group to learn from, not several.
        seen: set[str] = set()
        rewards = []
        for one, row in zip(judged.candidates, outcome.suite_rewards, strict=True):
            rewards.append([] if one.candidate.code in seen else row)
            seen.add(one.candidate.code)
        return replace(outcome, selected=select(game, rewards))

    def figures(self, game: Game, outcomes: Mapping[str, ProblemOutcome]) -> dict[str, Any]:
        stats = merge_stats(outcome.stats for outcome in outcomes.values())
        candidates = stats.get("candidates", 0)
        code_groups = [o.code_rewards for o in outcomes.values()]
        test_groups = [o.suite_rewards[i] for o in outcomes.values() for i in o.selected]
        suites = [part for outcome in outcomes.values() for parts in outcome.suite_parts for part in parts]
        return {
            **{name: value for name, value in stats.items() if isinstance(value, (int, float))},
            "valid_share": stats.get("valid_share"),
            "kill_share": stats.get("kills", 0) / stats["valid_run"] if stats.get("valid_run") else None,
            "suite_validity": sum(part.validity for part in suites) / len(suites) if suites else None,
            "code_signal_share": signal_share(code_groups),
            "test_signal_share": signal_share(test_groups),
            "masked_groups": len(outcomes) * game.update_n - len(test_groups),
            "unscored": stats.get("candidates_unscored", 0) + stats.get("suites_unscored", 0),
            "unscored_share": stats.get("candidates_unscored", 0) / candidates if candidates else 0.0,
        }

    def step_line(self, line: Mapping[str, Any]) -> list[str]:
        arena, code, test = line["arena"], line["code"], line["test"]

        def share(key: str) -> str:
            return percent(arena.get(key), 0)

        return [
            f"code reward {number(code.get('reward'))}  signal {share('code_signal_share')}",
            f"test reward {number(test.get('reward'))}  exposed {share('exposed_share')}  "
            f"false alarm {share('false_alarm_share')}  valid {share('suite_validity')}  "
            f"stated rightly {share('stated_correctly_share')}",
            f"asserts {number(arena.get('asserts_per_suite'), 1)}  calls {number(arena.get('group_calls'), 0)}  "
            f"wrong {share('wrong_share')}",
            f"book {arena['book_tests']}",
        ]


class SelfPlay(CodeA1):
    """Code-A1's prompts, rewards, Mistake Book, pool and selection, with one policy in both roles."""

    name = "self-play"
    ignores = ("game.golden", "test.model", "test.gpus", "test.ranks", "test.learning_rate", "train.staleness")

    def policy(self, role: str) -> str:
        return "code"

    def rollouts(self, policy: str) -> type[Rollouts]:
        return SelfPlayRollouts


class GoldenTests(Method):
    """One policy; nobody writes tests, and no reference is needed where the problem's own tests state their answers."""

    name = "golden-tests"
    roles = ("code",)
    ignores = (
        *(f"game.{key}" for key in Game.model_fields if key not in ("mode", "n_code", "golden")),
        "test",
        "code.weight",
        "train.equal_budget",
        "eval.wrong_per_problem",
        "eval.targets",
    )
    needs_reference = False

    def own_tests(self, game: Game) -> int | None:
        return None

    def problem_fault(self, judge: StepJudge, problem: Problem) -> str | None:
        return _untested(problem) or judge.reference_fault(problem)

    def left_out(self, problems: Sequence[Problem]) -> dict[str, str]:
        found = {problem.id: why for problem in problems if (why := _untested(problem))}
        if problems and len(found) == len(problems):
            raise UserError(
                f"none of {counted(len(problems), 'problem')} has a test of its own that can be read, and "
                f"method={self.name} is paid by them: {next(iter(found.values()))}",
                hint="write-tests --problems has a Test LLM write them, see its --help; or set another method",
            )
        return found

    def notes(self, problems: Sequence[Problem]) -> list[str]:
        counts = [count for problem in problems if (count := _unread_tests(problem))]
        what = f"{counted(sum(counts), 'test')} of {counted(len(counts), 'problem')}"
        return [f"{what} cannot be read as a call and the value that it equals: they are not run"] if counts else []

    def plan(self, game: Game, role: str) -> SamplePlan:
        return SamplePlan(sampled=game.n_code, group=game.n_code, groups=1)

    def rollouts(self, policy: str) -> type[Rollouts]:
        return CodeRollouts

    async def judge(self, step: Step, problem_id: str) -> JudgedProblem:
        candidates = await step.candidates(problem_id)
        return JudgedProblem([StepCandidate(candidate, _judged(candidate)) for candidate in candidates])

    def score(self, game: Game, book: Entries, judged: JudgedProblem, problem_id: str) -> ProblemOutcome:
        candidates = [one.game for one in judged.candidates]
        none: list[list[Any]] = [[] for _ in candidates]
        rewards = [golden_reward(game, candidate) for candidate in candidates]
        return ProblemOutcome(rewards, none, none, [], (), book, _stats(candidates))

    def figures(self, game: Game, outcomes: Mapping[str, ProblemOutcome]) -> dict[str, Any]:
        stats = merge_stats(outcome.stats for outcome in outcomes.values())
        candidates, unscored = stats["candidates"], stats["candidates_unscored"]
        run = stats.get("tests_run", 0)
        return {
            **stats,
            "solved_share": stats["solved"] / (candidates - unscored) if candidates > unscored else None,
            "passed_share": stats["verdict_passed"] / run if run else None,
            "code_signal_share": signal_share([outcome.code_rewards for outcome in outcomes.values()]),
            "unscored": unscored,
            "unscored_share": unscored / candidates if candidates else 0.0,
        }

    def step_line(self, line: Mapping[str, Any]) -> list[str]:
        arena = line["arena"]
        return [
            f"code reward {number(line['code'].get('reward'))}  signal {percent(arena.get('code_signal_share'), 0)}",
            f"solved {percent(arena.get('solved_share'))}  tests passed {percent(arena.get('passed_share'))}",
            f"loaded {percent(arena.get('loaded_share'), 0)}",
        ]


def _untested(problem: Problem) -> str | None:
    if own_calls(problem):
        return None
    return UNREAD if problem.tests or problem.test_code else UNTESTED


def _unread_tests(problem: Problem) -> int:
    """How many of the own tests of a problem that has others are not read."""
    if not (read := own_tests(problem)):
        return 0
    if problem.tests:
        return max(len(problem.tests) - len(read), 0)
    return convert_tests(problem.test_code or "", problem.entry_point).unread.total()


def golden_reward(game: Game, candidate: JudgedCandidate) -> float | None:
    """The share of the problem's own tests that a candidate passes, or with `game.golden: all` 1 for every test and
    else 0; 0 when it does not load, None when it is unscored."""
    if not candidate.loaded:
        return None if candidate.loaded is None else 0.0
    passed = [test.verdict is Verdict.PASSED for test in candidate.own]
    return sum(passed) / len(passed) if game.golden == "share" else float(all(passed))


def _judged(candidate: Candidate) -> JudgedCandidate:
    """The candidate, unscored as a whole when one of its tests is, or none has an answer any more."""
    scored = bool(candidate.own) and not any(
        test.reason == UNSCORED or test.verdict is Verdict.UNSCORED for test in candidate.own
    )
    loaded = None if candidate.loaded and not scored else candidate.loaded
    return JudgedCandidate(candidate.code, loaded, own=candidate.own)


def _stats(candidates: list[JudgedCandidate]) -> Stats:
    """Counts of one problem: candidates, those that pass all tests (`solved`), and the tests run, by verdict."""
    counts: Counter[str] = Counter(candidates=len(candidates), solved=0, verdict_passed=0)
    counts["candidates_loaded"] = sum(candidate.loaded is True for candidate in candidates)
    counts["candidates_unscored"] = sum(candidate.loaded is None for candidate in candidates)
    for candidate in candidates:
        verdicts = [test.verdict for test in candidate.own if test.verdict is not None] if candidate.loaded else []
        counts["solved"] += bool(verdicts) and all(verdict is Verdict.PASSED for verdict in verdicts)
        counts["tests_run"] += len(verdicts)
        counts.update(f"verdict_{verdict.value}" for verdict in verdicts)
    return dict(counts)


def percent(value: float | None, digits: int = 1) -> str:
    """A share as the terminal shows it; n/a for None."""
    return "n/a" if value is None else f"{100 * value:.{digits}f}%"


def number(value: float | None, digits: int = 3) -> str:
    """A number as the step line shows it; n/a for None."""
    return "n/a" if value is None else f"{value:.{digits}f}"
