"""Sampling from a model outside training: one interface, vLLM where it is, transformers' generate elsewhere.

Every sample has a seed of its own, made from the job's seed, its prompt and its number. So a job that was interrupted,
reordered or split gives the same texts, up to the engine's own rounding (a batch of other shape may round otherwise).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from codea1_cli.environment import settle
from codea1_cli.errors import UserError
from codea1_cli.files import read_json
from codea1_cli.models import Server
from codea1_cli.models.loading import from_library, load_tokenizer, resolve_model
from codea1_cli.models.model_files import check_files

ENGINES = ("auto", "transformers", "vllm")
REPLIES = ".replies.jsonl"
"""How the name of a file ends that holds a server's replies for the time being."""


@dataclass(frozen=True)
class ModelRef:
    """A model to sample from.

    `path` is a folder or a hub id, `adapter` the folder of a LoRA adapter on top of it. `label` is short and for
    people; `run` and `step` say where a policy of a run came from. With a `server`, `path` is its name there.
    """

    path: str
    adapter: str | None = None
    label: str = ""
    run: str | None = None
    step: int | None = None
    server: Server | None = None

    def identity(self) -> dict[str, Any]:
        """What is compared before samples are added to those of another call."""
        return {"model": self.path, "adapter": self.adapter, **(self.server.identity() if self.server else {})}


@dataclass(frozen=True)
class SamplingSettings:
    """How to sample. `temperature` 0 is greedy; a text ends before the first of the `stop` strings."""

    n: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    max_new_tokens: int = 1024
    seed: int = 0
    stop: tuple[str, ...] = ()


class Sampler(Protocol):
    """`tokenizer` is the model's own, with left padding; None: a server's, which is sent chats and texts in place of
    token ids. tokens, seconds: sampled so far, and what `generate` took."""

    tokenizer: Any
    tokens: int
    seconds: float

    @property
    def spent(self) -> Mapping[str, int]:
        """What else a server counts, by name."""

    def generate(self, prompts: Sequence[list[Any]], settings: SamplingSettings) -> list[list[str]]:
        """`n` texts for each prompt (`loading.render`), without special tokens."""

    def describe(self) -> dict[str, Any]:
        """Model, tokenizer, hash of the chat template, engine, number type, versions."""

    def close(self) -> None:
        """Ends the engine and gives its memory back; nothing is sampled afterwards."""


def replies_beside(out: Path) -> Path:
    """Where a server's replies lie for the time being, beside an output of that name, as its lock does."""
    out = out.expanduser().absolute()
    return out.with_name(f".{out.name}{REPLIES}")


def speed(tokens: float, seconds: float, **spent: float) -> dict[str, Any]:
    """How many tokens were sampled, and how many per second, as results have it; of a server what it `spent`."""
    rate = {"tokens_sampled": tokens, "tokens_per_second": round(tokens / seconds, 1) if seconds else None}
    return {**rate, "server": spent} if spent else rate


def fits(prompt: Sequence[Any], room: int) -> bool:
    """Whether a prompt has at most `room` tokens; those of a chat are the server's to count."""
    return len(prompt) <= room or not isinstance(prompt[0], int)


def open_sampler(model: ModelRef, engine: str = "auto", kept: Path = Path(REPLIES)) -> Sampler:
    """The sampler for `model`. `auto` is vLLM where it is installed and there is a GPU, else transformers.

    kept: where a server's replies lie until the caller, who has put them elsewhere, removes the file.

    Raises:
        UserError: an unknown engine, vLLM where it cannot run, or a model that cannot be loaded.
    """
    if model.server is not None:
        from codea1_cli.models.server import ServerSampler

        return ServerSampler(model, kept)
    import importlib.util

    settle(threads=True)  # as a rank does: over more threads or fewer, sums differ in the last bit, and so do samples
    import torch

    if engine not in ENGINES:
        raise UserError(f"unknown engine {engine!r}", hint=f"one of {', '.join(ENGINES)}")
    installed, gpu = importlib.util.find_spec("vllm") is not None, torch.cuda.is_available()
    if engine == "vllm" and not (installed and gpu):
        raise UserError(
            "vLLM is not installed" if not installed else "vLLM needs a GPU, and there is none",
            hint="`uv sync --extra vllm` installs it" if not installed else "use --engine transformers",
        )
    if engine == "vllm" or (engine == "auto" and installed and gpu):
        from codea1_cli.models.sampler_engines import VllmSampler

        return VllmSampler(model)
    from codea1_cli.models.sampler_engines import TransformersSampler

    return TransformersSampler(model)


