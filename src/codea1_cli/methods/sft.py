"""sft: supervised fine-tuning on pairs of prompt and completion, of one policy or of both side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from codea1_cli.game.rules import Game, Positive
from codea1_cli.methods.base import Method, SamplePlan
from codea1_cli.methods.code_a1 import number, percent
from codea1_cli.methods.registry import ROLES, Named

READ = ("mode", "tests_per_suite", "white_box")  # of the game: how replies are read, and what suites are asked for


Rate = Annotated[float, Field(gt=0.0)]


class Pairs(BaseModel):
    """The recipe's section `sft`."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    role: Literal["code", "test", "both", "one"] = Field(
        "code", description="the policy that method=sft trains; both: two, side by side; one: one for both roles"
    )
    code: str | None = Field(
        None,
        description="the Code LLM's pairs, a .jsonl, .jsonl.gz or .parquet file; null: made of the training problems",
    )
    test: str | None = Field(None, description="the Test LLM's pairs, likewise")
    learning_rate: Rate | None = Field(None, description="null: 2.0e-5, or optim.learning_rate where that is higher")

    def rate(self, other: float) -> float:
        """The learning rate where that of other methods is `other`."""
        return self.learning_rate or max(2e-5, other)


class Warmup(BaseModel):
    """The recipe's section `warmup`."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    steps: Positive = Field(60, description="optimizer steps of each policy")
    pairs_per_step: Positive = Field(32, description="pairs of an optimizer step")


def asked_as(game: Game, longest: int, tests: int, white_box: bool) -> list[str]:
    """What a recipe with this game is told to train the Test LLM on pairs that were made for so many tests, with the
    wrong program or without it. longest: its `test.max_completion_tokens`."""
    found = [f"game.tests_per_suite={tests}"] if tests != game.tests_per_suite else []
    if tests > game.tests_per_suite:
        found.append(f"test.max_completion_tokens={math.ceil(longest * tests / game.tests_per_suite)}")
    return found + ["game.white_box=false"] * (game.white_box and not white_box)


class Sft(Method):
    """A step is `train.problems_per_step` pairs of each policy; nothing is sampled or judged in it."""

    name = "sft"
    roles: tuple[str, ...] = ("code",)
    one = False
    """Whether one policy plays both roles, and learns from the pairs of both."""

    ignores = (
        *(f"game.{key}" for key in Game.model_fields if key not in READ),
        *(f"optim.{key}" for key in ("epsilon_low", "epsilon_high", "dual_clip", "kl", "loss", "scale_rewards")),
        *(
            f"sampling.{key}"
            for key in ("vllm_memory", "vllm_eager", "vllm_compile", "vllm_sleep", "importance_correction")
        ),
        *(f"optim.{key}" for key in ("mask_truncated", "charge_truncated", "mask_flat")),
        "code.weight",
        "test.weight",
        "train.equal_budget",
        "train.spare_problems",
        "train.staleness",
        "data.leave_flat",
        "sampling.engine",
        "sampling.seed_by_prompt",
        "data.solve_rate",
        "warmup",
        "preflight.problems",
        "preflight.samples",
    )
    needs_reference = False
    pairs = True

    @classmethod
    def of(cls, recipe: Named) -> Sft:
        method = cls()
        method.one = recipe.sft.role == "one"
        method.roles = ROLES if method.one or recipe.sft.role == "both" else (recipe.sft.role,)
        return method

    @classmethod
    def also_ignores(cls, keys: Mapping[str, Any]) -> dict[str, str]:
        role = (keys.get("sft") or {}).get("role", "code")
        of_suites = ("test", "sft.test", "game.tests_per_suite", "game.white_box")
        unused = {
            "code": (*of_suites, "eval.wrong_per_problem", "eval.targets"),
            "test": ("code", "sft.code", "eval.n"),
            "one": ("test.model", "test.gpus", "test.ranks", "test.learning_rate"),
        }
        return dict.fromkeys(unused.get(str(role), ()), f"sft.role={role}")

    def policy(self, role: str) -> str:
        return self.roles[0] if self.one else role

    def plan(self, game: Game, role: str) -> SamplePlan:
        return SamplePlan(sampled=0, group=1, groups=1)

    def figures(self, game: Game, outcomes: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def step_line(self, line: Mapping[str, Any]) -> list[str]:
        return [
            f"{role} loss {number(line[role].get('loss'))}  token accuracy "
            f"{percent(line[role].get('token_accuracy'), 0)}"
            for role in self.policies
        ]

    def rollouts(self, policy: str) -> NoReturn:
        """There are none, nor anything to judge or to score: the policy learns from pairs."""
        raise NotImplementedError("sft samples nothing in a step")

    async def judge(self, step: Any, problem_id: str) -> NoReturn:
        self.rollouts(problem_id)

    def score(self, game: Game, book: Any, judged: Any, problem_id: str) -> NoReturn:
        self.rollouts(problem_id)
