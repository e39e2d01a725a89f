"""Self-play: the game of Code-A1 between a policy and itself. One set of weights writes the candidates and the suites
that break them, and learns from both in one update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codea1_cli.methods.base import Ids, Rollouts
from codea1_cli.methods.code_a1 import CodeA1
from codea1_cli.methods.rollouts import Group, Rows, TestRollouts, problem_ids
from codea1_cli.models.loading import render
from codea1_cli.problems.prompts import code_messages


class SelfPlay(CodeA1):
    """Code-A1's prompts, rewards, Mistake Book, pool and selection, with one policy in both roles."""

    name = "self-play"
    ignores = ("game.golden", "test.model", "test.gpus", "test.ranks", "test.learning_rate")

    def policy(self, role: str) -> str:
        return "code"

    def rollouts(self, policy: str) -> type[Rollouts]:
        return SelfPlayRollouts


class SelfPlayRollouts(TestRollouts):
    """Candidates, and the suites against them. Of each problem come back, in this order, the candidates and the
    selected groups of suites."""

    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Samples all candidates and all suites of the step, and waits for the rewards of both."""
        rank = self.rank
        step, ids = rank.step, problem_ids(prompts)
        with rank.sampling("code"):
            rank.sync_weights()
            candidates = self._sample_candidates(step, ids)
        suites = self.sample_suites(step, ids)
        with rank.waiting("test"):
            results = rank.arena.finish_suites(step, ids)
            rewards = rank.arena.finish_candidates(step, ids)
        rank.update_begins()
        rows = Rows(rank.reports_logprobs)
        for pid in ids:
            rows.add(candidates[pid], rewards[pid])
            self.add_selected(rows, pid, suites, results[pid])
        return self.columns(rows, len(prompts))

    def _sample_candidates(self, step: int, ids: Sequence[str]) -> dict[str, Group]:
        """Posts the candidates as they are sampled and waits for nothing."""
        rank = self.rank
        prompts = [render(rank.tokenizer, code_messages(rank.problems[pid])) for pid in ids]

        def post(part: list[int], completions: list[list[Ids]]) -> None:
            rank.count_tokens("code", [ids for group in completions for ids in group])
            texts = [rank.tokenizer.batch_decode(group, skip_special_tokens=True) for group in completions]
            rank.arena.post_candidates(step, {ids[i]: group for i, group in zip(part, texts, strict=True)})

        completions, logprobs = rank.sample("code", prompts, rank.plans["code"].group, post)
        return {
            pid: Group(prompts[i], completions[i], logprobs[i] if logprobs is not None else None)
            for i, pid in enumerate(ids)
        }
