"""Micro-batches of rows of like length, as many as a budget of tokens holds. TRL pads all rows of a rollout to the
longest prompt and to the longest completion and deals them out at random, the same number to each: an update would
mostly compute padding, in many micro-batches that keep no GPU busy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rows = Mapping[str, Any]
"""A micro-batch as TRL has it: tensors by row, prompts padded on the left and completions on the right, and scalars.
Without keys it is an empty one, which costs nothing."""

MEANS = ("kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean")
"""TRL's figures that are a mean over the tokens of a micro-batch, on all ranks."""


def of_like_length(trainer: Any, budget: int) -> None:
    """From now on a micro-batch has rows of like length, as many as `budget` padded tokens hold, and no column that is
    padding in all of them; log-probs are computed of such rows too.

    TRL goes on to ask for `gradient_accumulation_steps` micro-batches. The first of them are empty, for DDP sums up
    gradients in the last. All ranks have the same number of rows in each: under FSDP2 every forward pass needs them
    all, and TRL gathers a figure of each row.

    An optimizer step learns what it would have learned. Rows change places within it alone. `dapo` is a sum over its
    tokens; `grpo` and `dr_grpo` are means over the rows of a micro-batch, which are weighted by their number. `bnpo` is
    a mean over the tokens of a micro-batch: there rows stay where they are. The loss that balances a mixture of experts
    is a mean over micro-batches: there all have as many rows.
    """
    whole, scores, lost = trainer._prepare_inputs, trainer._get_per_token_logps_and_entropies, trainer.compute_loss
    arguments, bound = trainer.args, 0 if trainer.aux_loss_enabled else budget

    def over_ranks(lengths: Any) -> Any:
        return trainer.accelerator.gather(lengths).reshape(-1, *lengths.shape).amax(dim=0)

    sharded = over_ranks if trainer.is_fsdp_enabled else _own

    def prepared(rows: Any) -> Any:
        before = trainer._buffered_inputs
        inputs = whole(rows)
        dealt = trainer._buffered_inputs
        if dealt is before or dealt is None:
            return inputs
        window = arguments.gradient_accumulation_steps
        found = arranged(dealt, window, None if trainer.loss_type == "bnpo" else bound, over_ranks)
        trainer._buffered_inputs = weighted(found, window, lambda tokens: trainer.accelerator.reduce(tokens, "sum"))
        return trainer._buffered_inputs[next(at for at, batch in enumerate(dealt) if batch is inputs)]

    def loss(model: Any, inputs: Rows, *rest: Any, **more: Any) -> Any:
        import torch

        if not inputs:
            return torch.zeros((), device=trainer.accelerator.device, requires_grad=True)
        found = lost(model, inputs, *rest, **more)
        for name in MEANS:
            if values := trainer._metrics["train"].get(name):
                values[-1] *= inputs["weight"]
        if trainer.loss_type in ("grpo", "dr_grpo"):
            found = found * (len(inputs["advantages"]) / arguments.per_device_train_batch_size)
        return found

    def scored(
        model: Any, ids: Any, mask: Any, keep: int, batch_size: int | None = None, *rest: Any, **more: Any
    ) -> Any:
        if batch_size is None or len(ids) <= batch_size or rest or more.get("compute_aux_loss"):
            return scores(model, ids, mask, keep, batch_size, *rest, **more)
        prompts, found = len(mask[0]) - keep, list[Any]([None, None])
        most = -(-len(ids) // batch_size)
        for part in dealt_out(mask[:, :prompts], mask[:, prompts:], bound, most, sharded):
            first, last = columns(mask[part], prompts)
            width = last - prompts
            answers = scores(model, ids[part, first:last], mask[part, first:last], width, len(part), **more)
            for at, answer in enumerate(answers[:2]):
                if answer is not None:
                    found[at] = answer.new_zeros(len(ids), keep) if found[at] is None else found[at]
                    found[at][part, :width] = answer
        return (*found, None)

    trainer._prepare_inputs, trainer._get_per_token_logps_and_entropies = prepared, scored
    trainer.compute_loss = loss


def _own(lengths: Any) -> Any:
    return lengths


def arranged(
    batches: Sequence[Rows], window: int, budget: int | None, over_ranks: Callable[[Any], Any] = _own
) -> list[Rows]:
    """The micro-batches without needless columns; with a `budget` the rows of each `window` of them, those of one
    optimizer step, are dealt out anew: empty ones, then the longest rows first."""
    import torch

    found: list[Rows] = []
    for start in range(0, len(batches), window):
        part = list(batches[start : start + window])
        if budget is not None:
            joined = {
                key: torch.cat([one[key] for one in part]) if _by_row(value) else value
                for key, value in part[0].items()
            }
            places = dealt_out(joined["prompt_mask"], joined["completion_mask"], budget, len(part), over_ranks)
            full = [{key: value[mine] if _by_row(value) else value for key, value in joined.items()} for mine in places]
            part = [*({} for _ in range(len(part) - len(full))), *full]
        found += part
    return [trimmed(one) if one else one for one in found]


def dealt_out(prompts: Any, completions: Any, budget: int, most: int, over_ranks: Callable[[Any], Any]) -> list[Any]:
    """The rows of each micro-batch, the longest first, by their masks [rows, tokens].

    over_ranks: the most of each number among the ranks; as many rows have the same lengths there, or smaller ones.
    """
    import torch

    lengths = torch.stack([prompts.sum(dim=1), completions.sum(dim=1)], dim=1)
    order = lengths.sum(dim=1).argsort(descending=True, stable=True)
    return list(order.split(row_counts(over_ranks(lengths[order]).tolist(), budget, most)))


def row_counts(lengths: Sequence[Sequence[int]], budget: int, most: int) -> list[int]:
    """How many rows of [prompt, completion] tokens each micro-batch gets, in this order: the fewest in which rows x
    (longest prompt + longest completion) are within the budget, where a row that is not stands alone. Were these more
    than `most`, all have as many rows."""
    sizes: list[int] = []
    longest = [0, 0]
    for row in lengths:
        own = [max(tokens, 1) for tokens in row]  # a column stays on either side
        longest = [max(pair) for pair in zip(longest, own, strict=True)]
        if sizes and (sizes[-1] + 1) * sum(longest) <= budget:
            sizes[-1] += 1
        else:
            sizes, longest = [*sizes, 1], own
    if len(sizes) <= most:
        return sizes
    equal = -(-len(lengths) // most)
    return [min(equal, len(lengths) - start) for start in range(0, len(lengths), equal)]


def weighted(batches: Sequence[Rows], window: int, summed: Callable[[Any], Any]) -> list[Rows]:
    """The micro-batches, each with the `weight` that makes the mean of a figure over those of an optimizer step its
    mean over tokens. summed: over the ranks."""
    import torch

    none = next(one["completion_mask"].new_zeros(1) for one in batches if one)  # on the masks' device
    tokens = [one["completion_mask"] * one.get("tool_mask", 1) if one else none for one in batches]
    found: list[Rows] = []
    counts = summed(torch.stack([mask.sum().float() for mask in tokens])).tolist()
    for start in range(0, len(batches), window):
        part, own = batches[start : start + window], counts[start : start + window]
        share = sum(map(bool, part)) / max(sum(own), 1.0)
        found += [one and {**one, "weight": share * count} for one, count in zip(part, own, strict=True)]
    return found


def trimmed(batch: Rows) -> Rows:
    """A micro-batch without the columns that are padding in all of its rows; of its completions one column stays."""
    import torch

    prompts, length = batch["prompt_mask"].shape[1], batch["completion_mask"].shape[1]
    first, last = columns(torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1), prompts)

    def cut(key: str, value: Any) -> Any:
        if not _by_row(value) or value.ndim < 2:
            return value
        if key in ("prompt_ids", "prompt_mask"):
            return value[:, first:]
        return value[:, : last - prompts] if value.shape[1] == length else value

    return {key: cut(key, value) for key, value in batch.items()}


def columns(mask: Any, prompts: int) -> tuple[int, int]:
    """From the first to behind the last column that any row of a mask [rows, tokens] uses; at least one on either side
    of `prompts`, where completions begin."""
    used = mask.any(dim=0).nonzero().flatten().tolist()
    first, last = (used[0], used[-1] + 1) if used else (prompts, prompts)
    return min(first, prompts - 1), max(last, prompts + 1)


def _by_row(value: Any) -> bool:
    return getattr(value, "ndim", 0) > 0
