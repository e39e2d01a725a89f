"""Sampling with a trainer's own engine: the one private TRL call of this project, behind one function.

`GRPOTrainer._generate_single_turn` is how TRL itself samples, with transformers or vLLM, weights synchronised. Its
signature is pinned by a test, so that a TRL upgrade that changes it fails there and not in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Ids = list[int]


def sample_groups(
    trainer: Any,
    prompts: Sequence[Ids],
    n: int,
    *,
    chunk: int,
    on_chunk: Callable[[list[int], list[list[Ids]]], None] | None = None,
) -> tuple[list[list[Ids]], list[list[list[float]]] | None]:
    """Samples `n` completions for each prompt.

    Args:
        prompts: token ids, one list a prompt.
        chunk: sequences sampled together, rounded down to whole groups. Prompts of like length go together, so that
            little is padded.
        on_chunk: called after each chunk with the prompts' indices and their completions.

    Returns:
        completions[prompt][n] as token ids, never empty, and the sampler's log-probs in the same shape (None when the
        engine reports none).
    """
    eos = trainer.processing_class.eos_token_id
    completions: list[list[Ids]] = [[] for _ in prompts]
    logprobs: list[list[list[float]]] = [[] for _ in prompts]
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    groups = max(1, chunk // n)
    scored = True
    for start in range(0, len(order), groups):
        part = order[start : start + groups]
        flat = [list(prompts[i]) for i in part for _ in range(n)]
        ids, scores = trainer._generate_single_turn(flat, None, {}, n)
        scored = scored and scores is not None
        for place, i in enumerate(part):
            rows = range(place * n, (place + 1) * n)
            # TRL cannot take a completion without a token: an empty one becomes a bare end of text.
            completions[i] = [list(ids[row]) or [eos] for row in rows]
            if scores is not None:
                logprobs[i] = [list(scores[row]) or [0.0] for row in rows]
        if on_chunk is not None:
            on_chunk(part, [completions[i] for i in part])
    return completions, logprobs if scored and prompts else None


def render(tokenizer: Any, messages: list[dict[str, str]]) -> Ids:
    """A chat prompt as token ids, ready for the assistant's turn."""
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False))
