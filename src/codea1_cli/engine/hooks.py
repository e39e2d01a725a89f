"""What ties a TRL trainer to the arena: a reward function, a rollout function and a callback, all public TRL hooks.

The code side samples with TRL itself and meets the arena in its reward function. The test side meets it in its rollout
function: it fetches the candidates, samples suites for each, and returns only the selected groups, with their rewards
as an extra field that a one-line reward function hands back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from codea1_cli.engine import evaluation
from codea1_cli.engine.faults import fault_at, nan_at
from codea1_cli.engine.messages import CandidateView, RankReport
from codea1_cli.engine.randomness import random_state, restore_random_state
from codea1_cli.engine.sampling import render, sample_groups
from codea1_cli.errors import RunFailed
from codea1_cli.plan import Batches
from codea1_cli.problem import Problem
from codea1_cli.prompts import test_messages
from codea1_cli.recipe import Recipe
from codea1_cli.run_dir import RunDir

# TRL's names of what is worth a column in metrics.jsonl.
_LOGGED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "reward": "reward",
    "reward_std": "reward_std",
    "kl": "kl",
    "entropy": "entropy",
    "completions/mean_length": "completion_tokens",
    "completions/clipped_ratio": "clipped_share",
    "clip_ratio/region_mean": "ratio_clipped",
    "sampling/sampling_logp_difference/mean": "logp_mismatch",
    "sampling/sampling_logp_difference/max": "logp_mismatch_max",
    "num_tokens": "tokens_seen",
}


class Side:
    """One rank's part in every step: where it is, how long it took, and its talk with the arena."""

    def __init__(
        self,
        spec: Any,
        recipe: Recipe,
        shape: Batches,
        arena: Any,
        problems: dict[str, Problem],
        heldout: list[Problem],
        total_steps: int,
    ) -> None:
        self.spec, self.recipe, self.shape, self.arena = spec, recipe, shape, arena
        self.problems, self.heldout, self.total_steps = problems, heldout, total_steps
        self.trainer: Any = None
        self.seconds = {"sampling": 0.0, "waiting": 0.0, "updating": 0.0}
        self.randomness: dict[str, Any] = {}
        self._since = time.monotonic()
        self._logs: list[dict[str, float]] = []

    @property
    def step(self) -> int:
        """The step at work, counted from 1."""
        return self.trainer.state.global_step // self.shape.updates_per_step + 1

    def phase(self, name: str, step: int | None = None) -> None:
        """Tells the arena what this rank does from now on; a hang is blamed on the rank that is not waiting."""
        self.arena.heartbeat.remote(self.spec.label, name, step or self.step)

    def update_begins(self) -> None:
        self.phase("updating")
        if nan_at(self.spec.role, self.spec.rank, self.step):
            next(self.trainer.model.parameters()).data.fill_(math.nan)

    def clock(self, part: str) -> None:
        """Books the time since the last call under `part`."""
        now = time.monotonic()
        self.seconds[part] += now - self._since
        self._since = now

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls the arena and waits; the waiting is no progress of ours, so the phase says so."""
        import ray

        return ray.get(getattr(self.arena, method).remote(*arguments))

    def callback(self) -> Any:
        return make_callback(self)

    def step_begins(self) -> None:
        """Remembers the random state, so that a step which cannot be scored can be undone and saved around."""
        self.phase("sampling")
        self.randomness = random_state()
        self._since = time.monotonic()

    def save_before_step(self) -> None:
        """Writes the checkpoint of the last finished step, from inside the one that failed."""
        finished = self.step - 1
        if RunDir(self.spec.run_path).latest_step() >= finished:
            return
        self.phase("saving", finished)
        restore_random_state(self.randomness)
        self.trainer._save_checkpoint(self.trainer.model, trial=None)
        self.ask("checkpoint_written", self.spec.label, finished, self.trainer.state.global_step)

    def evaluate(self, step: int) -> None:
        if not self.heldout:
            return
        self.phase("evaluating", max(step, 1))
        evaluation.sample_heldout(self, step)
        self._since = time.monotonic()


class CodeSide(Side):
    """The Code LLM's rank."""

    def reward(self, prompts: Any, completions: Any, problem_id: Sequence[str], **_: Any) -> list[float | None]:
        """TRL reward function: posts the candidates, waits for their rewards."""
        step = self.step
        fault_at("code", self.spec.rank, step, "sampling")
        self.clock("sampling")
        texts: dict[str, list[str]] = {}
        for pid, completion in zip(problem_id, completions, strict=True):
            texts.setdefault(pid, []).append(completion[0]["content"])
        self.phase("waiting")
        rewards = self.ask("post_candidates", step, texts)
        self.clock("waiting")
        self.update_begins()
        place = {pid: iter(values) for pid, values in rewards.items()}
        return [next(place[pid]) for pid in problem_id]


