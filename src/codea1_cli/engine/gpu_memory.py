"""How much of a GPU its vLLM engine may take, so that training still fits beside it. Pure."""

from __future__ import annotations

from codea1_cli.errors import EnvironmentFault

_SMALLEST_CACHE = 2**30


def engine_share(total: int, free: int, training: int, weights: int, others: int, most: float, who: str) -> float:
    """The share of a GPU's memory for one vLLM engine.

    Args:
        total, free: bytes of the GPU, before this engine.
        training: bytes that training will still take for this policy.
        weights: bytes of its weights in fp32.
        others: how many policies of the same load still have to come up on this GPU.
        most: upper bound, the recipe's `sampling.vllm_memory`.

    Raises:
        EnvironmentFault: less is left than the engine's own weights and a small cache need.
    """
    left = (free - training - others * (training + weights)) / (1 + others)
    least = weights // 2 + _SMALLEST_CACHE
    if left < least:
        raise EnvironmentFault(
            f"{who}: {free / 2**30:.1f} GiB of the GPU are free, training needs {training / 2**30:.1f} of them, "
            f"and vLLM at least {least / 2**30:.1f}",
            hint="lower train.tokens_per_micro_batch or max_completion_tokens, give the policy more GPUs with "
            "train.sharding=fsdp2, or train an adapter (lora)",
        )
    return round(min(most, left / total), 4)
