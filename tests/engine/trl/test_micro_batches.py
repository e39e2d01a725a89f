"""Rows of like length share a micro-batch, without needless padding, and an update learns the same from them."""

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.engine.trl.micro_batches import arranged, columns, of_like_length
from codea1_cli.tiny import model_path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def padded(rows: list[tuple[int, int]], number: int = 0) -> dict[str, torch.Tensor]:
    """A batch of rows of so many prompt and completion tokens; each token tells its row and place."""
    longest, most = (max(column) for column in zip(*rows, strict=True))
    name = [100 * (number + i + 1) for i in range(len(rows))]
    prompts = [[0] * (longest - p) + [at + n for n in range(p)] for at, (p, _) in zip(name, rows, strict=True)]
    replies = [[at + 50 + n for n in range(c)] + [0] * (most - c) for at, (_, c) in zip(name, rows, strict=True)]
    ids, replies_ids = torch.tensor(prompts), torch.tensor(replies)
    return {
        "prompt_ids": ids, "prompt_mask": (ids > 0).int(), "completion_ids": replies_ids, "completion_mask": (replies_ids > 0).int(),
        "advantages": torch.tensor(name, dtype=torch.float), "ratio": torch.ones(len(rows), 1), "num_items_in_batch": torch.tensor(7),
    }  # fmt: skip


def content(batch: dict[str, torch.Tensor]) -> list[tuple[list[int], list[int], float]]:
    rows = zip(
        batch["prompt_ids"].tolist(), batch["completion_ids"].tolist(), batch["advantages"].tolist(), strict=True
    )
    return [([id for id in p if id], [id for id in c if id], a) for p, c, a in rows]


@given(
    rows=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=12, max_size=12),
    window=st.sampled_from([1, 2, 3, 6]),
    sort=st.booleans(),
)
def test_a_step_keeps_its_rows_and_loses_its_padding(rows, window, sort):
    whole = padded(rows)
    batches = [
        {key: value[at : at + 2] if value.ndim else value for key, value in whole.items()} for at in range(0, 12, 2)
    ]
    found = arranged(batches, window, sort)
    assert [len(batch["advantages"]) for batch in found] == [2] * 6
    for start in range(0, 6, window):
        before = [row for batch in batches[start : start + window] for row in content(batch)]
        after = [row for batch in found[start : start + window] for row in content(batch)]
        assert sorted(after) == sorted(before)
        lengths = [len(p) + len(c) for p, c, _ in after]
        assert not sort or lengths == sorted(lengths, reverse=True)
        assert sort or after == before
    for batch in found:
        assert batch["prompt_mask"][:, 0].any()
        assert batch["completion_mask"][:, -1].any()
        assert batch["prompt_ids"].shape == batch["prompt_mask"].shape
        assert batch["completion_ids"].shape == batch["completion_mask"].shape
        assert (batch["ratio"].shape, batch["num_items_in_batch"].item()) == ((2, 1), 7)


def test_rows_that_are_all_masked_keep_a_column_on_either_side():
    mask = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 1, 0, 0]])
    assert columns(mask, 3) == (1, 4)
    assert columns(torch.zeros(2, 5, dtype=torch.int), 3) == (2, 4)


def trained(folder, loss: str, like: bool, updates: int = 1, beta: float = 0.1) -> tuple[list[torch.Tensor], list[int]]:
    """The parameters after one rollout of the embedded model on canned rows, and the tokens of each forward pass."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model_path(), padding_side="left")
    prompts = [list(range(30, 30 + 5 + 20 * (i // 4))) for i in range(8)]
    replies = [[20 + i] * (1 + 3 * (i % 4)) + [tokenizer.eos_token_id] for i in range(8)]

    def rollout(asked, trainer):
        return {"prompt_ids": prompts, "completion_ids": replies, "logprobs": None}

    trainer = GRPOTrainer(
        model=str(model_path()),
        args=GRPOConfig(
            output_dir=str(folder), use_cpu=True, bf16=False, num_generations=4, per_device_train_batch_size=2, steps_per_generation=4,
            gradient_accumulation_steps=4 // updates, max_steps=updates, learning_rate=1e-3, beta=beta, loss_type=loss, report_to="none",
            save_strategy="no", logging_steps=1, disable_tqdm=True, gradient_checkpointing=False, model_init_kwargs={"dtype": "float32"},
            optim="sgd", shuffle_dataset=False, max_completion_length=16,
        ),
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": str(n)}] for n in range(2)]}),
        processing_class=tokenizer,
        reward_funcs=lambda prompts, **_: [float(i % 3) for i in range(8)],
        rollout_func=rollout,
    )  # fmt: skip
    if like:
        of_like_length(trainer)
    tokens: list[int] = []
    trainer.model.model.register_forward_pre_hook(
        lambda model, args, kwargs: tokens.append((kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()),
        with_kwargs=True,
    )
    trainer.train()
    return [parameter.detach().clone() for parameter in trainer.model.parameters()], tokens


@pytest.mark.parametrize(("loss", "updates"), [("dapo", 1), ("dapo", 2), ("grpo", 1), ("dr_grpo", 2), ("bnpo", 1)])
def test_an_update_learns_the_same_from_fewer_tokens(loss, updates, tmp_path):
    plain, all_tokens = trained(tmp_path / "plain", loss, False, updates)
    alike, tokens = trained(tmp_path / "alike", loss, True, updates)
    start = [p.detach() for p in model().parameters()]
    moved = max(float((one - before).abs().max()) for one, before in zip(plain, start, strict=True))
    apart = max(float((one - other).abs().max()) for one, other in zip(plain, alike, strict=True))
    assert apart < 1e-3 * moved
    assert sum(tokens) < (0.95 if loss == "bnpo" else 0.8) * sum(all_tokens)


def model():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_path(), dtype=torch.float32)
