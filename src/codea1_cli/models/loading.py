"""Finding a model by its name, its tokenizer fit for chat training, and chat prompts as token ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError, first_line

BUILTIN = "builtin:tiny"


def resolve_model(name: str) -> str:
    """A local folder for built-in models and paths; a hub id is returned as it is.

    Raises:
        UserError: a path that is not a model folder, or whose config.json cannot be read.
    """
    if name == BUILTIN:
        from codea1_cli.tiny import model_path

        return str(model_path())
    path = Path(name).expanduser()
    looks_local = name.startswith((".", "/", "~")) or name.count("/") > 1 or path.is_dir()
    if not looks_local:
        return name
    if not path.is_dir():
        raise UserError(f"no model folder {name}", hint="give a folder with config.json, a hub id, or builtin:tiny")
    if not (path / "config.json").is_file():
        raise UserError(
            f"{name} is no Hugging Face model folder: config.json is missing",
            hint="`codea1 export` writes one from a run",
        )
    read_config(path / "config.json")
    return str(path.resolve())


def read_config(file: Path) -> dict[str, Any]:
    """What a model's config.json holds.

    Raises:
        UserError: it is not a JSON object.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {first_line(error)}", hint="copy the model's folder again") from None
    if not isinstance(found, dict):
        raise UserError(f"{file} is not a JSON object", hint="copy the model's folder again")
    return found


def render(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """A chat prompt as token ids, ready for the assistant's turn."""
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False))


def load_tokenizer(model: str) -> Any:
    """The model's tokenizer with left padding, a pad token and an end-of-text token.

    Tokenizers converted from GGUF may have lost pad and eos: the chat end marker stands in.

    Raises:
        UserError: the model cannot be found, or has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(resolve_model(model), padding_side="left")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot load the tokenizer of {model}: {first_line(error)}", hint=_OFFLINE) from None
    if tokenizer.chat_template is None:
        raise UserError(f"the tokenizer of {model} has no chat template", hint="use an instruction-tuned model")
    if tokenizer.eos_token is None and "<|im_end|>" in tokenizer.get_vocab():
        tokenizer.eos_token = "<|im_end|>"
    if tokenizer.eos_token is None:
        raise UserError(
            f"the tokenizer of {model} names no end-of-text token", hint="set eos_token in tokenizer_config.json"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


_OFFLINE = "without a network, give a folder that holds it (in a recipe: model=FOLDER)"
