"""Golden tests: GRPO of a Code LLM alone, paid by what its candidates pass of each problem's own tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from codea1_cli.errors import UserError, counted
from codea1_cli.game import Entries
from codea1_cli.game.judged_tests import UNSCORED, JudgedCandidate
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import ProblemOutcome, Stats, merge_stats, signal_share
from codea1_cli.judging.judge import own_calls
from codea1_cli.judging.step_judge import Candidate, JudgedProblem, StepCandidate, StepJudge
from codea1_cli.methods.base import Method, Rollouts, SamplePlan, Step
from codea1_cli.methods.code_a1 import number, percent
from codea1_cli.methods.rollouts import CodeRollouts
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.verdicts import Verdict

UNTESTED = "it has no tests of its own"


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
        return judge.reference_fault(problem) if own_calls(problem) else UNTESTED

    def left_out(self, problems: Sequence[Problem]) -> dict[str, str]:
        found = {problem.id: UNTESTED for problem in problems if not own_calls(problem)}
        if problems and len(found) == len(problems):
            raise UserError(
                f"none of {counted(len(problems), 'problem')} to train on has tests of its own, and method={self.name} "
                "is paid by them",
                hint="write-tests --problems has a Test LLM write them, see its --help; or set another method",
            )
        return found

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
