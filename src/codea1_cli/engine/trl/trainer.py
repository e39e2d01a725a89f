"""A recipe's numbers as an ordinary TRL trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

from codea1_cli.data.pairs import Pair
from codea1_cli.engine.ranks import RankSpec
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.engine.trl.sampling import (
    charge_truncated,
    make_sampler,
    mask_flat,
    play_substitutes,
    sample_by_prompt,
)
from codea1_cli.engine.trl.vllm_engine import WeightCheck, engine_settings
from codea1_cli.errors import UserError
from codea1_cli.files import user_path
from codea1_cli.methods.base import Rank, Rollouts, SamplePlan
from codea1_cli.methods.registry import method_of
from codea1_cli.models.loading import fitting_chat, render, resolve_model
from codea1_cli.models.sampler import plain_generation
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.batching import Batches, longest
from codea1_cli.recipe.schema import Recipe


def import_trl() -> None:
    """Imports TRL, the longest part of a rank's start: all ranks do it at once, before any of them builds."""
    import trl  # noqa: F401


def build_trainer(
    recipe: Recipe,
    spec: RankSpec,
    batches: Batches,
    schedule: Schedule,
    problems: Mapping[str, Problem],
    rollouts: Rollouts,
    tokenizer: Any,
    output_dir: Path,
    told: dict[str, Any],
) -> Any:
    """The GRPOTrainer of one rank of one policy.

    Args:
        told: receives what was chosen for the sampling engine.

    Raises:
        UserError: the model cannot be loaded.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    ids = [pid for step in schedule.steps for pid in step for _ in range(batches.groups_per_problem)]
    chats = {pid: fitting_chat(tokenizer, rollouts.prompt(problem)) for pid, problem in problems.items()}
    dataset = Dataset.from_dict({"prompt": [chats[pid] for pid in ids], "problem_id": ids})
    settings = trainer_arguments(recipe, spec.policy, batches, len(schedule), output_dir, spec.use_vllm, spec.ranks)
    plain = plain_generation(recipe.model_of(spec.policy), tokenizer)
    settings["model_init_kwargs"]["generation_config"] = plain
    if spec.use_vllm:
        settings["generation_kwargs"] = {"stop_token_ids": plain.eos_token_id}
    arguments = GRPOConfig(**settings)
    with engine_settings(recipe, batches, spec, told), _loading(recipe, spec.policy):
        trainer = GRPOTrainer(
            model=resolve_model(recipe.model_of(spec.policy)),
            args=arguments,
            train_dataset=dataset,
            processing_class=tokenizer,
            reward_funcs=rollouts.reward,
            rollout_func=rollouts.rollout,
            peft_config=_peft(recipe),
        )
    _settle(trainer, recipe, spec)
    play_substitutes(trainer, rollouts, chats)
    if recipe.optim.charge_truncated:
        charge_truncated(trainer)
    method = method_of(recipe)
    plans = [method.plan(recipe.game, role) for role in method.roles_of(spec.policy)]
    if len(plans) > 1:
        set_advantages(trainer, recipe, rollouts.rank)
    if recipe.optim.mask_flat:
        mask_flat(trainer, [plan.group for plan in plans for _ in range(plan.groups)])
    if recipe.sampling.seed_by_prompt:
        sample_by_prompt(trainer, recipe.seed)
    return trainer


def build_pairs_trainer(
    recipe: Recipe,
    spec: RankSpec,
    batches: Batches,
    schedule: Schedule,
    pairs: Mapping[str, Pair],
    tokenizer: Any,
    output_dir: Path,
) -> Any:
    """The SFTTrainer of one rank of one policy, whose pairs the schedule names by id. The loss is that of completions
    alone, the end token included. It samples as a GRPOTrainer does, for held-out figures.

    Raises:
        UserError: the model cannot be loaded.
    """
    from dataclasses import fields

    from datasets import Dataset
    from transformers import TrainingArguments
    from trl import SFTConfig, SFTTrainer

    tokens = {id: pair_tokens(tokenizer, pair) for id, pair in pairs.items()}
    order = [tokens[id] for step in schedule.steps for id in step if id in tokens]
    rows = {
        "input_ids": [[*prompt, *completion] for prompt, completion in order],
        "labels": [[-100] * len(prompt) + completion for prompt, completion in order],
    }
    plain = plain_generation(recipe.model_of(spec.policy), tokenizer)
    shared = {field.name for field in fields(TrainingArguments)}
    settings = trainer_arguments(recipe, spec.policy, batches, len(schedule), output_dir, False, spec.ranks)
    settings = {name: value for name, value in settings.items() if name in shared} | {
        "learning_rate": recipe.sft.rate(recipe.optim.learning_rate),
        "max_length": None,  # pairs that are too long are left out, never cut
        "model_init_kwargs": settings["model_init_kwargs"] | {"generation_config": plain},
        "train_sampling_strategy": "sequential",  # the schedule is the order
    }
    with _loading(recipe, spec.policy):
        trainer = SFTTrainer(
            model=resolve_model(recipe.model_of(spec.policy)),
            args=SFTConfig(**settings),
            train_dataset=Dataset.from_dict(rows),
            processing_class=tokenizer,
            peft_config=_peft(recipe),
        )
    _settle(trainer, recipe, spec)
    make_sampler(trainer, recipe, spec.policy, plain)
    return trainer


def pair_tokens(tokenizer: Any, pair: Pair) -> tuple[list[int], list[int]]:
    """Prompt and completion as they are when a policy samples: tokenised apart, the end token behind the completion."""
    completion = list(tokenizer(pair.completion, add_special_tokens=False)["input_ids"])
    return render(tokenizer, pair.messages), [*completion, tokenizer.eos_token_id]


@contextlib.contextmanager
def _loading(recipe: Recipe, role: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        if "config.json" in str(error) or "huggingface" in str(error).lower():
            first = str(error).strip().splitlines()[0]
            raise UserError(f"cannot load the model {recipe.model_of(role)}: {first}") from None
        raise


def _settle(trainer: Any, recipe: Recipe, spec: RankSpec) -> None:
    from transformers import PrinterCallback, ProgressCallback

    name, path = recipe.model_of(spec.policy), resolve_model(recipe.model_of(spec.policy))
    for adapter in getattr(trainer.model, "peft_config", {}).values():
        if adapter.base_model_name_or_path == path and not user_path(name).exists():
            adapter.base_model_name_or_path = name  # of the hub, as another machine knows it, not a place in a cache
    if spec.use_vllm:
        WeightCheck(trainer.vllm_generation, spec.label)
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)


def trainer_arguments(
    recipe: Recipe, policy: str, batches: Batches, steps: int, output_dir: Path, use_vllm: bool, ranks: int = 1
) -> dict[str, Any]:
    """GRPOConfig's keywords. TRL counts optimizer steps, the run counts rollouts: hence the factors."""
    import torch

    train, optim, sampling = recipe.train, recipe.optim, recipe.sampling
    prompt, completion = longest(recipe, policy)
    cpu = not torch.cuda.is_available()
    arguments: dict[str, Any] = dict(
        output_dir=str(output_dir),
        seed=recipe.seed,
        use_cpu=cpu,
        bf16=train.precision == "bf16" or (train.precision == "auto" and not cpu),  # a run has settled it
        gradient_checkpointing=train.gradient_checkpointing,
        model_init_kwargs={"dtype": "float32"},
        disable_dropout=True,
        # batches
        num_generations=batches.group,
        per_device_train_batch_size=batches.micro_batch,
        steps_per_generation=batches.steps_per_generation,
        gradient_accumulation_steps=batches.gradient_accumulation,
        max_steps=steps * batches.updates_per_step,
        shuffle_dataset=False,  # the schedule is the order: TRL's own shuffle is lost on resume
        remove_unused_columns=False,
        # sampling
        max_completion_length=completion,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        # objective
        loss_type=optim.loss,
        scale_rewards=optim.scale_rewards,
        mask_truncated_completions=optim.mask_truncated,
        beta=optim.kl,
        use_bias_correction_kl=False,
        epsilon=optim.epsilon_low,
        epsilon_high=optim.epsilon_high,
        delta=optim.dual_clip,
        # optimizer
        learning_rate=recipe.role(policy).learning_rate or optim.learning_rate,
        lr_scheduler_type=optim.lr_scheduler,
        warmup_steps=optim.warmup_steps * batches.updates_per_step,
        weight_decay=optim.weight_decay,
        adam_beta2=optim.adam_beta2,
        max_grad_norm=optim.max_grad_norm,
        # the run directory is ours: TRL saves when a callback says so, and reports to nobody
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        logging_nan_inf_filter=False,  # a NaN loss shall be seen, not averaged away
    )
    if ranks > 1:
        # Our own deadline names the rank that hangs; the collective's must not come first.
        arguments |= dict(ddp_timeout=int(recipe.faults.deadline_s) + 300, ddp_find_unused_parameters=False)
    if train.sharding == "fsdp2" and ranks > 1:
        arguments |= dict(
            fsdp=True,
            fsdp_config={
                "version": 2,
                "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "state_dict_type": "FULL_STATE_DICT",
                "activation_checkpointing": train.gradient_checkpointing,
                "reshard_after_forward": True,
            },
            gradient_checkpointing=False,  # FSDP's own, or both would recompute
        )
    if use_vllm:
        arguments |= dict(
            use_vllm=True,
            vllm_mode="colocate",
            vllm_gpu_memory_utilization=sampling.vllm_memory,
            vllm_enable_sleep_mode=sampling.vllm_sleep,
            vllm_max_model_length=prompt + completion,
            vllm_importance_sampling_correction=sampling.importance_correction,
        )
    return arguments


