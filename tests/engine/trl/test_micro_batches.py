"""Rows of like length share a micro-batch, without needless padding, and an update learns the same from them."""

import multiprocessing
import os
import socket
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.engine.trl.micro_batches import arranged, columns, of_like_length, row_counts, weighted
from codea1_cli.engine.trl.objective import set_advantages
from codea1_cli.methods.base import SamplePlan
from codea1_cli.recipe.files import load_recipe
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


LENGTHS = st.tuples(st.integers(1, 9), st.integers(1, 9))


def width(rows: list[tuple[int, int]]) -> int:
    """The columns of these rows, padded: as many for each."""
    return sum(max(max(column), 1) for column in zip(*rows, strict=True))


@given(
    rows=st.lists(LENGTHS, min_size=12, max_size=12),
    window=st.sampled_from([1, 2, 3, 6]),
    budget=st.none() | st.integers(0, 240),
)
def test_a_step_keeps_its_rows_and_loses_its_padding(rows, window, budget):
    whole = padded(rows)
    batches = [
        {key: value[at : at + 2] if value.ndim else value for key, value in whole.items()} for at in range(0, 12, 2)
    ]
    found = arranged(batches, window, budget)
    assert len(found) == 6
    for start in range(0, 6, window):
        before = [row for batch in batches[start : start + window] for row in content(batch)]
        full = [batch for batch in found[start : start + window] if batch]
        assert full == found[start + window - len(full) : start + window], "the empty ones come first"
        after = [row for batch in full for row in content(batch)]
        assert sorted(after) == sorted(before)
        lengths = [len(p) + len(c) for p, c, _ in after]
        assert after == before if budget is None else lengths == sorted(lengths, reverse=True)
    for batch in filter(None, found):
        assert batch["prompt_mask"][:, 0].any()
        assert batch["completion_mask"][:, -1].any()
        assert batch["prompt_ids"].shape == batch["prompt_mask"].shape
        assert batch["completion_ids"].shape == batch["completion_mask"].shape
        assert (batch["ratio"].shape[1], batch["num_items_in_batch"].item()) == (1, 7)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40),
    budget=st.integers(0, 200),
    most=st.integers(1, 40),
)
def test_as_few_micro_batches_as_the_budget_allows_take_every_row_once(lengths, budget, most):
    counts = row_counts(lengths, budget, most)
    assert sum(counts) == len(lengths)
    assert all(count > 0 for count in counts)
    assert len(counts) <= most
    ends = [sum(counts[:at]) for at in range(len(counts) + 1)]
    parts = [lengths[a:b] for a, b in pairwise(ends)]
    within = all(len(part) == 1 or len(part) * width(part) <= budget for part in parts)
    if within:  # no row would find a place in the micro-batch before its own
        assert all((len(a) + 1) * width([*a, b[0]]) > budget for a, b in pairwise(parts)) or len(set(counts)) <= 2
    else:
        assert len(row_counts(lengths, budget, len(lengths))) > most, "equal ones only where the budget asks for more"
        assert max(counts) == counts[0] == -(-len(lengths) // most)


@given(
    each=st.integers(1, 6),
    most=st.integers(1, 9),
    limits=LENGTHS,
    spare=st.integers(0, 20),
    data=st.data(),
)
def test_what_holds_rows_of_full_length_is_always_enough(each, most, limits, spare, data):
    """Equal micro-batches would keep the budget: no more are ever needed."""
    prompt, completion = limits
    row = st.tuples(st.integers(0, prompt), st.integers(0, completion))
    lengths = data.draw(st.lists(row, min_size=each * most, max_size=each * most))
    budget = each * (prompt + completion) + spare
    assert len(row_counts(lengths, budget, len(lengths))) <= most


def test_ranks_agree_on_the_rows_of_each_micro_batch():
    """By the longest row of each place: a rank whose rows are shorter has as many micro-batches, and as many rows."""
    short, long = padded([(3, 2)] * 8), padded([(9, 9), (8, 7), (6, 6), (6, 5), (3, 2), (3, 1), (1, 1), (1, 1)])
    counts = {}
    for name, mine in (("short", short), ("long", long)):
        parts = [
            {key: value[at : at + 2] if value.ndim else value for key, value in mine.items()} for at in (0, 2, 4, 6)
        ]
        both = torch.tensor([[9, 9], [8, 7], [6, 6], [6, 5], [3, 2], [3, 2], [3, 2], [3, 2]])
        found = arranged(parts, 4, 40, lambda lengths, both=both: torch.maximum(lengths, both))
        counts[name] = [len(batch["advantages"]) if batch else 0 for batch in found]
    assert counts["short"] == counts["long"] == [0, 2, 3, 3]


def test_rows_that_are_all_masked_keep_a_column_on_either_side():
    mask = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 1, 0, 0]])
    assert columns(mask, 3) == (1, 4)
    assert columns(torch.zeros(2, 5, dtype=torch.int), 3) == (2, 4)


