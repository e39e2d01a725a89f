"""What a run will need: memory, disk and time, from a recipe and the shape of its models. No torch.

Here is what that rests on: every number that is an assumption or a measurement, in bytes and seconds unless named
(`docs/plan.md` shows where each one enters; whoever measures better changes it here), and the shape of a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codea1_cli.environment import hub_cache
from codea1_cli.errors import UserError
from codea1_cli.files import read_json
from codea1_cli.recipe.schema import Lora

GIB = 2**30


@dataclass(frozen=True)
class Device:
    """By the maker's data sheet: `memory` in bytes, its `bandwidth` per second, and the dense bf16 peak per second."""

    name: str
    memory: int
    flops: float
    bandwidth: float


DEVICES = {
    # Memory as the driver reports it, which is less than the name says.
    "h100": Device("NVIDIA H100 80GB (SXM)", int(79.6 * GIB), 989e12, 3.35e12),
    "h200": Device("NVIDIA H200 141GB", int(140.4 * GIB), 989e12, 4.8e12),
    "a100": Device("NVIDIA A100 80GB", int(80.0 * GIB), 312e12, 2.04e12),
    "a100-40": Device("NVIDIA A100 40GB", int(40.0 * GIB), 312e12, 1.55e12),
    "cpu": Device("CPU", 0, 0.0, 0.0),
}
CPU_FLOPS_PER_CORE = 400e9
"""A core with AVX-512 or AMX in bf16."""
CPU_BANDWIDTH_PER_CORE = 8e9


def cpu_share(cores: int, ranks: int) -> Device:
    """What each of so many ranks computes with on a host with so many cores."""
    own = max(cores / max(ranks, 1), 0.5)
    return replace(DEVICES["cpu"], flops=own * CPU_FLOPS_PER_CORE, bandwidth=own * CPU_BANDWIDTH_PER_CORE)


CPU_PARAMETERS = 50e6
"""A model with more is meant for GPUs."""
REFUSAL = 1.15
"""A run is refused when it needs this much more than there is; between 1 and this it is warned about, because the
estimate is off by as much."""

# -- memory ------------------------------------------------------------------------------------------------------------
CUDA_CONTEXT = int(0.6 * GIB)
"""CUDA's context and the libraries' workspaces, for each process on a GPU."""
NCCL = int(0.4 * GIB)
"""Buffers of the collectives, in a policy of several ranks."""
FRAGMENTATION = 0.08
"""Share of what comes and goes (activations, logits) that the allocator holds on top of it."""
DDP_BUCKETS = 1.0
"""Copies of the gradients that DDP keeps for its all-reduce (`gradient_as_bucket_view` is off)."""
RESIDUAL_BYTES = 4
"""A hidden value between two layers: under autocast the residual stream stays fp32."""
LAYER_HIDDEN_BYTES = 26
LAYER_HEAD_BYTES = 8
LAYER_MLP_BYTES = 8
"""Kept by one layer for its backward pass, per token: for each unit of the hidden state (two norms in fp32, the inputs
of five projections in bf16), of the query and key/value heads (rotary embedding, attention) and of the MLP (gate, its
activation, up, their product)."""
LAYER_BACKWARD = 1.5
"""What one recomputed layer holds at most during its backward pass, relative to what its forward pass kept."""
MASK_BYTES = 3
"""One entry of the attention mask of left-padded rows: bool, and bf16 where attention turns it into a bias."""
LOGIT_TOKENS, LOGIT_VOCABULARY, LOGIT_BYTES, LOGIT_TILES = 4096, 32768, 2, 2
"""TRL 1.16 computes log-probs in tiles of so many tokens and vocabulary entries, and never holds all logits."""
CPU_PROCESS = int(0.85 * GIB)
"""A rank's process on a CPU before it holds a model: torch, transformers, TRL, Ray."""
GENERATE_OVERHEAD = 1.3
"""transformers' generation: its key/value cache grows by copying, one layer at a time."""
FP32_ACTIVATIONS = 1.4
"""Activations without autocast, relative to those with it."""
CHUNK = {"vllm": 4096, "transformers": 256}
"""Sequences sampled together where the recipe leaves `sampling.chunk` open; vLLM keeps each token's log-prob until all
of them have ended, half a KiB of the host's memory."""
HANDED_OVER = 32
"""Sequences of whole groups that vLLM's rank hands to the judge together, while the others are sampled."""

