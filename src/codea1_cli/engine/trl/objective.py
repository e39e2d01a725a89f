"""What the rows of a step count for in the update, where a recipe or a method wants it otherwise than TRL: rewards,
advantages, and which rows are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from codea1_cli.methods.base import Ids, Rank, SamplePlan
from codea1_cli.recipe.schema import Recipe


def charge_truncated(trainer: Any) -> None:
    """From now on a reply that was cut off at its limit earns 0 at most; one that is unscored stays so."""
    reward, ends = trainer.reward_funcs[0], {*trainer.eos_token_ids, trainer.processing_class.pad_token_id}

    def charged(*, completion_ids: Sequence[Ids], **columns: Any) -> list[float | None]:
        rewards = reward(completion_ids=completion_ids, **columns)
        return [
            min(one, 0.0) if one is not None and ids[-1] not in ends else one
            for one, ids in zip(rewards, completion_ids, strict=True)
        ]

    trainer.reward_funcs[0] = charged


def mask_flat(trainer: Any, groups: Sequence[int]) -> None:
    """From now on groups of replies without any advantage are left out of the loss, the KL term and the token mean.
    Logged as `flat_masked`: the share of rows left out. groups: the sizes of a problem's groups, in order."""
    import torch

    whole = trainer._generate_and_score_completions

    def masked(rows: list[dict[str, Any]]) -> Any:
        scored = whole(rows)
        parts = (scored["advantages"].reshape(-1, sum(groups)).abs() < 1e-6).split(list(groups), dim=1)
        flat = torch.cat([part.all(dim=1, keepdim=True).expand_as(part) for part in parts], dim=1).flatten()
        scored["completion_mask"] = scored["completion_mask"] * (~flat).unsqueeze(1)
        seen = scored["completion_mask"] * scored.get("tool_mask", 1)
        scored["num_items_in_batch"] = trainer.accelerator.gather(seen.sum()).sum()
        share = trainer.accelerator.gather(flat.float()).mean().item()
        trainer._metrics["train"]["flat_masked"].append(share)
        return scored

    trainer._generate_and_score_completions = masked


def ratio_to_sampler(trainer: Any) -> None:
    """From now on ratios are those to the policy that sampled, whose log-probs come with the rollout: PPO's own
    correction for samples of an older policy, where TRL without vLLM takes them for the newest one's."""
    whole = trainer._generate_and_score_completions

    def scored(rows: list[dict[str, Any]]) -> Any:
        output = whole(rows)
        return output | {"old_per_token_logps": output["sampling_per_token_logps"]}

    trainer._generate_and_score_completions = scored


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
            rank.figures[role] = rank.figures.get(role, {}) | {
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