class Trained(NamedTuple):
    parameters: list[torch.Tensor]
    learnt: list[tuple[int, int]]
    """Rows and columns of each forward pass of an update."""
    scored: list[tuple[int, int]]
    """Those for log-probs."""
    logs: list[dict[str, float]]

    @property
    def tokens(self) -> int:
        return sum(rows * columns for rows, columns in self.learnt + self.scored)

    def apart(self, other: "Trained") -> float:
        """How far the parameters of two lie apart at the most."""
        pairs = zip(self.parameters, other.parameters, strict=True)
        return max(float((mine - its).abs().max()) for mine, its in pairs)


def trained(
    folder, loss: str, budget: int | None = None, updates: int = 1, each: int | None = None, roles: bool = False
) -> Trained:
    """One rollout of the embedded model on eight canned rows a rank, learnt from in micro-batches of `each`, or of what a
    budget holds. roles: half of a problem's rows are of another role, and one has no reward."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    each = each or 2 // updates
    tokenizer = AutoTokenizer.from_pretrained(model_path(), padding_side="left")
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    prompts = [list(range(30, 30 + 5 + (20 - 7 * rank) * (i // 4))) for i in range(8)]
    replies = [[20 + i + rank] * (1 + (3 + rank) * (i % 4)) + [tokenizer.eos_token_id] for i in range(8)]
    rewards = [None if roles and i == 2 else float(i * (1 + rank) % 3) for i in range(8)]
    masks = {"env_mask": [[int(reward is not None)] * len(ids) for reward, ids in zip(rewards, replies, strict=True)]}

    def rollout(asked, trainer):
        return {"prompt_ids": prompts, "completion_ids": replies, "logprobs": None, **(masks if roles else {})}

    trainer = GRPOTrainer(
        model=str(model_path()),
        args=GRPOConfig(
            output_dir=str(folder), use_cpu=True, bf16=False, num_generations=4, per_device_train_batch_size=each, steps_per_generation=8 // each,
            gradient_accumulation_steps=8 // each // updates, max_steps=updates, learning_rate=1e-3, beta=0.1, loss_type=loss, report_to="none",
            save_strategy="no", logging_steps=1, disable_tqdm=True, gradient_checkpointing=False, model_init_kwargs={"dtype": "float32"},
            optim="sgd", shuffle_dataset=False, max_completion_length=16, ddp_find_unused_parameters=False if ranks > 1 else None,
        ),
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": str(n)}] for n in range(2 * ranks)]}),
        processing_class=tokenizer,
        reward_funcs=lambda prompts, **_: rewards,
        rollout_func=rollout,
    )  # fmt: skip
    if roles:
        plan = SamplePlan(sampled=2, group=2, groups=1)
        recipe = load_recipe("tiny", ["method=self-play", "test.weight=0.5"])
        set_advantages(trainer, recipe, SimpleNamespace(plans={"code": plan, "test": plan}, figures={}))
    if budget is not None:
        trainer.is_fsdp_enabled = ranks > 1  # ranks that need each other for every forward pass
        of_like_length(trainer, budget)
        trainer.is_fsdp_enabled = False
    learnt: list[tuple[int, int]] = []
    scored: list[tuple[int, int]] = []

    def seen(model, args, kwargs):
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        (learnt if torch.is_grad_enabled() else scored).append(tuple(ids.shape))

    trainer.model.model.register_forward_pre_hook(seen, with_kwargs=True)
    trainer.train()
    own = trainer.accelerator.unwrap_model(trainer.model).parameters()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    return Trained([parameter.detach().clone() for parameter in own], learnt, scored, logs)


BUDGET = 112
"""Three of the longest rows: of eight rows three, three and two, of an optimizer step's four three and one."""


