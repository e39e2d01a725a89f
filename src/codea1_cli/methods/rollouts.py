"""How a Code LLM and a Test LLM sample for a step: programs for a problem, and test suites for each program.

Programs are sampled by TRL itself and meet the arena in TRL's reward function. Suites depend on the programs, so they
are sampled in TRL's rollout function, which returns only the groups to learn from, with their rewards as an extra
column that the reward function hands back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codea1_cli.errors import RunFailed
from codea1_cli.methods.base import CandidateView, Ids, Rollouts, SuiteResults
from codea1_cli.models.loading import render
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import code_messages, test_messages


def problem_ids(prompts: Sequence[Any]) -> list[str]:
    """The problems of a step's rows, whose prompts are bare ids."""
    return list(dict.fromkeys(prompt[-1]["content"] for prompt in prompts))


class CodeRollouts(Rollouts):
    """Candidates of the Code LLM."""

    @staticmethod
    def prompt(problem: Problem) -> list[dict[str, str]]:
        return code_messages(problem)

    def reward(
        self, prompts: Any, completions: Any, *, completion_ids: Any, problem_id: Sequence[str], **_: Any
    ) -> list[float | None]:
        """Posts the candidates and waits for their rewards."""
        rank = self.rank
        rank.sampled_by_trl("code", completion_ids)
        texts: dict[str, list[str]] = {}
        for pid, completion in zip(problem_id, completions, strict=True):
            texts.setdefault(pid, []).append(completion[0]["content"])
        with rank.waiting("code"):
            rank.arena.post_candidates(rank.step, texts)
            rewards = rank.arena.finish_candidates(rank.step, list(texts))
        rank.update_begins()
        place = {pid: iter(values) for pid, values in rewards.items()}
        return [next(place[pid]) for pid in problem_id]


class TestRollouts(Rollouts):
    """Suites of the Test LLM against the candidates of the same step."""

    __test__ = False

    @staticmethod
    def prompt(problem: Problem) -> list[dict[str, str]]:
        """The bare problem id: TRL hands a rollout function nothing but the prompts."""
        return [{"role": "user", "content": problem.id}]

    def reward(
        self, prompts: Any, completions: Any, *, row_reward: Sequence[float | None], **_: Any
    ) -> list[float | None]:
        """The rewards came with the rollout."""
        return list(row_reward)

    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Samples all suites of the step; returns the columns of the selected groups, `len(prompts)` rows."""
        rank = self.rank
        step, ids = rank.step, problem_ids(prompts)
        sampled = self.sample_suites(step, ids)
        with rank.waiting("test"):
            results = rank.arena.finish_suites(step, ids)
        rank.update_begins()
        rows = Rows(rank.reports_logprobs)
        for pid in ids:
            self.add_selected(rows, pid, sampled, results[pid])
        return self.columns(rows, len(prompts))

    def add_selected(
        self, rows: Rows, pid: str, sampled: Mapping[tuple[str, int], Group], results: SuiteResults
    ) -> None:
        """Adds a problem's groups to learn from, always as many as are planned."""
        plan = self.rank.plans["test"]
        for index in results.selected:
            rows.add(sampled[pid, index], results.rewards[index])
        for _ in range(plan.groups - len(results.selected)):
            # TRL needs full rows even when no candidate could be attacked: masked ones teach nothing.
            filler = next((sampled[key] for key in sampled if key[0] == pid), None) or self._empty_group()
            rows.add(filler, [None] * plan.group)

    def columns(self, rows: Rows, due: int) -> dict[str, Any]:
        """What TRL's rollout function returns.

        Raises:
            RunFailed: there are not as many rows as are due, on which TRL would train without a word.
        """
        if len(rows) != due:
            rank = self.rank
            raise RunFailed(f"{rank.label} step {rank.step}: rollout of {len(rows)} rows where {due} are due")
        return rows.columns()

    def sample_suites(self, step: int, ids: Sequence[str]) -> dict[tuple[str, int], Group]:
        """Samples the suites against every candidate that is attacked, by problem and candidate, and posts them."""
        rank = self.rank
        with rank.waiting("test"):
            candidates = rank.arena.get_candidates(step, ids)
        with rank.sampling("test"):
            rank.sync_weights()
            return self._sample_suites(step, ids, candidates)

    def _sample_suites(
        self, step: int, ids: Sequence[str], candidates: dict[str, list[CandidateView]]
    ) -> dict[tuple[str, int], Group]:
        rank = self.rank
        game, tokenizer = rank.game, rank.tokenizer
        keys: list[tuple[str, int]] = []
        prompts: list[Ids] = []
        too_long: list[tuple[str, int]] = []
        for pid in ids:
            for index, view in enumerate(candidates[pid]):
                if not view.attack:
                    continue
                shown = view.code if game.white_box else None
                prompt = render(tokenizer, test_messages(rank.problems[pid], shown, game.tests_per_suite))
                if len(prompt) > rank.max_prompt_tokens["test"]:
                    too_long.append((pid, index))
                    continue
                keys.append((pid, index))
                prompts.append(prompt)
        if too_long:
            rank.arena.skip_suites(step, too_long)

        def post(part: list[int], completions: list[list[Ids]]) -> None:
            rank.count_tokens("test", [ids for group in completions for ids in group])
            texts = [tokenizer.batch_decode(group, skip_special_tokens=True) for group in completions]
            rank.arena.post_suites(step, [(*keys[i], group) for i, group in zip(part, texts, strict=True)])

        completions, logprobs = rank.sample("test", prompts, rank.plans["test"].group, post)
        return {
            key: Group(prompts[i], completions[i], logprobs[i] if logprobs is not None else None)
            for i, key in enumerate(keys)
        }

    def _empty_group(self) -> Group:
        eos, n = self.rank.tokenizer.eos_token_id, self.rank.plans["test"].group
        return Group([eos], [[eos]] * n, [[0.0]] * n)


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


@dataclass(frozen=True)
class Group:
    """One prompt, its n completions, and their log-probs where the engine reports them."""

    prompt: Ids
    completions: list[Ids]
    logprobs: list[list[float]] | None


class Rows:
    """The columns of a rollout as TRL takes them, one row per completion.

    A row without a reward is masked, so that neither the loss, the KL term nor the token mean sees it.
    """

    def __init__(self, with_logprobs: bool) -> None:
        self.prompt_ids: list[Ids] = []
        self.completion_ids: list[Ids] = []
        self.logprobs: list[list[float]] | None = [] if with_logprobs else None
        self.env_mask: list[list[int]] = []
        self.row_reward: list[float | None] = []

    def __len__(self) -> int:
        return len(self.prompt_ids)

    def add(self, group: Group, rewards: Sequence[float | None]) -> None:
        """Adds the group's n rows with their rewards."""
        for i, tokens in enumerate(group.completions):
            self.prompt_ids.append(group.prompt)
            self.completion_ids.append(tokens)
            if self.logprobs is not None:
                self.logprobs.append(group.logprobs[i] if group.logprobs is not None else [0.0] * len(tokens))
            self.env_mask.append([0 if rewards[i] is None else 1] * len(tokens))
            self.row_reward.append(rewards[i])

    def columns(self) -> dict[str, Any]:
        """What TRL's rollout function returns."""
        return {
            "prompt_ids": self.prompt_ids,
            "completion_ids": self.completion_ids,
            "logprobs": self.logprobs,
            "env_mask": self.env_mask,
            "row_reward": self.row_reward,
        }