VLLM_OVERHEAD = int(1.5 * GIB)
"""vLLM's activations of its profiling run, CUDA graphs and workspaces, within its share."""
VLLM_SMALLEST_CACHE = 1 * GIB


def engines_part(surplus: float, training: float) -> float:
    """The engines' part of the bytes that nobody needs: trainings may take more than is estimated. In bytes."""
    return surplus - max(0.0, min((REFUSAL - 1) * training, surplus / 2))


VLLM_SEQUENCES = (256, 512)
"""The least and the most sequences that an engine is made for. Evaluations of small runs sample more at once than their
steps do; more than the most gain little, and each size has its CUDA graph."""

# -- time --------------------------------------------------------------------------------------------------------------
TRAIN_UTILISATION = 0.25
"""Share of the peak that forward and backward passes reach."""
PREFILL_UTILISATION = 0.4
DECODE_BANDWIDTH = 0.6
"""Share of the memory's bandwidth that decoding reaches."""
TRAIN_LAYER_OVERHEAD_S = 0.004
"""Launching one layer's kernels in one pass over one micro-batch: what bounds small models."""
UPDATE_OVERHEAD_S = 0.05
"""One optimizer step: clipping, logging, collectives."""
DECODE_STEP_S = {"vllm": 0.0022, "transformers": 0.030, "cpu": 0.004}
"""One decoding step of a batch beyond what the memory's bandwidth costs: scheduling, launching, sampling."""
DECODE_ROW_S = 0.000021
"""What each sequence adds to a decoding step of vLLM, whose one Python thread looks after all of them."""
LONGEST = 4
"""A step's longest completion, in mean ones, where the recipe's limit allows it."""
SYNC_S_PER_GIB = 0.2
"""Weights from the trainer into vLLM, once per step."""
JUDGE_CANDIDATE_S = 0.006
JUDGE_SUITE_S = 0.007
"""CPU seconds of one worker for a candidate's fork and for each suite on it (docs/judge.md)."""
JUDGE_HIDDEN = 0.8
"""Share of the judging that runs while suites are sampled, at most as long as that takes."""
STRAGGLERS_S = 0.4
"""What a step waits for its slowest programs: candidates that load, and calls of the last suites that never end."""
MEAN_COMPLETION = 400
MEAN_PROMPT = {"code": 400, "test": 700}
"""Tokens assumed where the recipe's limits are larger; `codea1 plan --mean-completion` and `--mean-prompt` set them."""

# -- first use ---------------------------------------------------------------------------------------------------------
FETCH_BYTES_S = 20e6
"""Assumed of the network."""
READ_ROWS_S = 10_000.0
VERIFY_ROWS_S = 35.0
"""Rows that `prepare-data` reads per second, and those that one core verifies (docs/data.md)."""
BENCHMARK_BYTES = 15e6
"""What is fetched of all benchmarks together."""

# -- disk --------------------------------------------------------------------------------------------------------------
OTHER_FILES = 20 * 2**20
"""Tokenizer, configuration and random states of both policies in a checkpoint."""
BYTES_PER_TOKEN_OF_TEXT = 4.0
ROLLOUT_COMPRESSION = 0.35
ROLLOUT_BYTES_PER_ASSERT = 90
BOOK_BYTES_PER_EVENT = 700
BOOK_EVENTS_PER_CANDIDATE = 0.5


