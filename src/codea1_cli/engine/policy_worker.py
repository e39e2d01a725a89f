"""One rank of one policy: a Ray actor around an ordinary TRL trainer."""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path
from typing import Any

from codea1_cli.engine.client import ArenaClient
from codea1_cli.engine.failures import LOG_HEAD
from codea1_cli.engine.ranks import RankSpec
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.errors import CodeA1Error, RunFailed, SandboxOutage
from codea1_cli.methods.registry import method_of
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.batching import batches
from codea1_cli.recipe.schema import Recipe


class PolicyWorker:
    """Methods are called by the driver, one after another: load, prompt_lengths, build, train."""

    def __init__(self, spec: RankSpec, recipe: Recipe, arena: Any) -> None:
        self.spec, self.recipe, self.arena = spec, recipe, arena
        self.tokenizer: Any = None
        self.trainer: Any = None
        self.rank: Any = None
        _own_log(Path(spec.run_path) / "logs" / f"{spec.role}-{spec.rank}.log")
        os.environ.update(_environment(spec))

    def load(self) -> dict[str, Any]:
        """Imports the training stack and the tokenizer. Returns the process id, Ray's node and the device's name."""
        import ray
        import torch
        import transformers

        from codea1_cli.engine.trl.trainer import import_trl
        from codea1_cli.models.loading import load_tokenizer

        import_trl()
        torch.set_num_threads(self.spec.threads)
        transformers.logging.set_verbosity_error()
        self.tokenizer = load_tokenizer(self.recipe.model_of(self.spec.role))
        device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"
        return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id(), "device": device}

    def prompt_lengths(self, chats: list[list[dict[str, str]]]) -> list[int]:
        """Tokens of each rendered prompt."""
        from codea1_cli.models.loading import render

        return [len(render(self.tokenizer, chat)) for chat in chats]

    def build(self, schedule: Schedule, last: int, problems: dict[str, Problem]) -> dict[str, Any]:
        """Builds the trainer; this call of the command ends at step `last`. `problems` hold no reference: a policy's
        process has no business with one.

        Returns what was chosen for the sampling engine.
        """
        from codea1_cli.engine.trl.callback import make_callback
        from codea1_cli.engine.trl.rank import TrainingRank
        from codea1_cli.engine.trl.trainer import build_trainer

        spec, recipe = self.spec, self.recipe
        rank = TrainingRank(spec, recipe, ArenaClient(self.arena), problems, (len(schedule), last))
        rollouts = method_of(recipe).rollouts(spec.role)(rank)
        told: dict[str, Any] = {}
        try:
            self.trainer = build_trainer(
                recipe,
                spec,
                batches(recipe, spec.role, spec.ranks),
                schedule,
                problems,
                rollouts,
                self.tokenizer,
                output_dir=Path(spec.run_path) / "checkpoints" / ".work" / spec.role,
                told=told,
            )
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

    def train(self, checkpoint: str | None) -> str | None:
        """Trains to the end, or until the arena says stop. Returns what the sandbox suffered from, if that stopped it:
        the policy is then saved as it was before the step that could not be scored."""
        suffered = None
        try:
            self.trainer.train(resume_from_checkpoint=checkpoint)
        except SandboxOutage as outage:
            self.rank.save_before_step()
            suffered = outage.what
        self.rank.phase("waiting")  # for the other side: who has finished does not hang
        return suffered

    def close(self) -> None:
        """Leaves the process group in order, where there is one."""
        import torch.distributed

        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _environment(spec: RankSpec) -> dict[str, str]:
    values = {
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "CUDA_VISIBLE_DEVICES": spec.gpu or "",
        "OMP_NUM_THREADS": str(spec.threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait busily would take the other policy's core
    }
    if spec.gpu is None:
        # accelerate would number the CPU as it numbers GPUs, and torch restores no checkpoint to "cpu:0".
        values["ACCELERATE_TORCH_DEVICE"] = "cpu"
    if spec.ranks > 1 or spec.use_vllm:
        # Each rank sees one GPU, so its local rank is 0 whatever its place in the world.
        values |= {
            "RANK": str(spec.rank),
            "WORLD_SIZE": str(spec.ranks),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": spec.master_host,
            "MASTER_PORT": str(spec.master_port),
        }
    return values


def _own_log(path: Path) -> None:
    """Sends this process's output to a file of the run and lets SIGUSR1 write all stacks there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.write(log, LOG_HEAD.encode())
    faulthandler.register(signal.SIGUSR1, file=log, all_threads=True)
