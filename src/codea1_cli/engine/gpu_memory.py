"""How much of a GPU its vLLM engine may take, so that training still fits beside it. Pure."""

from __future__ import annotations

from codea1_cli.errors import EnvironmentFault
from codea1_cli.planning.constants import VLLM_SMALLEST_CACHE


def engine_share(
    total: int, free: int, training: int, still: int, engines: int, weights: int, most: float, who: str
) -> float:
    """The share of a GPU's memory for one vLLM engine.

    Args:
        total, free: bytes of the GPU, before this engine.
        training: bytes that training will still take for this policy.
        still: bytes that another policy on this GPU will still take, its engine left out.
        engines: engines that have to come up on this GPU, this one included.
        weights: bytes of its own weights in fp32.
        most: upper bound, the recipe's `sampling.vllm_memory`.

    Raises:
        EnvironmentFault: less is left than the engine's own weights and a small cache need.
    """
    left = (free - training - still) / engines
    least = weights // 2 + VLLM_SMALLEST_CACHE
    if left < least:
        other = f", the other policy {still / 2**30:.1f}" if still else ""
        raise EnvironmentFault(
            f"{who}: {free / 2**30:.1f} GiB of the GPU are free, training needs {training / 2**30:.1f} of them{other}, "
            f"and vLLM at least {engines * least / 2**30:.1f}",
            hint="lower train.tokens_per_micro_batch or max_completion_tokens, give the policy more GPUs with "
            "train.sharding=fsdp2, or train an adapter (lora)",
        )
    return round(min(most, left / total), 4)
