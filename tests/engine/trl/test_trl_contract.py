"""What we lean on in the pinned TRL, tried on the embedded model: unscored rows teach nothing."""

import os
from math import nan

import pytest
import torch

from codea1_cli.engine.trl.objective import ratio_to_sampler, role_advantages
from codea1_cli.engine.trl.sampling import log_probs
from codea1_cli.methods.base import SamplePlan
from codea1_cli.tiny import model_path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def step_with(rewards, mask, tmp_path, older=None):
    """One GRPO step on canned rows; `older`: the log-probs by which the policy that sampled them was more certain of each
    token than this one is. Returns (the change of the parameters, the trainer's logs)."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model_path(), padding_side="left")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "n"}], add_generation_prompt=True, tokenize=True, return_dict=False
    )

    def scores(trainer, completions):
        if older is None:
            return None
        (rows,) = log_probs(trainer, [prompt], [completions])
        return [[score + older for score in row] for row in rows]

    def rollout(prompts, trainer):
        completions = [[20 + i, 30 + i, tokenizer.eos_token_id] for i in range(len(prompts))]
        masks = [[int(mask[i])] * 3 for i in range(len(prompts))]
        return {
            "prompt_ids": [prompt] * len(prompts),
            "completion_ids": completions,
            "logprobs": scores(trainer, completions),
            "env_mask": masks,
        }

    trainer = GRPOTrainer(
        model=str(model_path()),
        args=GRPOConfig(
            output_dir=str(tmp_path), use_cpu=True, bf16=False, num_generations=len(rewards), per_device_train_batch_size=len(rewards),
            max_steps=1, learning_rate=1e-2, beta=0.1, loss_type="dapo", report_to="none", save_strategy="no", logging_steps=1,
            disable_tqdm=True, gradient_checkpointing=False, model_init_kwargs={"dtype": "float32"},
        ),
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": "n"}]]}),
        processing_class=tokenizer,
        reward_funcs=lambda prompts, **_: rewards,
        rollout_func=rollout,
    )  # fmt: skip
    if older is not None:
        ratio_to_sampler(trainer)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    moved = max(float((a - b.detach()).abs().max()) for a, b in zip(before, trainer.model.parameters(), strict=True))
    log = next(entry for entry in trainer.state.log_history if "loss" in entry)
    return moved, log | {"advantages": list(trainer._logs["advantages"])}


def test_samples_of_an_older_policy_are_weighed_by_its_own_log_probs(tmp_path):
    """Of the same policy nothing changes. Where the older one was less certain by more than the clip, those that earned
    more than the others are cut, as PPO cuts them."""
    rewards, mask = [0.0, 1.0, 0.0, 1.0], [1] * 4
    moved, log = step_with(rewards, mask, tmp_path / "a")
    same, same_log = step_with(rewards, mask, tmp_path / "b", older=0.0)
    assert same == pytest.approx(moved, rel=1e-4)
    assert same_log["grad_norm"] == pytest.approx(log["grad_norm"], rel=1e-4)
    assert same_log["clip_ratio/region_mean"] == 0
    _, older = step_with(rewards, mask, tmp_path / "c", older=-1.0)
    assert older["clip_ratio/high_mean"] == pytest.approx(0.5)


def test_scored_rows_move_the_policy(tmp_path):
    moved, log = step_with([0.0, 1.0, 0.0, 1.0], [1, 1, 1, 1], tmp_path)
    assert moved > 0
    assert log["grad_norm"] > 0


def test_unscored_rows_stay_out_of_the_baseline(tmp_path):
    _, log = step_with([0.0, 1.0, None, None], [1, 1, 0, 0], tmp_path)
    assert log["reward"] == pytest.approx(0.5)
    assert log["loss"] == log["loss"], "a None reward must not make the loss NaN"
    assert log["grad_norm"] > 0
    plans = {"test": SamplePlan(sampled=4, group=4, groups=1)}
    own = role_advantages(torch.tensor([0.0, 1.0, nan, nan]), plans, {"test": 1.0}, "group")
    assert own.tolist() == log["advantages"], "a policy of several roles has TRL's advantages in each"


def test_a_wholly_unscored_and_masked_batch_changes_nothing(tmp_path):
    moved, log = step_with([None] * 4, [0, 0, 0, 0], tmp_path)
    assert moved == 0
    assert log["grad_norm"] == 0
