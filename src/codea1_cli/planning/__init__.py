"""What a run will need: memory, disk and time, from a recipe and the shape of its models. No torch.

Here is every number of the plan that is an assumption or a measurement. Bytes and seconds unless named. `docs/plan.md`
shows where each one enters. Whoever measures better changes it here.
"""

from __future__ import annotations

from dataclasses import dataclass

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
CHUNK = {"vllm": 1024, "transformers": 256}
"""Sequences sampled together where the recipe leaves `sampling.chunk` open."""

VLLM_OVERHEAD = int(1.5 * GIB)
"""vLLM's activations of its profiling run, CUDA graphs and workspaces, within its share."""
VLLM_SMALLEST_CACHE = 1 * GIB
VLLM_SEQUENCES = (256, 512)
"""The least and the most sequences that an engine is made for. Evaluations of small runs sample more at once than their
steps do; more than the most gain little, and each size has its CUDA graph."""

# -- time --------------------------------------------------------------------------------------------------------------
TRAIN_UTILISATION = 0.35
"""Share of the peak that forward and backward passes reach."""
PREFILL_UTILISATION = 0.4
DECODE_BANDWIDTH = 0.6
"""Share of the memory's bandwidth that decoding reaches."""
TRAIN_LAYER_OVERHEAD_S = 0.0012
"""Launching one layer's kernels, forward, backward and again, for one micro-batch: what bounds small models."""
UPDATE_OVERHEAD_S = 0.05
"""One optimizer step: clipping, logging, collectives."""
DECODE_STEP_S = {"vllm": 0.006, "transformers": 0.030, "cpu": 0.004}
"""One decoding step of a batch beyond what the memory's bandwidth costs: scheduling, launching, sampling."""
SYNC_S_PER_GIB = 0.5
"""Weights from the trainer into vLLM, once per step."""
JUDGE_CANDIDATE_S = 0.006
JUDGE_SUITE_S = 0.0015
"""CPU seconds of one worker for a candidate's fork and for each suite on it (docs/judge.md)."""
JUDGE_HIDDEN = 0.8
"""Share of the judging that runs while suites are sampled, at most as long as that takes."""
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
