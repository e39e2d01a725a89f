"""A model's tokenizer, fit for chat training, and chat prompts as token ids."""

from __future__ import annotations

from typing import Any

from codea1_cli.errors import UserError, first_line
from codea1_cli.models.resolving import resolve_model


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