@pytest.mark.parametrize(
    ("loss", "updates", "roles"),
    [("dapo", 1, False), ("dapo", 2, True), ("grpo", 1, False), ("grpo", 2, False), ("dr_grpo", 1, True),
     ("dr_grpo", 2, False), ("bnpo", 1, False), ("bnpo", 2, False)],
)  # fmt: skip
def test_an_update_learns_the_same_from_fewer_tokens_in_fewer_micro_batches(loss, updates, roles, tmp_path):
    plain = trained(tmp_path / "plain", loss, None, updates, roles=roles)
    alike = trained(tmp_path / "alike", loss, BUDGET, updates, roles=roles)
    moved = plain.apart(Trained([p.detach() for p in model().parameters()], [], [], []))
    assert plain.apart(alike) < 1e-3 * moved
    assert alike.tokens < 0.95 * plain.tokens
    assert (len(alike.learnt) < len(plain.learnt)) == (loss != "bnpo")
    assert len(alike.scored) < len(plain.scored) or updates == 1
    assert all(rows * columns <= BUDGET for rows, columns in alike.learnt + alike.scored)
    whole = trained(tmp_path / "whole", loss, None, updates, each=8 // updates, roles=roles)
    for log, one, all_in_one in zip(alike.logs, plain.logs, whole.logs, strict=True):
        for name in ("loss", "grad_norm"):
            assert log[name] == pytest.approx(one[name], rel=1e-3, abs=1e-6)
        for name in ("entropy", "kl", "clip_ratio/region_mean"):  # means over a step's tokens
            assert log[name] == pytest.approx(all_in_one[name], rel=1e-3, abs=1e-6) or loss == "bnpo"


def on_a_rank(rank: int, port: int, folder: Path, loss: str, updates: int) -> None:
    """What a rank of two learns by TRL's micro-batches and by ours, written to the folder."""
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "ACCELERATE_TORCH_DEVICE": "cpu", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    found = [trained(folder, loss, budget, updates) for budget in (None, BUDGET)]
    torch.save([tuple(one) for one in found], folder / f"{rank}.pt")


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "updates"), [("dapo", 2), ("grpo", 1)])
def test_two_ranks_learn_what_they_learn_from_equal_micro_batches(loss, updates, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=on_a_rank, args=(rank, port, tmp_path, loss, updates)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(300)
        assert process.exitcode == 0
    (plain, alike), (_, other) = ([Trained(*one) for one in torch.load(tmp_path / f"{rank}.pt")] for rank in (0, 1))
    moved = plain.apart(Trained([p.detach() for p in model().parameters()], [], [], []))
    assert plain.apart(alike) < 1e-3 * moved
    assert alike.apart(other) == 0
    for name in ("loss", "grad_norm"):
        assert [log[name] for log in alike.logs] == pytest.approx([log[name] for log in plain.logs], rel=1e-3, abs=1e-6)
    assert len(alike.learnt) < len(plain.learnt)
    for mine, its in ((alike.learnt, other.learnt), (alike.scored, other.scored)):
        assert mine != its or not mine, "the ranks' rows have other lengths"
        assert [rows for rows, _ in mine] == [rows for rows, _ in its]


def model():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_path(), dtype=torch.float32)


def test_empty_micro_batches_count_on_the_device_of_the_others():
    """`meta` stands for a GPU: torch puts no two devices together."""

    def summed(counts: torch.Tensor) -> torch.Tensor:
        assert counts.device.type == "meta"
        return torch.tensor([0.0, 6.0])

    full = {"completion_mask": torch.ones(2, 3, device="meta")}
    assert [one.get("weight") for one in weighted([{}, full], 2, summed)] == [None, 1.0]
