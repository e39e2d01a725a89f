"""The shape of a model: what memory and time depend on. Read from a config.json, or from a small built-in table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.environment import hub_cache
from codea1_cli.errors import UserError
from codea1_cli.files import read_json
from codea1_cli.recipe.schema import Lora


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
