"""Advantages of a policy that plays several roles: each role by its own groups, as TRL makes them of one."""

from math import nan
from types import SimpleNamespace

import pytest
import torch

from codea1_cli.engine.trl.objective import role_advantages, set_advantages
from codea1_cli.methods.base import SamplePlan

# Two candidates and two groups of three suites a problem, two problems.
PLANS = {"code": SamplePlan(sampled=2, group=2, groups=1), "test": SamplePlan(sampled=6, group=3, groups=2)}
CODE = [[0.0, 1.0], [0.5, 0.5]]
TEST = [[0.0, 0.5, 1.0, 0.2, nan, 0.4], [nan, nan, nan, 1.0, 1.0, 0.0]]
REWARDS = torch.tensor([[*code, *test] for code, test in zip(CODE, TEST, strict=True)]).flatten()


def normalised(rewards, scale, every=None):
    """TRL's formula in plain numbers; `every` are the rewards whose deviation divides."""
    known = [reward for reward in rewards if reward == reward]
    mean = sum(known) / len(known) if known else nan
    divisor = 1.0
    if scale != "none":
        of = [reward for reward in (every or rewards) if reward == reward]
        center = sum(of) / len(of) if of else nan
        divisor = (sum((r - center) ** 2 for r in of) / (len(of) - 1)) ** 0.5 + 1e-4 if len(of) > 1 else nan
    values = [(reward - mean) / divisor for reward in rewards]
    return [value if value == value else 0.0 for value in values]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_each_role_is_normalised_alone_and_carries_its_weight(scale):
    found = role_advantages(REWARDS, PLANS, {"code": 2.0, "test": 0.5}, scale).tolist()
    all_code, all_test = [*CODE[0], *CODE[1]], [*TEST[0], *TEST[1]]
    expected = []
    for code, test in zip(CODE, TEST, strict=True):
        expected += [2.0 * a for a in normalised(code, scale, all_code if scale == "batch" else None)]
        for group in (test[:3], test[3:]):
            expected += [0.5 * a for a in normalised(group, scale, all_test if scale == "batch" else None)]
    assert found == pytest.approx(expected, abs=1e-6)


def test_they_replace_trls_on_each_rank_and_figures_are_by_role():
    """Two ranks of one problem each; this one is the second. What counts is what the reward function makes of a rollout."""
    rows = len(REWARDS) // 2
    mine = slice(rows, 2 * rows)
    columns = {
        "row_reward": [None if reward != reward else reward for reward in REWARDS[mine].tolist()],
        "env_mask": [[1] * (row + 1) if REWARDS[mine][row] == REWARDS[mine][row] else [0] for row in range(rows)],
        "completion_ids": [[5] * row + [9 if row else 5] for row in range(rows)],
    }
    other = torch.stack([REWARDS[:rows], torch.full((rows,), 4.0), torch.zeros(rows)], dim=1)

    class Trainer:
        eos_token_ids, processing_class, scale_rewards = [9], SimpleNamespace(pad_token_id=0), "group"
        accelerator = SimpleNamespace(process_index=1, gather=lambda own: torch.cat([other, own]))

        def __init__(self):
            self.reward_funcs = [lambda row_reward, **_: [None if one is None else 2 * one for one in row_reward]]
            self.rollout_func = lambda prompts, trainer: dict(columns)
            self._generate_and_score_completions = self.score

        def score(self, rows):
            output = self.rollout_func(None, self)
            self.reward_funcs[0](row_reward=output["row_reward"])
            return {"advantages": torch.zeros(len(rows)), "kept": 1}

    recipe = SimpleNamespace(role=lambda role: SimpleNamespace(weight={"code": 1.0, "test": 3.0}[role]))
    rank, trainer = SimpleNamespace(plans=PLANS, figures={}), Trainer()
    set_advantages(trainer, recipe, rank)
    output = trainer._generate_and_score_completions([{}] * rows)
    whole = role_advantages(torch.cat([REWARDS[:rows], 2 * REWARDS[mine]]), PLANS, {"code": 1.0, "test": 3.0}, "group")
    assert output["advantages"].tolist() == whole[mine].tolist()
    assert output["kept"] == 1
    assert rank.figures["code"]["reward"] == pytest.approx((0.0 + 1.0 + 1.0 + 1.0) / 4)
    assert rank.figures["code"]["clipped_share"] == pytest.approx(1 / 4)
    assert rank.figures["code"]["completion_tokens"] == pytest.approx((4 + 4 + 1 + 2) / 4)
    assert rank.figures["test"]["reward"] == pytest.approx((0.0 + 0.5 + 1.0 + 0.2 + 0.4 + 2.0 + 2.0 + 0.0) / 8)
    assert rank.figures["test"]["clipped_share"] == 0.0