def context_of(model: ModelRef) -> int | None:
    """Tokens that the model takes at once, prompt and reply; None where its configuration, or a server, does not say.

    Raises:
        UserError: the configuration cannot be read.
    """
    if model.server is not None:
        return None
    from transformers import AutoConfig

    longest = getattr(from_library(AutoConfig, model.path, "configuration"), "max_position_embeddings", None)
    return longest if isinstance(longest, int) and longest > 0 else None


def reply_tokens(model: ModelRef, usual: int) -> int:
    """Tokens of a reply: the `usual` ones where they leave a quarter of the model's context to the prompt, else half.

    Raises:
        UserError: as `context_of`.
    """
    longest = context_of(model)
    return usual if longest is None or 4 * usual <= 3 * longest else max(1, longest // 2)


def prompt_seed(prompt: Sequence[object], seed: int) -> int:
    """The 62-bit seed of a prompt's samples in a job of seed `seed`; two lists of equal tokens have one."""
    digest = hashlib.blake2b(f"{seed} {' '.join(map(str, prompt))}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """`text` before the first of the stop strings."""
    places = [at for at in (text.find(word) for word in stop if word) if at >= 0]
    return text[: min(places)] if places else text


def load_model_tokenizer(model: ModelRef) -> Any:
    """The model's tokenizer, with the chat template that lies beside its adapter where there is one.

    Raises:
        UserError: it cannot be loaded or has no chat template.
    """
    from transformers import AutoTokenizer

    tokenizer = load_tokenizer(model.path)
    if model.adapter is not None:
        check_files(Path(model.adapter))
    if model.adapter is not None and any(Path(model.adapter).glob("tokenizer*")):
        own = from_library(AutoTokenizer, model.adapter, "tokenizer").chat_template
        tokenizer.chat_template = own or tokenizer.chat_template
    return tokenizer


def describe(
    sampler: Any, engine: str, device: str, dtype: object, batch: int | None, *packages: str
) -> dict[str, Any]:
    """What a sampler's `describe` gives: its model, tokenizer and chat template, engine, number type and the versions
    of torch, transformers and `packages`."""
    from importlib.metadata import version

    ref, tokenizer = sampler.ref, sampler.tokenizer
    vocabulary = "\n".join(f"{token}\t{number}" for token, number in sorted(tokenizer.get_vocab().items()))
    return {
        "model": ref.path,
        "adapter": ref.adapter,
        "label": ref.label,
        "run": ref.run,
        "step": ref.step,
        "tokenizer": type(tokenizer).__name__,
        "vocabulary_hash": _short_hash(vocabulary),
        "chat_template_hash": _short_hash(str(tokenizer.chat_template)),
        "engine": engine,
        "device": device,
        "dtype": str(dtype).removeprefix("torch."),
        "batch": batch,
        "versions": {package: version(package) for package in ("torch", "transformers", *packages)},
    }


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def end_tokens(model: str, tokenizer: Any) -> list[int]:
    """The tokens that end a reply: the tokenizer's, and those that the model's generation settings name, or else its
    configuration. All that is taken from those settings."""
    from transformers.utils import cached_file

    named: Any = None
    for name in ("generation_config.json", "config.json"):
        if named is None:
            file = cached_file(resolve_model(model), name, _raise_exceptions_for_missing_entries=False)
            named = read_json(Path(file), dict).get("eos_token_id") if file else None
    listed = named if isinstance(named, list) else [named]
    return sorted({*(token for token in listed if isinstance(token, int)), tokenizer.eos_token_id})


def plain_generation(model: str, tokenizer: Any) -> Any:
    """Generation settings that name what ends and pads a reply and nothing else: how to sample is the recipe's to say,
    and whatever the model's own say of beams, penalties or thresholds would join in."""
    from transformers import GenerationConfig

    return GenerationConfig(
        eos_token_id=end_tokens(model, tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )
