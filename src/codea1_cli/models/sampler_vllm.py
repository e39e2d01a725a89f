"""Sampling with vLLM, with its own scheduling of the batch and a seed for each prompt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codea1_cli.environment import LOOPBACK, VLLM, settle
from codea1_cli.errors import UserError, first_line
from codea1_cli.files import kept_json
from codea1_cli.models.sampler import (
    ModelRef,
    SamplingSettings,
    describe_model,
    end_tokens,
    load_model_tokenizer,
    prompt_seed,
    versions,
)


class VllmSampler:
    """One vLLM engine on the first GPU, with at most the share `memory` of it.

    Raises:
        UserError: the model cannot be loaded, or the GPU has no room for it.
    """

    def __init__(self, model: ModelRef, memory: float = 0.85) -> None:
        settle()
        os.environ.update(VLLM | LOOPBACK)
        from vllm import LLM

        self.ref = model
        self.tokenizer: Any = load_model_tokenizer(model)
        self._ends = end_tokens(model.path, self.tokenizer)
        options: dict[str, Any] = {"seed": 0, "gpu_memory_utilization": _share(memory), "generation_config": "vllm"}
        self._adapter: Any = None
        if model.adapter is not None:
            from vllm.lora.request import LoRARequest

            options |= {"enable_lora": True, "max_lora_rank": _rank(model.adapter)}
            self._adapter = LoRARequest("policy", 1, model.adapter)
        try:
            self.engine: Any = LLM(model=model.path, **options)
        except (OSError, ValueError, RuntimeError, AssertionError) as fault:  # the last: memory changed meanwhile
            raise UserError(f"vLLM cannot load {model.label or model.path}: {first_line(fault)}") from None

    def generate(self, prompts: Sequence[list[int]], settings: SamplingSettings) -> list[list[str]]:
        """`n` texts for each prompt."""
        from vllm import SamplingParams

        copies = 1 if settings.temperature == 0 else settings.n  # all greedy samples are one
        each = [
            SamplingParams(
                n=copies,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=-1,
                max_tokens=settings.max_new_tokens,
                seed=prompt_seed(prompt, settings.seed),
                stop=list(settings.stop) or None,
                stop_token_ids=self._ends,
            )
            for prompt in prompts
        ]
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        extra = {"lora_request": self._adapter} if self._adapter is not None else {}
        outputs = self.engine.generate(asked, each, use_tqdm=False, **extra)
        texts = [[reply.text for reply in output.outputs] for output in outputs]
        return [[row[number % copies] for number in range(settings.n)] for row in texts]

    def describe(self) -> dict[str, Any]:
        """Model, tokenizer, engine, number type and versions, for a result file."""
        return {
            **describe_model(self.ref, self.tokenizer),
            "engine": "vllm",
            "device": "cuda",
            "dtype": str(self.engine.llm_engine.model_config.dtype).removeprefix("torch."),
            "batch": None,
            "versions": versions("torch", "transformers", "vllm"),
        }

    def close(self) -> None:
        """Ends the engine and gives its memory back."""
        import gc

        import torch

        self.engine = None
        gc.collect()
        torch.cuda.empty_cache()
        if torch.distributed.is_initialized():  # vLLM makes a group of one and leaves it
            torch.distributed.destroy_process_group()


def _share(most: float) -> float:
    """What vLLM may take of the GPU: others may hold a part of it, and it wants its share to be free."""
    import torch

    if not torch.cuda.is_available():
        return most
    free, total = torch.cuda.mem_get_info()
    return min(most, 0.95 * free / total)


def _rank(adapter: str) -> int:
    """The smallest rank that vLLM offers and the adapter fits in."""
    rank = int(kept_json(Path(adapter) / "adapter_config.json").get("r", 16))
    return next((size for size in (8, 16, 32, 64, 128, 256, 320) if size >= rank), 512)