def set_advantages(trainer: Any, recipe: Recipe, rank: Rank) -> None:
    """From now on the advantages of a policy with several roles are those of each role's own groups, where TRL would
    take all rows of a problem for one group. `rank.figures` gets by role what TRL counts over all rows together."""
    import torch
    from trl.trainer.utils import nanstd

    plans, weights = rank.plans, {role: recipe.role(role).weight for role in rank.plans}
    whole, sample, reward = trainer._generate_and_score_completions, trainer.rollout_func, trainer.reward_funcs[0]
    ends = {*trainer.eos_token_ids, trainer.processing_class.pad_token_id}
    sampled: dict[str, Any] = {}

    def rollout(*arguments: Any) -> dict[str, Any]:
        sampled.update(sample(*arguments))
        return sampled

    def rewarded(**columns: Any) -> list[float | None]:
        sampled["reward"] = reward(**columns)
        return sampled["reward"]

    def scored(rows: list[dict[str, Any]]) -> Any:
        output = whole(rows)
        columns = zip(sampled["reward"], sampled["env_mask"], sampled["completion_ids"], strict=True)
        mine = [[nan if one is None else one, sum(mask), ids[-1] not in ends] for one, mask, ids in columns]
        every = trainer.accelerator.gather(torch.tensor(mine, device=output["advantages"].device))
        first = trainer.accelerator.process_index * len(rows)
        advantages = role_advantages(every[:, 0], plans, weights, trainer.scale_rewards)
        output["advantages"] = advantages[first : first + len(rows)]
        for role, (rewards, lengths, clipped) in _by_role(every, plans).items():
            rank.figures[role] = {
                "reward": torch.nanmean(rewards).item(),
                "reward_std": nanstd(rewards).item(),
                "completion_tokens": lengths.mean().item(),
                "clipped_share": clipped.mean().item(),
            }
        return output

    trainer.rollout_func, trainer.reward_funcs[0] = rollout, rewarded
    trainer._generate_and_score_completions = scored


