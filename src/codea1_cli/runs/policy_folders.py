"""A run's policies: which folder a name means, and a policy as a plain Hugging Face folder."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from codea1_cli.durable import fsync_folder, fsync_tree
from codea1_cli.errors import EnvironmentFault, UserError, did_you_mean
from codea1_cli.files import kept_json, user_path
from codea1_cli.methods.registry import method_of
from codea1_cli.models import Server
from codea1_cli.models.loading import BUILTIN, from_library, load_tokenizer, resolve_model
from codea1_cli.models.sampler import ModelRef
from codea1_cli.runs.checkpoints import model_damage
from codea1_cli.runs.model_card import is_new, model_card, send
from codea1_cli.runs.run_dir import RunDir, find_run, list_runs, named_run
from codea1_cli.runs.run_dir import runs_root as default_root

# Everything that `from_pretrained` reads; optimizer, scheduler, RNG and trainer state stay behind.
_WEIGHTS = (
    "model*.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model-*.bin",
    "pytorch_model.bin.index.json",
)  # fmt: skip
_TOKENIZER_FILES = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "chat_template*", "*.model",
    "*.tiktoken",
)  # fmt: skip


def find_model(
    text: str | None,
    *,
    role: str = "code",
    step: int | None = None,
    runs_root: Path | None = None,
    server: Server | None = None,
) -> ModelRef:
    """The model that `text` names; None is the newest run's policy that plays `role`. A server's has its name there.

    A run (name or folder) gives its newest whole checkpoint, or that of `step`; step 0 is the model it started from.

    Raises:
        UserError: there is no such run, checkpoint or folder; a step for what is not a run.
    """
    if server is not None:
        if text is None or step is not None:
            raise UserError(
                f"a model of {server.url} has no step" if text else f"which model of {server.url}?",
                hint=f"--model NAME, of those that {server.url}/models lists",
            )
        return ModelRef(text, label=text, server=server)
    root = default_root(runs_root)
    run = find_run(None, root) if text is None else named_run(text, root)
    if run is not None:
        return _policy(run, role, step)
    assert text is not None
    if step is not None:
        raise UserError(f"{text} is no run, so it has no step {step}", hint="--step goes with a run")
    folder = user_path(text)
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        return _adapter(folder)
    return ModelRef(_model_path(text, root), label=folder.resolve().name if folder.is_dir() else text)


def _policy(run: RunDir, role: str, step: int | None) -> ModelRef:
    base = _base(run, role)
    if step == 0:
        return ModelRef(resolve_model(base), label=f"{run.name}:{role}@0", run=str(run.path), step=0)
    folder, step = policy_folder(run, role, step)
    label = f"{run.name}:{role}@{step}"
    if (folder / "adapter_config.json").is_file():
        return ModelRef(resolve_model(base), str(folder), label, str(run.path), step)
    return ModelRef(str(folder), None, label, str(run.path), step)


def _base(run: RunDir, role: str) -> str:
    recipe = run.recipe()
    return recipe.model_of(method_of(recipe).policy(role))


def _adapter(folder: Path) -> ModelRef:
    base = kept_json(folder / "adapter_config.json").get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"the adapter in {folder} does not name its base model", hint="merge it, and give the result")
    return ModelRef(resolve_model(base), str(folder.resolve()), folder.resolve().name)


def _model_path(text: str, root: Path) -> str:
    if "/" not in text and text != BUILTIN and not user_path(text).is_dir():  # a hub id has an owner
        raise UserError(
            f"no run and no model is named {text!r}",
            hint=did_you_mean(text, [BUILTIN, *(run.name for run in list_runs(root))])
            or "give a run, a model folder, OWNER/NAME, builtin:tiny",
        )
    return resolve_model(text)


@dataclass(frozen=True)
class Exported:
    """What was written: the step it came from, the file names and their bytes; `pushed` is its page on the hub."""

    run: str
    role: str
    step: int
    to: str
    merged_adapter: bool
    files: list[str]
    bytes: int
    pushed: str | None = None


def export_policy(
    run: RunDir, role: str, to: Path, step: int | None = None, push: str | None = None, private: bool = False
) -> Exported:
    """Writes the policy that plays `role` of a whole checkpoint, the newest when `step` is None, to the new folder
    `to`, and sends it to the repository `push` of the Hugging Face hub.

    A LoRA adapter is merged into its base model. The folder appears whole or not at all. The hub is asked before it is
    written; a folder that the hub does not take stays. `private` is for a repository that is not there yet.

    Raises:
        UserError: no such checkpoint, a folder in use, an adapter on a quantised base; `push` names no repository.
        EnvironmentFault: the folder cannot be written, or the disk is too small; the hub cannot be reached, or refuses.
    """
    if private and push is None:
        raise UserError("--private says how --push makes a repository", hint="add --push OWNER/NAME")
    source, step = policy_folder(run, role, step)
    target = user_path(to).absolute()
    _check_target(target)
    new = push is not None and is_new(push, private)
    staged = target.with_name(f".{target.name}.{os.getpid()}.partial")
    adapter = (source / "adapter_config.json").is_file()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.mkdir()
        if adapter:
            _merge(run, role, source, staged)
        else:
            _copy(source, staged, ("config.json", "generation_config.json", *_WEIGHTS, *_TOKENIZER_FILES))
        (staged / "README.md").write_text(model_card(run, role, step, push), encoding="utf-8")
        fsync_tree(staged)
        if target.is_dir():
            target.rmdir()
        os.replace(staged, target)
        fsync_folder(target.parent)
    except OSError as error:
        if isinstance(error, EnvironmentFault):
            raise
        raise EnvironmentFault(
            f"cannot write {target}: {error.strerror or error}", hint="choose another --to"
        ) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    files = sorted(path.name for path in target.iterdir())
    size = sum((target / name).stat().st_size for name in files)
    done = Exported(run.name, role, step, str(target), adapter, files, size)
    if push is None:
        return done
    title = f"{role} policy of the run {run.name} at step {step}"
    return replace(done, pushed=send(target, push, title, _WEIGHTS, new=new, private=private))


def policy_folder(run: RunDir, role: str, step: int | None = None) -> tuple[Path, int]:
    """The folder of the policy that plays a role, in a whole checkpoint, the newest when `step` is None, and the
    checkpoint's step.

    Raises:
        UserError: there is no such checkpoint, or it holds no weights of that policy, or damaged ones.
    """
    steps = run.committed_steps()
    if not steps:
        raise UserError(
            f"run {run.name} has no whole checkpoint yet", hint="a run writes one every checkpoint.every steps"
        )
    if step is None:
        step = steps[-1]
    if step not in steps:
        nearest = min(steps, key=lambda known: abs(known - step))
        raise UserError(
            f"run {run.name} has no checkpoint of step {step}",
            hint=f"did you mean {nearest}? there are {', '.join(map(str, steps))}",
        )
    method = method_of(run.recipe())
    source = run.checkpoint(step) / method.policy(role)
    if not any(source.glob("*.safetensors")) and not any(source.glob("pytorch_model[.-]*bin")):
        raise UserError(
            f"checkpoint {step} of run {run.name} holds no weights of the {role} policy",
            hint=f"--role {method.roles[0]}: that is what it trains" if role not in method.roles else None,
        )
    if fault := model_damage(source):
        others = [str(other) for other in steps if other != step]
        raise UserError(
            f"checkpoint {step} of run {run.name} is damaged: {source.name}/{fault}",
            hint=f"take another checkpoint: {', '.join(others)}" if others else "the run has no other checkpoint",
        )
    return source, step


def _check_target(target: Path) -> None:
    if target.is_file() or target.is_symlink():
        raise UserError(f"{target} is not a folder", hint="give --to a new folder")
    if target.is_dir() and any(target.iterdir()):
        raise UserError(f"{target} is not empty", hint="give --to a new folder, or empty this one")


def _copy(source: Path, staged: Path, patterns: tuple[str, ...]) -> None:
    chosen = [
        path for path in sorted(source.iterdir()) if path.is_file() and any(fnmatch(path.name, p) for p in patterns)
    ]
    needed, free = sum(path.stat().st_size for path in chosen), shutil.disk_usage(staged).free
    if needed > free:
        raise EnvironmentFault(
            f"{needed / 1e9:.1f} GB to write and {free / 1e9:.1f} GB free at {staged.parent}",
            hint="choose another --to",
        )
    for path in chosen:
        shutil.copyfile(path, staged / path.name)


def _merge(run: RunDir, role: str, source: Path, staged: Path) -> None:
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    base_name = _base(run, role)
    try:
        base = resolve_model(base_name)
        config = from_library(AutoConfig, base, "configuration")
        quantised = getattr(config, "quantization_config", None) is not None
        # The run trained on float32 weights: merged in less, the export would be another model.
        options = {"config": config, "dtype": "float32"}
        model = None if quantised else from_library(AutoModelForCausalLM, base, "weights", **options)
    except UserError as error:
        raise UserError(
            f"cannot load the adapter's base model {base_name}: {error.what}",
            hint="the base model must be where it was when the run was trained",
        ) from None
    if model is None:
        raise UserError(
            f"{base_name} is quantised, and an adapter merged into it would not be exact",
            hint="train the adapter on the unquantised model",
        )
    PeftModel.from_pretrained(model, str(source)).merge_and_unload().save_pretrained(staged)
    _copy(source, staged, _TOKENIZER_FILES)
    if not any(staged.glob("tokenizer*")):
        load_tokenizer(base_name).save_pretrained(staged)
