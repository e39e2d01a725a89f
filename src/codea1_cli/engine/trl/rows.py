"""The rows that a rollout hands to TRL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Group:
    """The suites sampled for one candidate: one prompt, n completions, and log-probs where the engine reports them."""

    prompt: list[int]
    completions: list[list[int]]
    logprobs: list[list[float]] | None


class Rows:
    """The columns of a rollout; a row without a reward is masked, so that neither loss, KL nor token mean sees it."""

    def __init__(self, with_logprobs: bool, group: int) -> None:
        self.prompt_ids: list[list[int]] = []
        self.completion_ids: list[list[int]] = []
        self.logprobs: list[list[float]] | None = [] if with_logprobs else None
        self.env_mask: list[list[int]] = []
        self.suite_reward: list[float | None] = []
        self.group = group

    def __len__(self) -> int:
        return len(self.prompt_ids)

    def add(self, group: Group, rewards: Sequence[float | None]) -> None:
        for i in range(self.group):
            tokens = group.completions[i]
            self.prompt_ids.append(group.prompt)
            self.completion_ids.append(tokens)
            if self.logprobs is not None:
                self.logprobs.append(group.logprobs[i] if group.logprobs is not None else [0.0] * len(tokens))
            self.env_mask.append([0 if rewards[i] is None else 1] * len(tokens))
            self.suite_reward.append(rewards[i])

    def columns(self) -> dict[str, Any]:
        return {
            "prompt_ids": self.prompt_ids,
            "completion_ids": self.completion_ids,
            "logprobs": self.logprobs,
            "env_mask": self.env_mask,
            "suite_reward": self.suite_reward,
        }