def role_advantages(rewards: Any, plans: Mapping[str, SamplePlan], weights: Mapping[str, float], scale: str) -> Any:
    """Advantages as TRL makes them of one role's groups, times the role's weight.

    Args:
        rewards: [problems x rows], NaN where unscored; a problem's rows are each role's groups, in the plans' order.
        scale: `optim.scale_rewards`; `batch` divides by the deviation of all the role's rewards.
    """
    import torch
    from trl.trainer.utils import nanstd

    found = []
    for role, (part,) in _by_role(rewards[:, None], plans).items():
        groups = part.reshape(-1, plans[role].group)
        advantages = groups - torch.nanmean(groups, dim=1, keepdim=True)
        if scale != "none":
            advantages = advantages / ((nanstd(groups, 1, keepdim=True) if scale == "group" else nanstd(part)) + 1e-4)
        found.append(weights[role] * torch.nan_to_num(advantages).reshape(part.shape))
    return torch.cat(found, dim=1).flatten()


def _by_role(rows: Any, plans: Mapping[str, SamplePlan]) -> dict[str, Any]:
    """[rows, columns] of whole problems as [columns, problems, the role's rows of a problem], by role."""
    import torch

    widths = [plan.group * plan.groups for plan in plans.values()]
    parts = torch.split(rows.reshape(-1, sum(widths), rows.shape[1]), widths, dim=1)
    return {role: part.permute(2, 0, 1) for role, part in zip(plans, parts, strict=True)}


def _peft(recipe: Recipe) -> Any:
    if recipe.lora is None:
        return None
    from peft import LoraConfig

    lora = recipe.lora
    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        task_type="CAUSAL_LM",
    )
