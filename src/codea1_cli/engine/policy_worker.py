"""One rank of one policy: a Ray actor around an ordinary TRL trainer."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from pathlib import Path
from typing import Any

from codea1_cli import environment
from codea1_cli.data.pairs import Pair
from codea1_cli.engine import LOG_HEAD
from codea1_cli.engine.client import ArenaClient
from codea1_cli.engine.ranks import RankSpec
from codea1_cli.engine.rehearsal import rehearse_prompts, rehearse_save
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.errors import CodeA1Error, RunFailed, SandboxOutage
from codea1_cli.methods.registry import method_of
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import code_messages, known_names, shown_problem
from codea1_cli.recipe.batching import batches
from codea1_cli.recipe.schema import Recipe


class PolicyWorker:
    """Methods are called by the driver, one after another: load, lengths, build, train."""

    def __init__(self, spec: RankSpec, recipe: Recipe, arena: Any) -> None:
        self.spec, self.recipe, self.arena = spec, recipe, arena
        self.tokenizer: Any = None
        self.trainer: Any = None
        self.rank: Any = None
        self.store: Any = None  # where the ranks of this policy meet, held by the first
        _own_log(Path(spec.run_path) / "logs" / f"{spec.policy}-{spec.rank}.log")
        environment.settle_umask()
        self.set_aside = environment.foreign(os.environ)  # on a node of a cluster, what its Ray was started with
        environment.settle(threads=True)
        os.environ.update(spec.environment)

    def load(self) -> dict[str, Any]:
        """Imports the training stack and the tokenizer. Returns the process id, Ray's node, the device's name and the
        variables set aside."""
        import ray
        import torch
        import transformers

        from codea1_cli.engine.trl.trainer import import_trl
        from codea1_cli.models.loading import load_tokenizer

        import_trl("SFTTrainer" if method_of(self.recipe).pairs else "GRPOTrainer")
        torch.set_num_threads(self.spec.threads)
        transformers.logging.set_verbosity_error()
        self.tokenizer = load_tokenizer(self.recipe.model_of(self.spec.policy))
        device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"
        node = ray.get_runtime_context().get_node_id()
        return {"pid": os.getpid(), "node": node, "device": device, "set_aside": self.set_aside}

    def lengths(self, rows: list[Any]) -> list[Any]:
        """Tokens of each problem's rendered prompt for a program; of prompt and completion of each pair of this
        policy."""
        from codea1_cli.engine.trl.trainer import pair_tokens
        from codea1_cli.models.loading import render

        method = method_of(self.recipe)
        if method.pairs:
            roles = method.roles_of(self.spec.policy)
            mine = [pair_tokens(self.tokenizer, pair) for pair in rows if pair.role in roles]
            return [(len(prompt), len(completion)) for prompt, completion in mine]
        names = known_names(self.tokenizer)
        return [len(render(self.tokenizer, code_messages(shown_problem(problem, names)))) for problem in rows]

    def build(
        self, recipe: Recipe, schedule: Schedule, last: int, problems: dict[str, Problem], pairs: dict[str, Pair]
    ) -> dict[str, Any]:
        """Builds the trainer; this call of the command ends at step `last`.

        Args:
            recipe: as the problems that can be used have settled it.
            problems: without references: a policy's process has no business with one.
            pairs: what the policies learn from in place of problems.

        Returns what was chosen for the sampling engine.
        """
        from codea1_cli.engine.trl.callback import make_callback
        from codea1_cli.engine.trl.rank import TrainingRank, fault_at
        from codea1_cli.engine.trl.trainer import build_pairs_trainer, build_trainer

        self.recipe, spec = recipe, self.spec
        fault_at(spec.policy, spec.rank, 0, "building")
        self.store = _loopback_store(spec)
        names = known_names(self.tokenizer)
        arena = ArenaClient(self.arena, names, {pid: problem.entry_point for pid, problem in problems.items()})
        problems = {pid: shown_problem(problem, names) for pid, problem in problems.items()}
        rank = TrainingRank(spec, recipe, arena, problems, schedule, last)
        told: dict[str, Any] = {}
        output_dir = Path(spec.run_path) / "checkpoints" / ".work" / spec.policy
        asked = recipe, spec, batches(recipe, spec.policy, spec.ranks), schedule
        try:
            if method_of(recipe).pairs:
                mine = {id: pair for id, pair in pairs.items() if pair.role in rank.roles}
                self.trainer = build_pairs_trainer(*asked, mine, self.tokenizer, output_dir)
            else:
                rank.rollouts = method_of(recipe).rollouts(spec.policy)(rank)
                self.trainer = build_trainer(*asked, rank.rollouts, self.tokenizer, output_dir, told)
        except CodeA1Error:
            raise
        except Exception as error:
            raise RunFailed(f"{spec.label} could not build its trainer: {type(error).__name__}: {error}") from error
        self.trainer.add_callback(make_callback(rank))
        rank.trainer = self.trainer
        self.rank = rank
        if told:
            import torch

            told["held_gib"] = round(torch.cuda.memory_allocated() / 2**30, 1)
        return told

    def train(self, checkpoint: str | None, first_step: int) -> str | None:
        """Trains to the end, or until the arena says stop. Returns what the sandbox suffered from, if that stopped it:
        the policy is then saved as it was before the step that could not be scored."""
        from codea1_cli.engine.trl.rank import fault_at

        suffered = None
        self.rank.phase("starting", first_step)
        fault_at(self.spec.policy, self.spec.rank, 0, "starting")
        rank = self.rank
        if rank.problems:
            rehearse_prompts(rank.tokenizer, next(iter(rank.problems.values())), rank.game.tests_per_suite)
        if checkpoint is None and rank.recipe.checkpoint.every is not None:
            rehearse_save(self.trainer, Path(self.trainer.args.output_dir) / "rehearsal", rank.label)
        if checkpoint is not None:
            rank.restore_rollouts(Path(checkpoint))
        try:
            self.trainer.train(resume_from_checkpoint=checkpoint)
        except SandboxOutage as outage:
            self.rank.save_before_step()
            suffered = outage.what
        self.rank.phase("waiting")  # for the other side: who has finished does not hang
        return suffered


def _loopback_store(spec: RankSpec) -> Any:
    """The store at which the ranks of a policy find each other; rank 0 of one machine opens it, on loopback only. None
    where torch opens one itself, or none is needed."""
    if "TORCHELASTIC_USE_AGENT_STORE" not in spec.environment or spec.rank:
        return None
    from torch.distributed import TCPStore

    with socket.socket() as listener:
        address = spec.master_host, spec.master_port
        listener.bind(address)
        listener.listen()
        return TCPStore(*address, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def _own_log(path: Path) -> None:
    """Sends this process's output to a file of the run and lets SIGUSR1 write all stacks there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.write(log, LOG_HEAD.encode())
    faulthandler.register(signal.SIGUSR1, file=log, all_threads=True)
