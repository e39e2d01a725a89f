"""Finding a model by its name, its tokenizer fit for chat training, and chat prompts as token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError, first_line
from codea1_cli.files import decode_json, read_json, user_path

BUILTIN = "builtin:tiny"


def resolve_model(name: str) -> str:
    """A local folder for built-in models and paths; a hub id is returned as it is.

    Raises:
        UserError: a path that is not a model folder, or whose config.json cannot be read.
    """
    if name == BUILTIN:
        from codea1_cli.tiny import model_path

        return str(model_path())
    path = user_path(name)
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
    check_weights(path)
    return str(path.resolve())


def read_config(file: Path) -> dict[str, Any]:
    """What a model's config.json holds.

    Raises:
        UserError: it is not a JSON object.
    """
    found: dict[str, Any] = read_json(file, dict)
    return found


def check_weights(folder: Path) -> None:
    """Reads the head of each .safetensors file of a model's folder; the weights themselves are not read.

    Raises:
        UserError: one is a Git LFS pointer, cut off or of another kind, or the index names one that is missing.
    """
    index = folder / "model.safetensors.index.json"
    named = read_json(index, dict).get("weight_map") if index.is_file() else {}
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise UserError(f"{index}: field weight_map: not an object of file names", hint=_COPY)
    for name in sorted({*named.values(), *(file.name for file in folder.glob("*.safetensors"))}):
        if why := _broken_weights(folder / name):
            raise UserError(f"{folder / name}: {why}", hint=_COPY)


def _broken_weights(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            head = stream.read(8)
            if head == b"version ":
                return "a Git LFS pointer, not the weights (`git lfs pull` fetches them)"
            length, size = int.from_bytes(head, "little"), file.stat().st_size
            header = decode_json(stream.read(length)) if 8 + length <= size else None
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not isinstance(header, dict):
        return "not a safetensors file, or the beginning of one"
    try:
        end = max((tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"), default=0)
        return None if 8 + length + end == size else f"{size} bytes, where its header tells of {8 + length + end}"
    except (TypeError, KeyError, IndexError):
        return "a safetensors file with a broken header"


def from_library(loader: Any, path: str, what: str, **options: Any) -> Any:
    """`loader.from_pretrained(path)`, whatever the library raises on a broken folder told as one error.

    Raises:
        UserError: `what` (weights, tokenizer, ...) cannot be loaded.
    """
    try:
        return loader.from_pretrained(path, **options)
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        raise UserError(f"cannot load the {what} of {path}: {first_line(error)}", hint=_OFFLINE) from None


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

    path = resolve_model(model)
    tokenizer = from_library(AutoTokenizer, path, "tokenizer", padding_side="left")
    if Path(path).is_dir() and not any(Path(path).glob("token*")) and not any(Path(path).glob("vocab*")):
        raise UserError(f"{path} holds no tokenizer", hint=_COPY)
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


_COPY = "copy the model's folder again"
_OFFLINE = "without a network, give a folder that holds it (in a recipe: model=FOLDER)"
