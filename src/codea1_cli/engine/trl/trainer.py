"""A recipe's numbers as an ordinary TRL trainer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from codea1_cli.data.pairs import Pair
from codea1_cli.engine.ranks import RankSpec
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.engine.trl.micro_batches import of_like_length
from codea1_cli.engine.trl.objective import charge_truncated, mask_flat, ratio_to_sampler, set_advantages
from codea1_cli.engine.trl.sampling import make_sampler, sample_by_prompt
from codea1_cli.engine.trl.vllm_engine import WeightCheck, engine_settings
from codea1_cli.errors import UserError, first_line, some
from codea1_cli.files import user_path
from codea1_cli.methods.base import Rollouts
from codea1_cli.methods.registry import method_of
from codea1_cli.models.loading import render, resolve_model
from codea1_cli.models.sampler import plain_generation
from codea1_cli.recipe.batching import Batches, filled, longest
from codea1_cli.recipe.schema import Recipe


def import_trl(trainer: str) -> None:
    """Imports a trainer of TRL, the longest part of a rank's start: all ranks do it at once, before any of them builds.

    Trackers that are installed count as not installed from then on: a rank reports to nobody, and importing them takes
    an eighth of that time.
    """
    import trl  # imports nothing yet

    for tracker in ("wandb", "trackio"):
        sys.modules.setdefault(tracker, None)  # type: ignore[arg-type]
    getattr(trl, trainer)


def build_trainer(
    recipe: Recipe,
    spec: RankSpec,
    batches: Batches,
    schedule: Schedule,
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

    # TRL hands a rollout function nothing but the prompts: a problem's id stands there.
    due, copies = recipe.train.problems_per_step, batches.groups_per_problem
    ids = [pid for step in schedule.steps for pid in step[:due] for _ in range(copies)]
    dataset = Dataset.from_dict({"prompt": [[{"role": "user", "content": pid}] for pid in ids]})
    settings = trainer_arguments(recipe, spec.policy, batches, len(schedule), output_dir, spec.use_vllm, spec.ranks)
    plain = plain_generation(recipe.model_of(spec.policy), tokenizer)
    settings["model_init_kwargs"]["generation_config"] = plain
    if spec.use_vllm:
        # Text is made of the tokens elsewhere; vLLM would make it token by token in the process that feeds the GPU.
        settings["generation_kwargs"] = {"stop_token_ids": plain.eos_token_id, "detokenize": False}
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
    # Each of these wraps what TRL calls, the later ones around the earlier: a reward is charged before advantages are
    # made of it, and rows are masked by the advantages that they have in the end.
    if recipe.optim.charge_truncated:
        charge_truncated(trainer)
    method = method_of(recipe)
    plans = [method.plan(recipe.game, role) for role in method.roles_of(spec.policy)]
    if len(plans) > 1:
        set_advantages(trainer, recipe, rollouts.rank)
    if recipe.optim.mask_flat:
        mask_flat(trainer, [plan.group for plan in plans for _ in range(plan.groups)])
    if rollouts.rank.staleness and not spec.use_vllm:
        ratio_to_sampler(trainer)
    if recipe.sampling.seed_by_prompt:
        sample_by_prompt(trainer, recipe.seed)
    of_like_length(trainer, recipe.train.tokens_per_micro_batch)
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
    batches = filled(recipe, batches, max(len(prompt) + len(completion) for prompt, completion in tokens.values()))
    given = trainer_arguments(recipe, spec.policy, batches, len(schedule), output_dir, False, spec.ranks)
    settings = {field.name: given[field.name] for field in fields(TrainingArguments) if field.name in given} | {
        "learning_rate": recipe.sft.rate(recipe.optim.learning_rate),
        "max_length": None,  # pairs that are too long are left out, never cut
        "model_init_kwargs": given["model_init_kwargs"] | {"generation_config": plain},
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
def _loading(recipe: Recipe, policy: str) -> Iterator[None]:
    """Around what loads a policy's model.

    Raises:
        UserError: it cannot be loaded, or lacks weights, which transformers would fill with random numbers.
    """
    name, fault = recipe.model_of(policy), ""
    try:
        lacking = _lacking(resolve_model(name))
    except Exception as error:  # whatever the library raises: it counts where the loading itself fails too
        lacking, fault = [], first_line(error)
    if lacking:
        raise UserError(f"cannot load the model {name}: {some(lacking, 2)} missing in its weights, or of another shape")
    try:
        yield
    except Exception:
        if not fault:
            raise
        raise UserError(f"cannot load the model {name}: {fault}") from None


def _lacking(path: str) -> list[str]:
    """The parameters of a model that its files lack or have in another shape; no weights are read."""
    import transformers

    loader: Any = transformers.AutoModelForCausalLM
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)  # it would report what is returned here
    try:
        options = {"device_map": "meta", "output_loading_info": True, "ignore_mismatched_sizes": True}
        _, told = loader.from_pretrained(path, **options, generation_config=transformers.GenerationConfig())
    finally:
        transformers.logging.set_verbosity(before)
    return sorted({*told["missing_keys"], *(key for key, *_ in told["mismatched_keys"])})


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
