"""A model by its name: its folder, looked at before anything heavy starts, its tokenizer, and chats as token ids."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from codea1_cli.environment import hub_cache
from codea1_cli.errors import UserError, first_line
from codea1_cli.files import kept_json, read_json, read_text, user_path
from codea1_cli.hub import announce, fetch, find_repo, note_file
from codea1_cli.models.model_files import check_files, check_tokenizer, check_weights, has_tokenizer, try_tokenizer

BUILTIN = "builtin:tiny"
Messages = list[dict[str, str]]
DAY = date(2024, 7, 26)  # for templates that tell a model the date, as Llama's: tomorrow's prompts are today's


def resolve_model(name: str, get: bool = True) -> str:
    """The folder of a built-in model, of a path, or of a hub id, whose files are fetched where they are not here; with
    `get` false the id itself is returned then.

    Raises:
        UserError: a path that is not a model folder, or with files that are broken; an id that the hub does not have.
        EnvironmentFault: the hub cannot be reached, or wants a token.
    """
    if name == BUILTIN:
        from codea1_cli.tiny import model_path

        return str(model_path())
    path = user_path(name)
    looks_local = name.startswith((".", "/", "~")) or name.count("/") > 1 or path.is_dir()
    if not looks_local:
        return str(_hub_folder(name, get) or name)
    if not path.is_dir():
        raise UserError(f"no model folder {name}", hint="give a folder with config.json, a hub id, or builtin:tiny")
    if not (path / "config.json").is_file():
        raise UserError(
            f"{name} is not a Hugging Face model folder: config.json is missing",
            hint="`codea1 export --help` tells how to write one from a run",
        )
    check_files(path)
    return str(path.resolve())


def _hub_folder(id: str, get: bool) -> Path | None:
    """A hub's model in the hub's cache; None where it is not there and not to be fetched."""
    here = hub_cache() / f"models--{id.replace('/', '--')}"
    ref = here / "refs" / "main"
    for commit in (kept_json(note_file("model", id)).get("commit"), ref.read_text().strip() if ref.is_file() else None):
        if commit and _whole(folder := here / "snapshots" / commit):
            return folder
    if not get:
        return None
    repo = find_repo("model", id)
    names = [file.name for file in repo.files if "/" not in file.name]
    weights = [name for name in names if name.endswith(".safetensors") and not name.startswith("consolidated")]
    weights = weights or [name for name in names if name.endswith(".bin") and "model" in name]
    wanted = [*weights, *(name for name in names if name.endswith((".json", ".jinja", ".model", ".txt")))]
    if "config.json" not in names or not weights:
        raise UserError(f"the hub's {id} lacks config.json or weights", hint="give a model's id")
    announce(repo, wanted)
    return [fetch(repo, name) for name in wanted][-1].parent


def _whole(folder: Path) -> bool:
    """Whether a snapshot has all that loading needs: another program may have fetched a part of it."""
    if not (folder / "config.json").is_file() or not has_tokenizer(folder):
        return False
    with suppress(UserError):
        check_files(folder)
        check_weights(folder)
        return True
    return False


def check_model(name: str, look: bool = False) -> None:
    """What can be said of a model for training without loading it: its files, weights and chat template. A look ahead
    fetches nothing, and lets weights be missing.

    Raises:
        UserError: it cannot be trained.
        EnvironmentFault: it cannot be fetched.
    """
    folder = Path(resolve_model(name, not look))
    if name != BUILTIN and folder.is_dir():
        if not look:
            check_weights(folder)
        check_tokenizer(folder)
        try_tokenizer(folder)
        if (template := _template(folder)) is not None:
            takes_system(*template, name)


def _template(folder: Path) -> tuple[str, Callable[[Messages], str]] | None:
    """A folder's chat template and what renders it, without the tokenizer; None where only that would know."""
    file, settings = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    known = read_json(settings, dict) if settings.is_file() else {}
    text = read_text(file) if file.is_file() else known.get("chat_template")
    if not isinstance(text, str):
        return None
    tokens = {name: known[name] for name in ("bos_token", "eos_token", "unk_token", "pad_token") if known.get(name)}
    plain = {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items()}

    def rendered(messages: Messages) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template

        return str(render_jinja_template([messages], chat_template=text, add_generation_prompt=True, **plain)[0][0])

    return text, rendered


