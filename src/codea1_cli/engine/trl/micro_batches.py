"""Micro-batches of rows of like length. TRL pads all rows of a rollout to the longest prompt and to the longest
completion and deals them out at random, so that most of what an update computes is padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Mapping[str, Any]
"""A micro-batch as TRL has it: tensors by row, prompts padded on the left and completions on the right, and scalars."""


def of_like_length(trainer: Any) -> None:
    """From now on a micro-batch has rows of like length, and no column that is padding in all of them; log-probs are
    computed of such rows too.

    Rows change places within their optimizer step alone, so that it learns from the same ones: the losses are sums over
    its tokens (`dapo`) or means over its rows, all micro-batches having as many. `bnpo` is a mean over the tokens of a
    micro-batch: there rows stay where they are.
    """
    whole, scores = trainer._prepare_inputs, trainer._get_per_token_logps_and_entropies

    def prepared(rows: Any) -> Any:
        before = trainer._buffered_inputs
        inputs = whole(rows)
        dealt = trainer._buffered_inputs
        if dealt is before or dealt is None:
            return inputs
        window = trainer.args.gradient_accumulation_steps
        trainer._buffered_inputs = arranged(dealt, window, sort=trainer.loss_type != "bnpo")
        return trainer._buffered_inputs[next(at for at, batch in enumerate(dealt) if batch is inputs)]

    def scored(
        model: Any, ids: Any, mask: Any, keep: int, batch_size: int | None = None, *rest: Any, **more: Any
    ) -> Any:
        if batch_size is None or len(ids) <= batch_size or rest or more.get("compute_aux_loss"):
            return scores(model, ids, mask, keep, batch_size, *rest, **more)
        found: list[Any] = [None, None]
        for part in mask.sum(dim=1).argsort(descending=True, stable=True).split(batch_size):
            first, last = columns(mask[part], len(mask[0]) - keep)
            width = last - (len(mask[0]) - keep)
            answers = scores(model, ids[part, first:last], mask[part, first:last], width, batch_size, **more)
            for at, answer in enumerate(answers[:2]):
                if answer is not None:
                    found[at] = answer.new_zeros(len(ids), keep) if found[at] is None else found[at]
                    found[at][part, :width] = answer
        return (*found, None)

    trainer._prepare_inputs, trainer._get_per_token_logps_and_entropies = prepared, scored


def arranged(batches: Sequence[Rows], window: int, sort: bool = True) -> list[Rows]:
    """The micro-batches without needless columns; with `sort` the rows of each `window` of them, those of one optimizer
    step, are dealt out by length, the longest first."""
    import torch

    found: list[Rows] = []
    for start in range(0, len(batches), window):
        part = list(batches[start : start + window])
        if sort:
            joined = {
                key: torch.cat([one[key] for one in part]) if _by_row(value) else value
                for key, value in part[0].items()
            }
            lengths = joined["prompt_mask"].sum(dim=1) + joined["completion_mask"].sum(dim=1)
            places = lengths.argsort(descending=True, stable=True).chunk(len(part))
            part = [{key: value[mine] if _by_row(value) else value for key, value in joined.items()} for mine in places]
        found += part
    return [trimmed(one) for one in found]


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
