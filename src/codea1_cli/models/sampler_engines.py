"""The two engines behind `sampler.open_sampler`: transformers' `generate` and vLLM."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.environment import LOOPBACK, VLLM, settle
from codea1_cli.errors import EnvironmentFault, UserError, first_line, some
from codea1_cli.files import kept_json
from codea1_cli.models.loading import from_library
from codea1_cli.models.sampler import (
    ModelRef,
    SamplingSettings,
    cut_at_stop,
    describe,
    end_tokens,
    load_model_tokenizer,
    prompt_seed,
)

BATCH = {"cuda": 256, "cpu": 32}  # sequences sampled together; halved whenever memory does not suffice
_STOP_EVERY = 8  # tokens between two looks for stop strings


class TransformersSampler:
    """On the first GPU in bf16 where there is one, else on the CPU in fp32; prompts of like length share a batch.

    `generate` has one random state for a whole batch, so a sample would depend on what was sampled beside it. Here the
    random numbers are drawn beforehand, one per row and step from the row's own seed, and a logits processor picks the
    token whose cumulative probability the number falls in (inverse transform sampling); `generate` itself is greedy.

    Raises:
        UserError: the model or its adapter cannot be loaded.
    """

    def __init__(self, model: ModelRef, batch: int | None = None) -> None:
        import torch
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
        self.ref = model
        self.tokenizer: Any = load_model_tokenizer(model)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.batch = batch or BATCH[self.device]
        self.model = _load(model, self.dtype).to(self.device).eval()
        self._ends = end_tokens(model.path, self.tokenizer)
        self.tokens, self.seconds, self.spent = 0, 0.0, dict[str, int]()

    def generate(self, prompts: Sequence[list[int]], settings: SamplingSettings) -> list[list[str]]:
        """`n` texts for each prompt.

        Raises:
            EnvironmentFault: one sequence alone does not fit in the GPU's memory.
        """
        import torch

        began = time.monotonic()
        copies = 1 if settings.temperature == 0 else settings.n
        rows = [(i, number) for i in range(len(prompts)) for number in range(copies)]
        rows.sort(key=lambda row: (-len(prompts[row[0]]), row))
        texts: dict[tuple[int, int], str] = {}
        while rows:
            part, rows = rows[: self.batch], rows[self.batch :]
            try:
                answers = self._batch([prompts[i] for i, _ in part], [number for _, number in part], settings)
            except torch.cuda.OutOfMemoryError:
                if self.batch == 1:
                    raise EnvironmentFault(
                        "one sequence does not fit in the GPU's memory", hint="lower the number of new tokens"
                    ) from None
                rows = part + rows
                self.batch = max(1, min(self.batch, len(part)) // 2)
                torch.cuda.empty_cache()
                continue
            texts.update(zip(part, answers, strict=True))
        self.seconds += time.monotonic() - began
        return [[texts[i, number % copies] for number in range(settings.n)] for i in range(len(prompts))]

    def _batch(self, prompts: list[list[int]], numbers: list[int], settings: SamplingSettings) -> list[str]:
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        batch = self.tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(self.device)
        width = batch["input_ids"].shape[1]
        processors, criteria = LogitsProcessorList(), StoppingCriteriaList()
        if settings.temperature > 0:
            draws = _draws(prompts, numbers, settings).to(self.device)
            processors.append(_picker(draws, width, settings.temperature, settings.top_p))
        if settings.stop:
            criteria.append(_stopper(self.tokenizer, settings.stop, width))
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                generation_config=GenerationConfig(
                    do_sample=False,
                    max_new_tokens=settings.max_new_tokens,
                    pad_token_id=self.tokenizer.pad_token_id,
                    eos_token_id=self._ends,
                ),
                logits_processor=processors,
                stopping_criteria=criteria,
            )
        ended = torch.isin(out[:, width:], torch.tensor(self._ends, device=out.device)).cumsum(dim=1)
        self.tokens += int(((ended == 0).sum(dim=1) + (ended > 0).any(dim=1)).sum())
        texts = self.tokenizer.batch_decode(out[:, width:], skip_special_tokens=True)
        return [cut_at_stop(text, settings.stop) for text in texts]

    def describe(self) -> dict[str, Any]:
        """Model, tokenizer, engine, device, number type and versions, for a result file."""
        return describe(self, "transformers", self.device, self.dtype, self.batch)

    def close(self) -> None:
        """Gives the model's memory back."""
        import gc

        import torch

        self.model = None
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()


