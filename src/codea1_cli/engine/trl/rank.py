"""One rank of a policy between TRL's trainer, its rollouts and the arena: where it is, and how long each part took."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.engine.client import ArenaClient
from codea1_cli.engine.ranks import RankSpec
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.engine.trl import sampling
from codea1_cli.evals.benchmark import EvalSet
from codea1_cli.files import kept_json
from codea1_cli.methods.base import Ids, More, OnChunk, Rollouts
from codea1_cli.methods.registry import method_of
from codea1_cli.models.sampler import SamplingSettings, cut_at_stop
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import known_names, real_reply
from codea1_cli.recipe.batching import batches
from codea1_cli.recipe.resources import benchmark_sets, benchmarks_due, heldout_due, heldout_sets
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir


class TrainingRank:
    """One rank; it implements `methods.base.Rank`. `trainer` is set when it is built.

    Args:
        problems: without references; a policy's process has no use for one.
        last: the last step of this call of the command; it is evaluated, as is the run's last.
    """

    def __init__(
        self,
        spec: RankSpec,
        recipe: Recipe,
        arena: ArenaClient,
        problems: Mapping[str, Problem],
        schedule: Schedule,
        last: int,
    ) -> None:
        self.spec, self.recipe, self.arena = spec, recipe, arena
        self.problems, self.schedule, self.ends = problems, schedule, (len(schedule), last)
        self.label, self.game = spec.label, recipe.game
        method = method_of(recipe)
        self.learns_from_pairs = method.pairs
        self.roles = method.roles_of(spec.policy)
        self.plans = {role: method.plan(recipe.game, role) for role in self.roles}
        self.max_prompt_tokens = {role: recipe.role(role).max_prompt_tokens for role in self.roles}
        self.updates_per_step = batches(recipe, spec.policy, spec.ranks).updates_per_step
        self.staleness = recipe.train.staleness if spec.policy == "code" else 0
        self.trainer: Any = None
        self.rollouts: Rollouts | None = None
        self.kept: dict[str, Any] | None = None  # the rollouts' state when the step began
        self.seconds: dict[str, float] = defaultdict(float)
        self.randomness: dict[str, Any] = {}
        self.tokens_seen = 0
        self.sampled_tokens: Counter[str] = Counter()  # by role
        self.figures: dict[str, dict[str, float]] = {}  # of the step by role, beside TRL's
        self.since = time.monotonic()
        self.logs: list[dict[str, float]] = []
        self.shares: dict[str, list[Any]] = {}  # this rank's items, by evaluation set

    @property
    def step(self) -> int:
        """The step that the rank is in, from 1."""
        return self.trainer.state.global_step // self.updates_per_step + 1

    @property
    def tokenizer(self) -> Any:
        """The policy's own."""
        return self.trainer.processing_class

    @property
    def reports_logprobs(self) -> bool:
        """Whether sampling gives log-probs: vLLM's, or those of weights that are a step old."""
        return bool(self.trainer.use_vllm or self.staleness)

    def scheduled(self, step: int) -> list[str]:
        """This rank's share of the problems that a step learns from."""
        size = self.recipe.train.problems_per_step // self.spec.ranks  # TRL's ranks have neighbouring rows
        return list(self.schedule.steps[step - 1][self.spec.rank * size : (self.spec.rank + 1) * size])

    def problem_ids(self, step: int) -> list[str]:
        """The problems that this rank samples in a step, spare ones last; none after the last step. Those that left the
        schedule are replaced."""
        if step > len(self.schedule):
            return []
        spare = self.schedule.steps[step - 1][self.recipe.train.problems_per_step :]
        instead = self.arena.substitutes(step)
        return [instead.get(pid, pid) for pid in (*self.scheduled(step), *spare[self.spec.rank :: self.spec.ranks])]

    # -- where it is, and since when -------------------------------------------------------------------------------
    def phase(self, name: str, step: int | None = None) -> None:
        """Tells the arena what this rank does from now on."""
        self.arena.heartbeat(self.label, name, step or self.step)

    def clock(self, part: str) -> None:
        """Books the time since the last call under `part`, such as `code_sampling`."""
        now = time.monotonic()
        self.seconds[part] += now - self.since
        self.since = now

    @contextlib.contextmanager
    def waiting(self, role: str) -> Iterator[None]:
        """Counts the time inside as waiting of a role."""
        self.phase("waiting")
        yield
        self.clock(f"{role}_waiting")

    @contextlib.contextmanager
    def sampling(self, role: str) -> Iterator[None]:
        """Counts the time inside as sampling of a role."""
        self.phase("sampling")
        fault_at(role, self.spec.rank, self.step, "sampling")
        yield
        self.clock(f"{role}_sampling")

    def update_begins(self) -> None:
        """What follows counts as updating."""
        self.phase("updating")
        if nan_at(self.spec.policy, self.spec.rank, self.step):
            next(self.trainer.model.parameters()).data.fill_(math.nan)

    def count_tokens(self, role: str, completions: Sequence[Sequence[int]]) -> None:
        """Adds to the tokens that a role has sampled."""
        self.sampled_tokens[role] += sum(map(len, completions))

    # -- sampling --------------------------------------------------------------------------------------------------
    @property
    def takes_more(self) -> bool:
        """As `Rank`: vLLM takes prompts at any time. On a CPU, where a step is repeated to the bit, nothing may depend
        on what comes first; and an engine that sleeps would be woken for each few."""
        return bool(self.trainer.use_vllm) and not self.recipe.sampling.vllm_sleep

    def sync_weights(self) -> None:
        """As `sampling.sync_weights`."""
        sampling.sync_weights(self.trainer)

    def sample(
        self,
        role: str,
        prompts: Sequence[Ids],
        n: int,
        on_chunk: OnChunk | None = None,
        more: More = list,
        settings: SamplingSettings | None = None,
    ) -> tuple[list[list[Ids]], list[list[list[float]]] | None]:
        """As `sampling.sample_groups`, with the role's length or other settings."""
        chunk = self.recipe.sampling.chunk
        with sampling.sampling_as(self.trainer, settings or self.recipe.role(role).max_completion_tokens):
            return sampling.sample_groups(self.trainer, prompts, n, chunk=chunk, on_chunk=on_chunk, more=more)

    def log_probs(self, prompts: Sequence[Ids], completions: Sequence[Sequence[Ids]]) -> list[list[list[float]]]:
        """As `sampling.log_probs`."""
        return sampling.log_probs(self.trainer, prompts, completions)

    def sample_aside(
        self,
        role: str,
        prompts: Sequence[Ids],
        n: int,
        seed: int,
        settings: SamplingSettings | None = None,
        on_chunk: OnChunk | None = None,
    ) -> list[list[Ids]]:
        """`n` completions per prompt with the newest weights, as token ids [prompt][n][tokens], outside the steps: they
        have random numbers of their own and leave the training's as they were.

        seed: tells them from others of the run; the same at every step, so that what differs is the policy. settings:
        None samples as training does.
        """
        sampling.sync_weights(self.trainer)
        seed += self.recipe.seed * 1000 + self.spec.rank
        with sampling.beside_training(self.trainer, seed):
            return self.sample(role, prompts, n, on_chunk, settings=settings)[0]

    # -- a step begins, is saved around, is evaluated --------------------------------------------------------------
    def step_begins(self) -> None:
        """Remembers the random state, so that a step which cannot be scored can be undone and saved around."""
        self.phase("sampling")
        self.randomness = sampling.random_state()
        self.kept = self.rollouts.state() if self.rollouts is not None else None
        self.tokens_seen = self.trainer.state.num_input_tokens_seen
        self.since = time.monotonic()

    def save_before_step(self) -> None:
        """Writes the checkpoint of the last finished step, from inside the one that failed."""
        finished = self.step - 1
        if self.recipe.checkpoint.every is None or RunDir(self.spec.run_path).latest_step() >= finished:
            return
        self.phase("saving", finished)
        sampling.restore_random_state(self.randomness)
        self.trainer.state.num_input_tokens_seen = self.tokens_seen
        self.trainer._save_checkpoint(self.trainer.model, trial=None)
        self.save_rollouts(self.kept)
        self.arena.checkpoint_written(self.label, finished, self.trainer.state.global_step)

    def save_rollouts(self, state: dict[str, Any] | None) -> None:
        """Adds the rollouts' state to the checkpoint that was just written."""
        if state is not None:
            folder = Path(self.trainer.args.output_dir) / f"checkpoint-{self.trainer.state.global_step}"
            write_atomic(folder / self._state_file, json.dumps(state) + "\n")

    def restore_rollouts(self, checkpoint: Path) -> None:
        """Takes up the rollouts' state where a checkpoint has one."""
        if (checkpoint / self._state_file).is_file():
            assert self.rollouts is not None
            self.rollouts.restore(kept_json(checkpoint / self._state_file))

    @property
    def _state_file(self) -> str:
        return f"rollouts-{self.spec.rank}.json"

    def evaluate(self, step: int) -> None:
        """Samples this rank's share of every set that is due after this step, or before the first, and posts it to the
        arena, which scores it meanwhile. No policy's process scores anything."""
        recipe = self.recipe
        sets: list[EvalSet] = list(heldout_sets(recipe)) if heldout_due(recipe, step, *self.ends) else []
        if benchmarks_due(recipe, step, *self.ends):
            sets += benchmark_sets(recipe)
        for chosen in sets:
            if chosen.role in self.roles:
                self._sample_share(chosen, step)
        self.since = time.monotonic()

    def _sample_share(self, chosen: EvalSet, step: int) -> None:
        spec, at = self.spec, max(step, 1)
        if chosen.name not in self.shares:
            self.phase("waiting", at)  # wrong programs to attack may come from the Code LLM's own evaluation
            self.shares[chosen.name] = self.arena.evaluation_share(chosen.name, spec.rank, spec.ranks)
        items = self.shares[chosen.name]
        self.phase("evaluating", at)
        prompts, settings = chosen.prompts(self.tokenizer, items), chosen.sampling()
        most = settings.max_new_tokens if settings else self.recipe.role(chosen.role).max_completion_tokens
        # vLLM raises where a prompt leaves no room, and one held-out problem would end the run
        fit = sampling.fitting(prompts, most, sampling.engine_length(self.trainer, self.recipe, spec.policy))
        completions = self.sample_aside(
            chosen.role,
            [prompts[i] for i in fit],
            chosen.n,
            chosen.seed,
            settings,
            on_chunk=lambda *_: self.phase("evaluating", at),  # a long evaluation is not a hang
        )
        texts = {item.id: [""] * chosen.n for item in items}
        for i, group in zip(fit, completions, strict=True):
            decoded = self.tokenizer.batch_decode(group, skip_special_tokens=True)
            ended = [cut_at_stop(text, settings.stop if settings else ()) for text in decoded]
            texts[items[i].id] = [real_reply(text, items[i].entry_point, known_names(self.tokenizer)) for text in ended]
        self.arena.post_evaluation(step, chosen.name, spec.rank, texts, len(items) - len(fit))


def fault_at(name: str, rank: int, step: int, point: str) -> None:
    """Fails on demand, for drills: CODEA1_FAULT="name:rank:step:point:kind" makes that rank fail there; `name` is the
    policy's, but at sampling the role that it samples for.

    Points: sampling, updating, saving; building and starting at step 0. Kinds: exit (the process ends), raise, hang,
    nan (see `nan_at`).
    """
    wanted = os.environ.get("CODEA1_FAULT")
    if not wanted:
        return
    where, _, kind = wanted.rpartition(":")
    if where != f"{name}:{rank}:{step}:{point}":
        return
    if kind == "exit":
        os._exit(13)
    if kind == "hang":
        time.sleep(1e6)
    if kind == "raise":
        raise ZeroDivisionError(f"fault drill at {where}")


def nan_at(policy: str, rank: int, step: int) -> bool:
    """Whether a drill wants this step's loss to be NaN."""
    return os.environ.get("CODEA1_FAULT") == f"{policy}:{rank}:{step}:updating:nan"
