"""What ties a TRL trainer to the arena: a reward function, a rollout function and a callback, all public TRL hooks.

The code side samples with TRL itself and meets the arena in its reward function. The test side meets it in its rollout
function: it fetches the candidates, samples suites for each, and returns only the selected groups, with their rewards
as an extra field that a one-line reward function hands back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from codea1_cli.engine import benchmarks, evaluation
from codea1_cli.engine.faults import fault_at, nan_at, stub, stubs_wanted
from codea1_cli.engine.messages import CandidateView
from codea1_cli.engine.randomness import random_state, restore_random_state
from codea1_cli.engine.trl.callback import make_callback
from codea1_cli.engine.trl.rows import Group, Rows
from codea1_cli.engine.trl.sampling import sample_groups, sync_weights
from codea1_cli.errors import RunFailed
from codea1_cli.models.tokenizers import render
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import test_messages
from codea1_cli.recipe.batching import Batches
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir


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
        self.tokens_seen = 0
        self.sampled_tokens = 0
        self.since = time.monotonic()
        self.logs: list[dict[str, float]] = []
        self.shares: dict[str, list[Any]] = {}  # this rank's tasks, by benchmark

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
        self.seconds[part] += now - self.since
        self.since = now

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
        self.tokens_seen = self.trainer.state.num_input_tokens_seen
        self.since = time.monotonic()

    def save_before_step(self) -> None:
        """Writes the checkpoint of the last finished step, from inside the one that failed."""
        finished = self.step - 1
        if RunDir(self.spec.run_path).latest_step() >= finished:
            return
        self.phase("saving", finished)
        restore_random_state(self.randomness)
        self.trainer.state.num_input_tokens_seen = self.tokens_seen
        self.trainer._save_checkpoint(self.trainer.model, trial=None)
        self.ask("checkpoint_written", self.spec.label, finished, self.trainer.state.global_step)

    def evaluate(self, step: int) -> None:
        """What is due after this step, or before the first: held-out problems, benchmarks."""
        if self.heldout and evaluation.due(self.recipe, step, self.total_steps):
            self.phase("evaluating", max(step, 1))
            evaluation.sample_heldout(self, step)
        if benchmarks.due(self.recipe, step, self.total_steps):
            benchmarks.sample_benchmarks(self, step)
        self.since = time.monotonic()


class CodeSide(Side):
    """The Code LLM's rank."""

    def reward(
        self, prompts: Any, completions: Any, completion_ids: Any, problem_id: Sequence[str], **_: Any
    ) -> list[float | None]:
        """TRL reward function: posts the candidates, waits for their rewards."""
        step = self.step
        self.sampled_tokens += sum(map(len, completion_ids))
        fault_at("code", self.spec.rank, step, "sampling")
        self.clock("sampling")
        texts: dict[str, list[str]] = {}
        for pid, completion in zip(problem_id, completions, strict=True):
            text = completion[0]["content"]
            texts.setdefault(pid, []).append(stub(self.problems[pid].entry_point, text) if stubs_wanted() else text)
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
        sync_weights(trainer)
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
            self.sampled_tokens += sum(len(ids) for group in completions for ids in group)
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
