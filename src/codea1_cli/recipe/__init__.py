"""The recipe: everything that decides a run, how it is read from files, and what follows from it. Here are the names of
those that are shipped, and by which other names people know a recipe's keys."""

import importlib.resources
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from codea1_cli.errors import meant, near


def recipe_folder() -> Path:
    """The folder of the shipped recipes: package data in a wheel, `recipes/` in a source tree."""
    packaged = Path(str(importlib.resources.files("codea1_cli"))) / "recipes"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "recipes"


def recipe_names() -> list[str]:
    """The shipped recipes' names, smallest model first."""
    return sorted((p.stem for p in recipe_folder().glob("*.yaml")), key=_size)


def _size(name: str) -> float:
    number, unit = name[:-1], name[-1:]
    if not number.replace(".", "", 1).isdigit():
        return 0.0
    return float(number) * {"m": 1e6, "b": 1e9}.get(unit, 1.0)


_NAMES = {
    "model": "model_name model_path model_name_or_path base_model pretrained checkpoint_path",
    "seed": "random_seed",
    "data.train": "dataset train_file train_files train_data train_dataset data_path",
    "data.heldout": "val val_file val_files val_data eval_dataset test_file held_out validation_file",
    "data.limit": "max_samples max_train_samples",
    "game.n_code game.n_test": "n_samples num_samples num_generations group_size rollout_n samples_per_prompt",
    "game.tests_per_suite": "n_tests num_tests",
    "judge.time_limit_s": "timeout timeout_s time_limit",
    "judge.memory_mb": "memory memory_limit memory_limit_mb",
    "judge.workers": "num_workers n_workers jobs",
    "judge.float_tolerance": "tolerance atol rtol",
    "train.problems_per_step": "batch batch_size bs train_batch_size rollout_batch_size global_batch_size "
    "prompts_per_step",
    "train.updates_per_step": "mini_batch_size ppo_mini_batch_size num_iterations ppo_epochs",
    "train.tokens_per_micro_batch": "micro_batch micro_batch_size per_device_batch_size per_device_train_batch_size "
    "gradient_accumulation_steps grad_accum max_token_len_per_gpu",
    "train.epochs": "epoch n_epochs num_epochs num_train_epochs total_epochs",
    "train.max_steps": "steps n_steps num_steps total_steps train_steps iterations total_training_steps",
    "train.precision": "dtype torch_dtype bf16 fp16 mixed_precision",
    "train.sharding": "fsdp deepspeed zero zero_stage strategy parallelism",
    "train.gradient_checkpointing": "activation_checkpointing grad_checkpointing",
    "optim.learning_rate": "lr",
    "optim.warmup_steps": "warmup_ratio num_warmup_steps lr_warmup_steps",
    "optim.lr_scheduler": "scheduler lr_schedule lr_scheduler_type lr_decay",
    "optim.weight_decay": "wd",
    "optim.adam_beta2": "beta2 adam_b2 betas",
    "optim.max_grad_norm": "grad_clip clip_grad clip_grad_norm gradient_clipping max_norm",
    "optim.epsilon_low optim.epsilon_high": "epsilon eps clip clip_eps clip_ratio clip_range cliprange eps_clip",
    "optim.epsilon_low": "clip_ratio_low",
    "optim.epsilon_high": "clip_ratio_high",
    "optim.dual_clip": "clip_ratio_c delta",
    "optim.mask_truncated": "mask_truncated_completions overlong_filtering filter_overlong",
    "optim.kl": "beta kl_beta kl_coef kl_coeff kl_weight kl_loss_coef kl_penalty init_kl_coef",
    "optim.loss": "loss_type loss_agg_mode",
    "sampling.temperature": "temp",
    "sampling.engine": "use_vllm rollout_engine",
    "sampling.vllm_memory": "gpu_memory_utilization vllm_gpu_memory_utilization",
    "sampling.vllm_eager": "enforce_eager",
    "code.max_completion_tokens test.max_completion_tokens": "max_tokens max_new_tokens max_completion_length "
    "max_response_length response_length completion_length",
    "code.max_prompt_tokens test.max_prompt_tokens": "max_prompt_length prompt_length max_length max_seq_len "
    "max_seq_length max_model_len context_length",
    "code.gpus test.gpus": "gpu num_gpus n_gpus n_gpus_per_node devices",
    "code.ranks test.ranks": "world_size num_processes nproc_per_node",
    "lora.r": "rank lora_r lora_rank",
    "lora.alpha": "lora_alpha",
    "lora.dropout": "lora_dropout",
    "lora.target_modules": "lora_target_modules modules_to_train",
    "checkpoint.every": "save_every save_steps save_freq save_interval ckpt_every checkpoint_every",
    "checkpoint.keep": "save_total_limit keep_last max_to_keep",
    "eval.every": "eval_every eval_steps eval_freq test_freq eval_interval val_interval",
    "faults.deadline_s": "deadline watchdog_s",
}
ALIASES = {alias: tuple(keys.split()) for keys, aliases in _NAMES.items() for alias in aliases.split()}
"""The last part of a key as it is called elsewhere, and its keys here."""


def meant_key(key: str, keys: Iterable[str]) -> str | None:
    """The hint for a key that is none of `keys`: the same last part elsewhere, another name for it, or a misspelt last
    part."""
    section, _, leaf = key.rpartition(".")
    leaf = leaf.replace("-", "_").lower()
    by_leaf: dict[str, list[str]] = {}
    for known in keys:
        by_leaf.setdefault(known.rpartition(".")[2], []).append(known)
    if leaf in by_leaf or leaf in ALIASES:
        return meant([*ALIASES.get(leaf, ()), *by_leaf.get(leaf, ())])
    siblings = [name for name, found in by_leaf.items() if f"{section}.{name}" in found]
    if close := near(leaf, siblings, 1):
        return meant([f"{section}.{close[0]}"])
    return meant(known for name in near(leaf, by_leaf, 1) for known in by_leaf[name])


def flat(values: dict[str, Any], prefix: str = "", sign: str = ".") -> dict[str, Any]:
    """Nested sections as one level of keys, joined by `sign`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}{sign}", sign) if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
