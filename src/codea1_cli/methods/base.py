"""What a training method is. Whoever adds one writes a class, as in `code_a1` or `sft`, and a row in `registry`.

The driver, the arena, the run writer, the checkpoint, the plan and the step line know the policies of a run and the
roles that these play only from its method: they loop over `Method.policies` or `Method.roles` and ask for the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from codea1_cli.game.mistake_book import Entries
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import ProblemOutcome
from codea1_cli.judging.step_judge import Candidate, JudgedProblem, StepCandidate, StepJudge
from codea1_cli.problems.problem import Problem

if TYPE_CHECKING:
    from codea1_cli.methods.registry import Named

Ids = list[int]
OnChunk = Callable[[list[int], list[list[Ids]]], None]
More = Callable[[], list[Ids]]  # prompts that have come since it was called last


@dataclass(frozen=True)
class SamplePlan:
    """What one role samples per problem in a step, and what its policy learns from.

    sampled: completions sampled. group: completions that GRPO compares with each other. groups: groups trained on.
    """

    sampled: int
    group: int
    groups: int


class Step(Protocol):
    """One step as the arena sees it (`engine.step_state.Step`): what the ranks have posted, and the judge."""

    async def candidates(self, problem_id: str) -> list[Candidate]:
        """The problem's candidates in the order sampled, loaded; waits until they are posted."""

    async def judge_suites(self, problem_id: str, index: int, texts: Sequence[str]) -> None:
        """Runs the suites `texts` and the replayed Mistake Book on candidate `index`; on one that goes into the pool
        `judge_pool` does."""

    async def judged(self, problem_id: str, index: int) -> StepCandidate:
        """What `judge_suites` came to for candidate `index`; waits until its suites are posted and judged."""

    async def judge_pool(self, problem_id: str, candidates: Sequence[StepCandidate]) -> JudgedProblem:
        """The problem's candidates with all that ran on them, and its pool, in a game that has one."""

    def attacked(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Which of a problem's candidates the Test LLM writes suites for."""

    def owners(self, candidates: Sequence[Candidate]) -> list[int]:
        """For each candidate the index of the one whose suites it is judged by."""


@dataclass(frozen=True)
class CandidateView:
    """What the Test LLM sees in a candidate's place, mostly itself; `attack` is False when no suite is wanted."""

    code: str
    attack: bool


@dataclass(frozen=True)
class SuiteResults:
    """One problem's outcome for the Test LLM: `rewards[candidate][suite]`, and the candidates to learn from."""

    rewards: Sequence[Sequence[float | None]]
    selected: Sequence[int]


class Exchange:
    """What a rank's rollouts ask of the arena, an actor of Ray: one typed call per method of `engine.arena.Arena`, held
    together by a test. All block until it answers, except `post_candidates`, `post_suites` and `skip_suites`."""

    def __init__(self, arena: Any) -> None:
        self._arena = arena

    @staticmethod
    def _wait(answer: Any) -> Any:
        import ray

        return ray.get(answer)

    @staticmethod
    def _is_there(answer: Any) -> bool:
        import ray

        return bool(ray.wait([answer], timeout=0)[0])

    def substitutes(self, step: int) -> dict[str, str]:
        """By id of a problem that has left, the one played in its place; known once the step before is scored."""
        return self._wait(self._arena.substitutes.remote(step))

    def post_candidates(self, step: int, texts: dict[str, list[str]]) -> None:
        """Posts candidates by problem id, all of a problem's at once; they are loaded at once, and nobody waits."""
        self._arena.post_candidates.remote(step, texts)

    def finish_candidates(self, step: int, ids: Sequence[str]) -> dict[str, list[float | None]]:
        """After a rank's last candidate: the rewards of these problems' candidates, when the whole step is scored."""
        return self._wait(self._arena.finish_candidates.remote(step, ids))

    def next_candidates(self, step: int, ids: Sequence[str]) -> Callable[[bool], dict[str, list[CandidateView]]]:
        """Asks for candidates of these problems. The answer waits for those loaded first, or with False for none."""
        asked = self._arena.next_candidates.remote(step, ids)
        return lambda wait: self._wait(asked) if wait or self._is_there(asked) else {}

    def post_suites(self, step: int, groups: Sequence[tuple[str, int, list[str]]]) -> None:
        """Posts (problem id, candidate, suites); judging starts at once, and nobody waits."""
        self._arena.post_suites.remote(step, groups)

    def skip_suites(self, step: int, keys: Sequence[tuple[str, int]]) -> None:
        """Names the (problem id, candidate) pairs that get no suites, because the prompt is too long."""
        self._arena.skip_suites.remote(step, keys)

    def finish_suites(self, step: int, ids: Sequence[str]) -> dict[str, SuiteResults]:
        """After a rank's last suite: the outcome of these problems, when the whole step is scored."""
        return self._wait(self._arena.finish_suites.remote(step, ids))


class Rank(Protocol):
    """One rank of a policy as its rollouts see it (`engine.trl.rank.TrainingRank`)."""

    label: str
    game: Game
    staleness: int  # how many steps ahead candidates are sampled (`train.staleness`)
    plans: dict[str, SamplePlan]  # by role that the policy plays
    problems: Mapping[str, Problem]  # without references: a policy's process has no use for one
    max_prompt_tokens: dict[str, int]  # by role
    figures: dict[str, dict[str, float]]  # of the step by role, beside TRL's

    @property
    def arena(self) -> Exchange:
        """The calls to the arena."""

    @property
    def step(self) -> int:
        """The step at work, counted from 1."""

    @property
    def tokenizer(self) -> Any:
        """The policy's own."""

    @property
    def reports_logprobs(self) -> bool:
        """Whether the sampling engine reports log-probs (vLLM does)."""

    def scheduled(self, step: int) -> list[str]:
        """The problems of TRL's rows on this rank in a step, by id, before any is substituted."""

    def problem_ids(self, step: int) -> list[str]:
        """The rank's problems of a step: those scheduled, then its share of the spare ones (`train.spare_problems`),
        with others in the place of those that have left. None beyond the run's last step."""

    def waiting(self, role: str) -> AbstractContextManager[None]:
        """Around a call that waits for the arena: a hang inside is not blamed on this rank."""

    def sampling(self, role: str) -> AbstractContextManager[None]:
        """Around what the rank samples itself."""

    def count_tokens(self, role: str, completions: Sequence[Sequence[int]]) -> None:
        """Counts sampled tokens for the step's report."""

    def update_begins(self) -> None:
        """The rewards are there: what follows is TRL's update."""

    def sync_weights(self) -> None:
        """Brings the policy's weights into the sampling engine. A collective under FSDP2: every rank calls it."""

    @property
    def takes_more(self) -> bool:
        """Whether prompts may join those that are being sampled."""

    def sample(
        self, role: str, prompts: Sequence[Ids], n: int, on_chunk: OnChunk | None = None, more: More = list
    ) -> tuple[list[list[Ids]], list[list[list[float]]] | None]:
        """`n` completions per prompt, as long as the role's may be: token ids [prompt][n][tokens], and log-probs in the
        same shape or None. Those for prompts that `more` gave come last."""

    def log_probs(self, prompts: Sequence[Ids], completions: Sequence[Sequence[Ids]]) -> list[list[list[float]]]:
        """The policy's log-probs of completions [prompt][n][tokens], in the same shape."""


class Rollouts(ABC):
    """How one rank of a policy gets its completions and rewards. TRL calls both, `rollout` first."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    @abstractmethod
    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """TRL's rollout function: a step's columns, as many rows as prompts, each of which is a bare problem id."""

    @abstractmethod
    def reward(self, *args: Any, **kwargs: Any) -> list[float | None]:
        """TRL's reward function, given the rollout's columns by name: a reward per completion, None where unscored."""

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps for the next step, as JSON; None for nothing."""
        return None

    def restore(self, state: dict[str, Any]) -> None:
        """Takes up what `state` gave."""
        raise NotImplementedError


class Method(ABC):
    """One way to train. Stateless: the driver, the arena and every rank have their own instance."""

    name: ClassVar[str]
    roles: tuple[str, ...]
    """The roles that are played, `code` first; each has a section of that name in the recipe."""

    ignores: ClassVar[tuple[str, ...]] = ()
    """Keys and sections of a recipe that it has no use for: a recipe that names the method may not set them."""

    needs_reference: ClassVar[bool] = True
    """Whether a problem without a reference solution is an error."""

    pairs: ClassVar[bool] = False
    """Whether it learns from pairs (`data.pairs`): it has no rollouts then, and only held-out samples are judged."""

    @classmethod
    def of(cls, recipe: Named) -> Method:
        """The method as a recipe wishes it."""
        return cls()

    @classmethod
    def also_ignores(cls, keys: Mapping[str, Any]) -> dict[str, str]:
        """Keys and sections beside `ignores` that settings in a recipe's nested `keys` leave unused, and which does."""
        return {}

    def policy(self, role: str) -> str:
        """The policy that plays a role, named as the first that it plays, whose section of the recipe is its own."""
        return role

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that are trained, by name."""
        return tuple(dict.fromkeys(map(self.policy, self.roles)))

    def roles_of(self, policy: str) -> tuple[str, ...]:
        """The roles that a policy plays."""
        return tuple(role for role in self.roles if self.policy(role) == policy)

    def own_tests(self, game: Game) -> int | None:
        """How many of a problem's own tests run on a candidate when it is loaded; None: all."""
        return 0

    def problem_fault(self, judge: StepJudge, problem: Problem) -> str | None:
        """Why a problem is left out of the run; None for one that can be used.

        Raises:
            EnvironmentFault: the sandbox failed.
        """
        return judge.reference_fault(problem)

    def left_out(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Of problems to train on those that can be told to be of no use before anything runs, by id, and why. Raises
        UserError where all are."""
        return {}

    def notes(self, problems: Sequence[Problem]) -> list[str]:
        """What is told of problems to train on before anything runs, beside those that are left out."""
        return []

    @abstractmethod
    def plan(self, game: Game, role: str) -> SamplePlan:
        """What a role samples per problem, and what is learnt from."""

    @abstractmethod
    def rollouts(self, policy: str) -> type[Rollouts]:
        """How a policy gets its completions and rewards."""

    @abstractmethod
    async def judge(self, step: Step, problem_id: str) -> JudgedProblem:
        """Waits for what the ranks post on a problem and judges it."""

    @abstractmethod
    def score(self, game: Game, book: Entries, judged: JudgedProblem, problem_id: str) -> ProblemOutcome:
        """Rewards of both sides, the groups to learn from and the Mistake Book's events. Pure."""

    @abstractmethod
    def figures(self, game: Game, outcomes: Mapping[str, ProblemOutcome]) -> dict[str, Any]:
        """The step's figures for `arena` in metrics.jsonl."""

    @abstractmethod
    def step_line(self, line: Mapping[str, Any]) -> list[str]:
        """The terminal's step line between the step's number and its seconds, from a line of metrics.jsonl: groups of
        figures that belong together, two spaces between the figures of a group."""