class TestSide(Side):
    """The Test LLM's rank."""

    __test__ = False

    def reward(
        self, prompts: Any, completions: Any, suite_reward: Sequence[float | None], **_: Any
    ) -> list[float | None]:
        """TRL reward function: the rewards came with the rollout."""
        return list(suite_reward)

    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """TRL rollout function: samples all suites, returns the rows of the selected groups."""
        step = self.step
        ids = list(dict.fromkeys(prompt[-1]["content"] for prompt in prompts))
        self.phase("waiting")
        candidates: dict[str, list[CandidateView]] = self.ask("get_candidates", step, ids)
        self.clock("waiting")
        self.phase("sampling")
        fault_at("test", self.spec.rank, step, "sampling")
        sampled = self._sample_suites(step, ids, candidates)
        self.clock("sampling")
        self.phase("waiting")
        results = self.ask("finish_suites", step, ids)
        self.clock("waiting")
        self.update_begins()
        rows = Rows(bool(trainer.use_vllm), self.shape.group)
        for pid in ids:
            groups = 0
            for index in results[pid].selected:
                rows.add(sampled[pid, index], results[pid].rewards[index])
                groups += 1
            for _ in range(self.shape.groups_per_problem - groups):
                # TRL needs full rows even when no candidate could be attacked: masked ones teach nothing.
                filler = next((sampled[key] for key in sampled if key[0] == pid), None) or self._empty_group()
                rows.add(filler, [None] * self.shape.group)
        if len(rows) != len(prompts):  # TRL would train on fewer rows without a word
            raise RunFailed(f"{self.spec.label} step {step}: rollout of {len(rows)} rows where {len(prompts)} are due")
        return rows.columns()

    def _sample_suites(
        self, step: int, ids: list[str], candidates: dict[str, list[CandidateView]]
    ) -> dict[tuple[str, int], Group]:
        tokenizer, n, game = self.trainer.processing_class, self.shape.group, self.recipe.game
        keys: list[tuple[str, int]] = []
        prompts: list[list[int]] = []
        too_long: list[tuple[str, int]] = []
        for pid in ids:
            for index, view in enumerate(candidates[pid]):
                if not view.attack:
                    continue
                shown = view.code if game.white_box else None
                prompt = render(tokenizer, test_messages(self.problems[pid], shown, game.tests_per_suite))
                if len(prompt) > self.recipe.test.max_prompt_tokens:
                    too_long.append((pid, index))
                    continue
                keys.append((pid, index))
                prompts.append(prompt)
        if too_long:
            self.arena.skip_suites.remote(step, too_long)

        def post(part: list[int], completions: list[list[list[int]]]) -> None:
            texts = [tokenizer.batch_decode(group, skip_special_tokens=True) for group in completions]
            self.arena.post_suites.remote(step, [(*keys[i], group) for i, group in zip(part, texts, strict=True)])

        completions, logprobs = sample_groups(self.trainer, prompts, n, chunk=self.recipe.sampling.chunk, on_chunk=post)
        return {
            key: Group(prompts[i], completions[i], logprobs[i] if logprobs is not None else None)
            for i, key in enumerate(keys)
        }

    def _empty_group(self) -> Group:
        eos, n = self.trainer.processing_class.eos_token_id, self.shape.group
        return Group([eos], [[eos]] * n, [[0.0]] * n)


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


def make_callback(side: Side) -> Any:
    """The TrainerCallback that reports, evaluates, saves and stops as the arena decides.

    TRL calls on_step_end, then on_log, then on_save for each optimizer step; only a rollout's last one ends a step.
    """
    from transformers import TrainerCallback

    updates = side.shape.updates_per_step

    class StepCallback(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 0:
                side.evaluate(0)
            side.step_begins()

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            fault_at(side.spec.role, side.spec.rank, side.step, "updating")

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            if state.global_step % updates:
                return control
            side.clock("updating")
            step = state.global_step // updates
            decision = side.ask("step_ended", side.spec.label, step)
            control.should_save = decision.save
            control.should_training_stop = control.should_training_stop or decision.stop
            return control

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
        ) -> None:
            if not logs or "loss" not in logs:
                return
            step = math.ceil(state.global_step / updates)
            for name in ("loss", "grad_norm"):
                if not math.isfinite(float(logs.get(name, 0.0))):
                    raise RunFailed(f"{name} of the {side.spec.role} policy is {logs[name]} at step {step}")
            figures = {ours: logs.get(theirs) for theirs, ours in _LOGGED.items()}
            # An infinite ratio is no figure, and no reason to stop.
            side._logs.append({k: v for k, v in figures.items() if v is not None and math.isfinite(v)})
            if state.global_step % updates:
                return
            merged = _merge(side._logs)
            report = RankReport(side.spec.label, step, merged, dict(side.seconds))
            side._logs, side.seconds = [], dict.fromkeys(side.seconds, 0.0)
            # Waited for, so that a step's line is on disk before its checkpoint is.
            side.ask("report", report)
            if evaluation.due(side.recipe, step, side.total_steps):
                side.evaluate(step)
            if control.should_save:
                side.phase("saving", step)
                _check_finite(side, step)
                fault_at(side.spec.role, side.spec.rank, step, "saving")

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            side.ask("checkpoint_written", side.spec.label, state.global_step // updates, state.global_step)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % updates == 0:
                side.step_begins()

    return StepCallback()


def _check_finite(side: Side, step: int) -> None:
    """A checkpoint with a NaN in it would be the end of a run, and would replace a good one."""
    import torch

    for name, parameter in side.trainer.model.named_parameters():
        if not bool(torch.isfinite(parameter.detach()).all()):
            raise RunFailed(f"parameter {name} of the {side.spec.role} policy is not finite after step {step}")


def _merge(logs: list[dict[str, float]]) -> dict[str, float]:
    """The mean over a rollout's optimizer steps; counters and rates keep their last value."""
    keys = dict.fromkeys(key for entry in logs for key in entry)
    merged = {}
    for key in keys:
        values = [entry[key] for entry in logs if key in entry]
        merged[key] = values[-1] if key in {"tokens_seen", "learning_rate"} else sum(values) / len(values)
    return merged