# -- the shape of a model ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ModelShape:
    """A decoder of the Llama family (Llama, Qwen2, SmolLM2, Mistral): RMS norms, rotary embedding, gated MLP."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    tied: bool
    attention_bias: bool
    source: str

    @property
    def head_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_size

    @property
    def kv_width(self) -> int:
        """Width of all key heads together; the values' is the same."""
        return self.kv_heads * self.head_size

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; an untied head has as many."""
        return self.vocabulary * self.hidden

    @property
    def layer_matrices(self) -> int:
        """Parameters of one layer's projections."""
        return 2 * self.hidden * (self.head_width + self.kv_width) + 3 * self.hidden * self.mlp

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: projections, biases, two norms."""
        bias = self.head_width + 2 * self.kv_width if self.attention_bias else 0
        return self.layer_matrices + bias + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.layers * self.layer_parameters + self.hidden + self.embedding * (1 if self.tied else 2)

    @property
    def working_parameters(self) -> int:
        """Parameters that each token meets in a matrix product: all but the embedding's look-up."""
        return self.layers * self.layer_matrices + self.embedding

    @property
    def kv_bytes(self) -> int:
        """Bytes of key/value cache of one token in bf16."""
        return 2 * 2 * self.layers * self.kv_width

    def forward_flops(self, length: float) -> float:
        """Operations per token in one forward pass: two per parameter, and causal attention over half the length."""
        return 2 * self.working_parameters + 2 * self.layers * self.head_width * length

    def adapter_parameters(self, lora: Lora) -> int:
        """Parameters of the LoRA adapters: r (inputs + outputs) for each projection."""
        size = {
            "q_proj": self.hidden + self.head_width,
            "k_proj": self.hidden + self.kv_width,
            "v_proj": self.hidden + self.kv_width,
            "o_proj": self.head_width + self.hidden,
            "gate_proj": self.hidden + self.mlp,
            "up_proj": self.hidden + self.mlp,
            "down_proj": self.mlp + self.hidden,
        }
        names = list(size) if lora.target_modules == "all-linear" else lora.target_modules
        return self.layers * lora.r * sum(size.get(name, 0) for name in names)


def _coder(hidden: int, layers: int, heads: int, kv_heads: int, mlp: int, vocabulary: int, tied: bool) -> ModelShape:
    return ModelShape(
        hidden, layers, heads, kv_heads, hidden // heads, mlp, vocabulary, tied, True, "built-in table: its config.json"
    )


# From the config.json of each repository on the Hugging Face hub; the Instruct models have the same shapes.
TABLE = {
    "Qwen2.5-Coder-0.5B": _coder(896, 24, 14, 2, 4864, 151936, True),
    "Qwen2.5-Coder-1.5B": _coder(1536, 28, 12, 2, 8960, 151936, True),
    "Qwen2.5-Coder-3B": _coder(2048, 36, 16, 2, 11008, 151936, True),
    "Qwen2.5-Coder-7B": _coder(3584, 28, 28, 4, 18944, 152064, False),
    "SmolLM2-135M": ModelShape(576, 30, 9, 3, 64, 1536, 49152, True, False, "built-in table: its config.json"),
}


def shape_of_config(config: Mapping[str, Any], source: str) -> ModelShape:
    """The shape that a config.json describes.

    Raises:
        UserError: it lacks what the shape needs.
    """
    text = config.get("text_config") or config
    if not isinstance(text, Mapping):
        raise UserError(f"{source} does not describe a decoder of the Llama family: text_config is no object")
    try:
        hidden, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
        return ModelShape(
            hidden=hidden,
            layers=int(text["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_size=int(text.get("head_dim") or hidden // heads),
            mlp=int(text["intermediate_size"]),
            vocabulary=int(text["vocab_size"]),
            tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
            attention_bias=bool(text.get("attention_bias", text.get("model_type") == "qwen2")),
            source=source,
        )
    except KeyError as error:
        raise UserError(f"{source} does not describe a decoder of the Llama family: {error} is missing") from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise UserError(f"{source} does not describe a decoder of the Llama family: {error}") from None


def find_shape(model: str) -> ModelShape | None:
    """The shape of a recipe's model: a folder's config.json, the hub's cache, or the table. None when unknown.

    Raises:
        UserError: a folder that is no model, or whose config.json does not describe one.
    """
    from codea1_cli.models.loading import resolve_model

    folder = Path(resolve_model(model, get=False))
    config = folder / "config.json" if folder.is_dir() else _cached_config(model)
    if config is not None and config.is_file():
        return shape_of_config(read_json(config, dict), str(config))
    return TABLE.get(model.rsplit("/", 1)[-1].removesuffix("-Instruct"))


def _cached_config(model: str) -> Path | None:
    """config.json of a hub id in the local cache."""
    found = sorted((hub_cache() / f"models--{model.replace('/', '--')}").glob("snapshots/*/config.json"))
    return found[-1] if found else None


def gib(size: float) -> str:
    """`size` bytes in the unit that shows them."""
    if size < 0.1 * GIB:
        return f"{size / 2**20:.0f} MiB"
    return f"{size / GIB:.1f} GiB" if size < 100 * GIB else f"{size / GIB:.0f} GiB"
