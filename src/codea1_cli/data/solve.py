"""How often a model solves a problem: samples of it, judged by the problem's own tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from codea1_cli.errors import UserError
from codea1_cli.extract import extract_code
from codea1_cli.problem import Problem
from codea1_cli.prompts import code_messages
from codea1_cli.sandbox.base import Limits, Sandbox
from codea1_cli.sandbox.judge import Judge, ReferenceCache
from codea1_cli.sandbox.verdicts import Verdict


@dataclass(frozen=True)
class SolveRule:
    """`n` samples a problem at `temperature`; problems whose solve rate lies outside [low, high] go."""

    model: str
    n: int = 8
    low: float = 0.0
    high: float = 1.0
    temperature: float = 1.0
    max_new_tokens: int = 1024


def read_keep(text: str) -> tuple[float, float]:
    """The range of `LOW:HIGH`.

    Raises:
        UserError: it is none.
    """
    low, colon, high = text.partition(":")
    try:
        bounds = (float(low), float(high))
    except ValueError:
        bounds = (1.0, 0.0)
    if not colon or not 0.0 <= bounds[0] <= bounds[1] <= 1.0:
        raise UserError(f"{text!r} is no range of solve rates", hint="--keep LOW:HIGH, such as 0.1:0.9")
    return bounds


class Sampler(Protocol):
    def sample(self, problems: Sequence[Problem], seed: int) -> list[list[str]]:
        """`n` replies to each problem's prompt."""
        ...


def make_sampler(rule: SolveRule) -> Sampler:
    """vLLM where it is installed and there is a GPU, else transformers' generate."""
    import importlib.util

    import torch

    if torch.cuda.is_available() and importlib.util.find_spec("vllm") is not None:
        return VllmSampler(rule)
    return TransformersSampler(rule)


class TransformersSampler:
    """On a GPU in bf16 where there is one, else on the CPU in fp32."""

    def __init__(self, rule: SolveRule) -> None:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar

        from codea1_cli.engine.models import load_tokenizer, resolve_model

        disable_progress_bar()
        self.rule = rule
        self.tokenizer: Any = load_tokenizer(rule.model)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        model: Any = AutoModelForCausalLM.from_pretrained(resolve_model(rule.model), dtype=dtype)
        self.model = model.to(self.device).eval()

    def sample(self, problems: Sequence[Problem], seed: int) -> list[list[str]]:
        import torch

        from codea1_cli.engine.sampling import render

        rule = self.rule
        prompts = [render(self.tokenizer, code_messages(problem)) for problem in problems]
        batch = self.tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(self.device)
        torch.manual_seed(seed)
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                do_sample=True,
                temperature=rule.temperature,
                top_p=1.0,
                top_k=0,
                num_return_sequences=rule.n,
                max_new_tokens=rule.max_new_tokens,
                pad_token_id=self.tokenizer.pad_token_id,
                eos_token_id=self.tokenizer.eos_token_id,
            )
        texts = self.tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        return [texts[i * rule.n : (i + 1) * rule.n] for i in range(len(problems))]


class VllmSampler:
    """One vLLM engine on the first GPU."""

    def __init__(self, rule: SolveRule) -> None:
        from vllm import LLM

        from codea1_cli.engine.models import load_tokenizer, resolve_model

        self.rule = rule
        self.tokenizer: Any = load_tokenizer(rule.model)
        self.engine: Any = LLM(model=resolve_model(rule.model), seed=0)

    def sample(self, problems: Sequence[Problem], seed: int) -> list[list[str]]:
        from vllm import SamplingParams

        from codea1_cli.engine.sampling import render

        rule = self.rule
        prompts = [{"prompt_token_ids": render(self.tokenizer, code_messages(problem))} for problem in problems]
        settings = SamplingParams(
            n=rule.n,
            temperature=rule.temperature,
            top_p=1.0,
            top_k=-1,
            max_tokens=rule.max_new_tokens,
            seed=seed,
            stop_token_ids=[self.tokenizer.eos_token_id],
        )
        outputs = self.engine.generate(prompts, settings, use_tqdm=False)
        return [[reply.text for reply in output.outputs] for output in outputs]


@dataclass(frozen=True)
class SolveRate:
    """`rate` is over the samples that could be scored; None when none could, or the problem has no usable test."""

    rate: float | None
    scored: int


class SolveJudge:
    """Thread-safe."""

    def __init__(self, sandbox: Sandbox, limits: Limits, tolerance: float = 1e-6) -> None:
        self.sandbox, self.limits, self.tolerance = sandbox, limits, tolerance

    def rate(self, problem: Problem, replies: Sequence[str]) -> SolveRate:
        """The share of replies that pass all the problem's tests."""
        from codea1_cli.data.verify import statements

        entry = problem.entry_point
        judge = Judge(self.sandbox, limits=self.limits, tolerance=self.tolerance, cache=ReferenceCache())
        calls = [str(test.call) for test in statements(problem.tests, entry)]
        expected = judge.expected(problem.reference, entry, calls)
        calls = [call for call in dict.fromkeys(calls) if expected[call].valid]
        if not calls:
            return SolveRate(None, 0)
        outcomes: dict[str, bool | None] = {"": False}
        codes = [extract_code(reply, entry) for reply in replies]
        for code in codes:
            if code not in outcomes:
                outcomes[code] = self._passes(judge, code, entry, calls, expected)
        scored = [outcomes[code] for code in codes if outcomes[code] is not None]
        return SolveRate(round(sum(map(bool, scored)) / len(scored), 4) if scored else None, len(scored))

    def _passes(self, judge: Judge, code: str, entry: str, calls: list[str], expected: Any) -> bool | None:
        result = judge.check(code, entry, calls, expected)
        found = [test.verdict for test in result.verdicts.values()]
        if result.loaded is None or Verdict.UNSCORED in found:
            return None
        return bool(result.loaded) and len(found) == len(calls) and all(v is Verdict.PASSED for v in found)