def _load(ref: ModelRef, dtype: Any) -> Any:
    from transformers import AutoModelForCausalLM, GenerationConfig

    # A model's own defaults (penalties, beams, top-k) would otherwise join the settings that were asked for.
    plain = GenerationConfig()
    options = {"dtype": dtype, "generation_config": plain, "output_loading_info": True}
    model, told = from_library(AutoModelForCausalLM, ref.path, "weights", **options)
    if told["missing_keys"]:  # transformers would fill them with random numbers
        raise UserError(f"cannot load {ref.path}: its weights lack {some(sorted(told['missing_keys']), 2)}")
    if ref.adapter is not None:
        from peft import PeftModel

        try:
            model = PeftModel.from_pretrained(model, ref.adapter).merge_and_unload()
        except Exception as fault:
            raise UserError(
                f"cannot load the adapter {ref.adapter}: {first_line(fault)}", hint="train or copy it again"
            ) from None
    model.generation_config = plain
    return model


def _draws(prompts: list[list[int]], numbers: list[int], settings: SamplingSettings) -> Any:
    """Uniform numbers, shape (rows, new tokens)."""
    import torch

    rows = []
    for prompt, number in zip(prompts, numbers, strict=True):
        generator = torch.Generator().manual_seed(prompt_seed([*prompt, number], settings.seed))
        rows.append(torch.rand(settings.max_new_tokens, generator=generator, dtype=torch.float64))
    return torch.stack(rows)


def _picker(draws: Any, width: int, temperature: float, top_p: float) -> Callable[[Any, Any], Any]:
    """A logits processor that leaves one token a row: the one that the row's number of this step picks.

    Tokens come in order of falling probability; top-p keeps the smallest set that holds `top_p` of it.
    """

    def pick(ids: Any, scores: Any) -> Any:
        import torch

        ranked, order = torch.softmax(scores.float() / temperature, dim=-1).sort(dim=-1, descending=True, stable=True)
        reached = ranked.double().cumsum(dim=-1)
        # The first token at which top_p is reached is still in.
        mass = torch.where(reached >= top_p, reached, torch.inf).amin(dim=-1, keepdim=True)
        mass = torch.minimum(mass, reached[:, -1:])
        step = ids.shape[1] - width
        place = torch.searchsorted(reached, draws[:, step : step + 1] * mass, right=True)
        token = order.gather(1, place.clamp(max=scores.shape[1] - 1))
        return torch.full_like(scores, -torch.inf).scatter(1, token, 0.0)

    return pick


def _stopper(tokenizer: Any, stop: Sequence[str], width: int) -> Callable[..., Any]:
    def stopped(ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        done = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
        if (ids.shape[1] - width) % _STOP_EVERY == 0:
            texts = tokenizer.batch_decode(ids[:, width:], skip_special_tokens=True)
            done |= torch.tensor([any(word in text for word in stop) for text in texts], device=ids.device)
        return done

    return stopped


class VllmSampler:
    """One vLLM engine on the first GPU, with at most the share `memory` of it; each prompt has its own seed.

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
        self.tokens, self.seconds, self.spent = 0, 0.0, dict[str, int]()
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
        began = time.monotonic()
        outputs = self.engine.generate(asked, each, use_tqdm=False, **extra)
        self.seconds += time.monotonic() - began
        self.tokens += sum(len(reply.token_ids) for output in outputs for reply in output.outputs)
        texts = [[reply.text for reply in output.outputs] for output in outputs]
        return [[row[number % copies] for number in range(settings.n)] for row in texts]

    def describe(self) -> dict[str, Any]:
        """Model, tokenizer, engine, number type and versions, for a result file."""
        return describe(self, "vllm", "cuda", self.engine.llm_engine.model_config.dtype, None, "vllm")

    def close(self) -> None:
        """Ends the engine and gives its memory back."""
        import gc

        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        if self.engine is not None:
            self.engine.llm_engine.engine_core.shutdown()
            self.engine = None
            gc.unfreeze()  # vLLM keeps what it made at its start, the model with it, from the garbage collector
            cleanup_dist_env_and_memory()


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