_TAKES_SYSTEM: dict[str, bool] = {}


def takes_system(template: str, rendered: Callable[[Messages], str], model: str) -> bool:
    """Whether a chat template takes a system message. Some refuse one, others know no such role and leave it out; one
    that names the role and leaves it out does so on purpose, as the embedded model's.

    Raises:
        UserError: it cannot be rendered, or does not show the user's message either.
    """
    if template not in _TAKES_SYSTEM:
        chat = [{"role": "system", "content": "What to do."}, {"role": "user", "content": "With this."}]
        on_purpose = {"system"} if "system" in template else set()
        fault = "it leaves out the user's message"
        for taken, messages in ((True, chat), (False, without_system(chat))):
            try:
                text = rendered(messages)
            except Exception as error:  # whatever a template raises: jinja's errors, TypeError, KeyError
                fault = first_line(error)
                continue
            if all(message["content"] in text for message in messages if message["role"] not in on_purpose):
                _TAKES_SYSTEM[template] = taken
                break
        else:
            raise UserError(
                f"the chat template of {model} cannot be rendered: {fault}",
                hint="mend chat_template.jinja (or chat_template in tokenizer_config.json), or take another model",
            )
    return _TAKES_SYSTEM[template]


def _takes_system(tokenizer: Any, model: str) -> bool:
    rendered = partial(tokenizer.apply_chat_template, add_generation_prompt=True, tokenize=False)
    return takes_system(str(tokenizer.chat_template), rendered, model)


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


def without_system(messages: Messages) -> Messages:
    """The chat with the system's text in front of the first message of the user."""
    if messages[0]["role"] != "system":
        return messages
    system, user, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]


def fitting_chat(tokenizer: Any, messages: Messages) -> Messages:
    """The chat as the template takes it: where that has no place for a system message, its text is in the user's."""
    refused = messages[0]["role"] == "system" and not _takes_system(tokenizer, "the model")
    return without_system(messages) if refused else messages


def render(tokenizer: Any, messages: Messages) -> list[Any]:
    """A chat prompt as token ids, ready for the assistant's turn; as it is where a server renders it (None)."""
    if tokenizer is None:
        return messages
    how = {"add_generation_prompt": True, "tokenize": True, "return_dict": False, "strftime_now": DAY.strftime}
    return list(tokenizer.apply_chat_template(fitting_chat(tokenizer, messages), **how))


def load_tokenizer(model: str) -> Any:
    """The model's tokenizer with left padding, a pad token and an end-of-text token.

    Tokenizers converted from GGUF may have lost pad and eos: the chat end marker stands in.

    Raises:
        UserError: the model cannot be found or read, or has no chat template that can be rendered.
    """
    from transformers import AutoTokenizer

    path = resolve_model(model)
    if Path(path).is_dir():
        check_tokenizer(Path(path))
    tokenizer = from_library(AutoTokenizer, path, "tokenizer", padding_side="left")
    if tokenizer.chat_template is None:
        raise UserError(f"the tokenizer of {model} has no chat template", hint="use an instruction-tuned model")
    _takes_system(tokenizer, model)
    if tokenizer.eos_token is None and "<|im_end|>" in tokenizer.get_vocab():
        tokenizer.eos_token = "<|im_end|>"
    if tokenizer.eos_token is None:
        raise UserError(f"the tokenizer of {model} names no eos_token", hint="set it in tokenizer_config.json")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


_OFFLINE = "without a network, give a folder that holds it (in a recipe: model=FOLDER)"
