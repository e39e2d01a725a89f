"""A throw-away method with a single role: a candidate that loads earns 1, any other 0."""

from dataclasses import replace

from codea1_cli.game.scoring import JudgedCandidate, ProblemOutcome
from codea1_cli.judging.step_judge import JudgedProblem, StepCandidate
from codea1_cli.methods.base import Method, SamplePlan
from codea1_cli.methods.rollouts import CodeRollouts


class OneRole(Method):
    name = "one-role"
    roles = ("code",)

    def plan(self, game, role):
        return SamplePlan(sampled=game.n_code, group=game.n_code, groups=1)

    def rollouts(self, role):
        return CodeRollouts

    async def judge(self, step, problem_id):
        candidates = await step.candidates(problem_id)
        loaded = [(replace(one, load_detail=""), JudgedCandidate(one.code, one.loaded)) for one in candidates]
        return JudgedProblem([StepCandidate(*one) for one in loaded])

    def score(self, game, book, judged, problem_id):
        none = [[] for _ in judged.candidates]
        return ProblemOutcome(
            [float(one.candidate.loaded is True) for one in judged.candidates], none, none, [], (), book
        )

    def figures(self, game, outcomes):
        rewards = [reward for outcome in outcomes.values() for reward in outcome.code_rewards]
        return {"loaded_share": sum(rewards) / len(rewards), "unscored": 0}

    def step_line(self, line):
        return [f"loaded {line['arena']['loaded_share']:.2f}"]
