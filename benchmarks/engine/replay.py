"""Code-A1 with what is sampled replaced by what a real run sampled, and every reply of the same length: for timing.

`method=replay:Replay`. The engine samples and the policies learn as always, but replies have exactly `max_completion_tokens` tokens, and the arena is shown the
recorded programs and suites of the same problems (`CODEA1_REPLAY`, a file that run.py makes): the judge has real work, and two schedules the same tokens.
"""

import json
import os
from functools import cache
from itertools import cycle, islice
from pathlib import Path

from codea1_cli.methods.code_a1 import CodeA1
from codea1_cli.methods.rollouts import CodeRollouts, TestRollouts


@cache
def recorded() -> dict[str, dict[str, list]]:
    """By problem its `code`, candidates as they were sampled, and its `suites`, those against each of them."""
    return json.loads(Path(os.environ["CODEA1_REPLAY"]).read_text(encoding="utf-8"))


def whole_length(trainer, tokens: int) -> None:
    """Has every reply take exactly `tokens` tokens, whatever the engine."""
    if trainer.use_vllm:
        trainer.vllm_generation.generation_kwargs |= {"min_tokens": tokens, "ignore_eos": True}
    else:
        trainer.generation_config.min_new_tokens = tokens


class Replayed:
    """Mixed into a role's rollouts."""

    def rollout(self, prompts, trainer):
        whole_length(trainer, trainer.args.max_completion_length)
        return super().rollout(prompts, trainer)

    def sample_groups(self, role, prompts, post, more=dict):
        def real(texts):
            post({key: list(islice(cycle(self.real(role, key)), len(group))) for key, group in texts.items()})

        return super().sample_groups(role, prompts, real, more)

    @staticmethod
    def real(role, key):
        if role == "code":
            return recorded()[key]["code"]
        suites = recorded()[key[0]]["suites"]
        return suites[key[1] % len(suites)]


class ReplayedCode(Replayed, CodeRollouts):
    """The Code LLM's."""


class ReplayedTest(Replayed, TestRollouts):
    """The Test LLM's."""

    __test__ = False


class Replay(CodeA1):
    """Code-A1 on recorded programs and suites."""

    name = "replay"

    def rollouts(self, policy):
        return ReplayedCode if policy == "code" else ReplayedTest
