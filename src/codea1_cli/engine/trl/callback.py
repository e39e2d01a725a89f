"""The trainer's callback: it reports, evaluates, saves and stops as the arena decides."""

from __future__ import annotations

import contextlib
import math
from functools import cache
from typing import TYPE_CHECKING, Any

from codea1_cli.engine.client import RankReport
from codea1_cli.engine.preflight import preflight
from codea1_cli.engine.trl.rank import fault_at
from codea1_cli.errors import RunFailed, UserError
from codea1_cli.methods.registry import method_of
from codea1_cli.planning import ModelShape, find_shape
from codea1_cli.planning.costs import update_passes
from codea1_cli.planning.gpu_assignment import known_device
from codea1_cli.recipe.batching import batches

if TYPE_CHECKING:
    from codea1_cli.engine.trl.rank import TrainingRank

# TRL's names of what is worth a column in metrics.jsonl.
_LOGGED = {name: name for name in ("loss", "grad_norm", "learning_rate", "reward", "reward_std", "kl", "entropy")} | {
    "completions/mean_length": "completion_tokens",
    "completions/clipped_ratio": "clipped_share",
    "clip_ratio/region_mean": "ratio_clipped",
    "mean_token_accuracy": "token_accuracy",
    "flat_masked": "flat_masked",
    "sampling/sampling_logp_difference/mean": "logp_mismatch",
    "sampling/sampling_logp_difference/max": "logp_mismatch_max",
    "num_tokens": "tokens_seen",
}


def make_callback(rank: TrainingRank) -> Any:
    """The TrainerCallback of one rank.

    TRL calls on_step_end, then on_log, then on_save for each optimizer step; only a rollout's last one ends a step.
    """
    from transformers import TrainerCallback

    updates = rank.updates_per_step

    class StepCallback(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 0:
                preflight(rank)
                rank.evaluate(0)
            else:
                _follow_schedule(kwargs["lr_scheduler"])
            rank.step_begins()

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            fault_at(rank.spec.policy, rank.spec.rank, rank.step, "updating")

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            if state.global_step % updates:
                return control
            rank.clock(f"{rank.spec.policy}_updating")
            step = state.global_step // updates
            decision = rank.arena.step_ended(rank.spec.label, step)
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
                    raise RunFailed(
                        f"{name} of the {rank.spec.policy} policy is {logs[name]} at step {step} ({rank.spec.label})"
                    )
            figures = {ours: logs.get(theirs) for theirs, ours in _LOGGED.items()}
            if rank.learns_from_pairs:  # SFTTrainer counts anew after a resume
                del figures["tokens_seen"]
            # An infinite ratio is no figure, and no reason to stop.
            rank.logs.append({k: v for k, v in figures.items() if v is not None and math.isfinite(v)})
            if state.global_step % updates:
                return
            report = RankReport(rank.spec.label, step, _by_role(rank), dict(rank.seconds))
            rank.logs = []
            for counted in (rank.seconds, rank.figures, rank.sampled_tokens):
                counted.clear()
            # Waited for, so that a step's line is on disk before its checkpoint is.
            rank.arena.report(report)
            rank.evaluate(step)
            if control.should_save:
                rank.phase("saving", step)
                _check_finite(rank, step)
                fault_at(rank.spec.policy, rank.spec.rank, step, "saving")

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if rank.rollouts is not None:
                rank.save_rollouts(rank.rollouts.state())
            rank.arena.checkpoint_written(rank.spec.label, state.global_step // updates, state.global_step)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % updates == 0:
                if rank.learns_from_pairs and len(method_of(rank.recipe).policies) > 1:
                    # Policies that learn by themselves stay near each other: all stop after the same step.
                    with rank.waiting(rank.spec.policy):
                        rank.arena.keep_step(rank.step - 2)
                rank.step_begins()

    return StepCallback()


def _follow_schedule(scheduler: Any) -> None:
    """Sets the learning rates of the next update from this run's length: a checkpoint brings those of the length that
    the run had when it was saved. Without a change they are the same."""
    scheduler = getattr(scheduler, "scheduler", scheduler)  # accelerate wraps it
    for group, base, share in zip(
        scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
    ):
        group["lr"] = base * share(scheduler.last_epoch)


def _by_role(rank: TrainingRank) -> dict[str, dict[str, float]]:
    """A step's figures by role; those of the policy as a whole stand under the first that it plays."""
    figures: dict[str, dict[str, float]] = {}
    for role in rank.roles:
        own = _over_ranks(rank, {"sampled_tokens": float(rank.sampled_tokens[role]), **rank.figures.get(role, {})})
        own["sampled_tokens"] *= rank.spec.ranks
        whole = _merge(rank.logs) | own | _machine() | _peak_share(rank) if role == rank.roles[0] else own
        figures[role] = {key: value for key, value in whole.items() if math.isfinite(value)}
    return figures


def _over_ranks(rank: TrainingRank, figures: dict[str, float]) -> dict[str, float]:
    """The mean over the policy's ranks, all of which call this."""
    import torch

    accelerator = rank.trainer.accelerator
    mine = torch.tensor([[*figures.values()]], dtype=torch.float64, device=accelerator.device)
    return dict(zip(figures, accelerator.gather(mine).mean(dim=0).tolist(), strict=True))


def _machine() -> dict[str, float]:
    """The most memory that torch and its GPU as a whole have held so far, in GiB."""
    import torch

    figures: dict[str, float] = {}
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        figures["gpu_gib"] = round((total - free) / 2**30, 2)
        figures["torch_peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return figures


def _peak_share(rank: TrainingRank) -> dict[str, float]:
    """The share of the GPU's bf16 peak that updating reached (model FLOPs utilisation): what a step's rows need, not
    what checkpointing computes twice, by the time that they took. Nothing where the peak or the model's shape is not
    known."""
    import torch

    device = known_device(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    spec, recipe = rank.spec, rank.recipe
    seconds = rank.seconds.get(f"{spec.policy}_updating")
    if device is None or not seconds or rank.rollouts is None:
        return {}
    if (shape := _shape(recipe.model_of(spec.policy))) is None:
        return {}
    tokens = rank.trainer.state.num_input_tokens_seen - rank.tokens_seen
    length = tokens / batches(recipe, spec.policy, spec.ranks).rows_per_step
    passes = update_passes(recipe, rank.updates_per_step, "vllm" if spec.use_vllm else "transformers")
    return {"mfu": passes * tokens * shape.forward_flops(length) / (seconds * spec.ranks * device.flops)}


@cache
def _shape(model: str) -> ModelShape | None:
    """A model's shape, read once; None where it is no decoder of the Llama family."""
    with contextlib.suppress(UserError):
        return find_shape(model)
    return None


def _check_finite(rank: TrainingRank, step: int) -> None:
    """A checkpoint with a NaN in it would be the end of a run, and would replace a good one."""
    import torch

    for name, parameter in rank.trainer.model.named_parameters():
        # Under FSDP2 each rank looks at its own shard.
        mine = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if not bool(torch.isfinite(mine.detach()).all()):
            raise RunFailed(f"parameter {name} of the {rank.spec.policy} policy is not finite after step {step}")


def _merge(logs: list[dict[str, float]]) -> dict[str, float]:
    """The mean over a rollout's optimizer steps; counters and rates keep their last value."""
    keys = dict.fromkeys(key for entry in logs for key in entry)
    merged = {}
    for key in keys:
        values = [entry[key] for entry in logs if key in entry]
        merged[key] = values[-1] if key in {"tokens_seen", "learning_rate"} else sum(values) / len(values)
    return merged
