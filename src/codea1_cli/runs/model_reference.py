"""Which model a name means: a run's policy, a model folder, an adapter folder, a hub id or the embedded model."""

from __future__ import annotations

import json
from pathlib import Path

from codea1_cli.errors import UserError
from codea1_cli.models.sampler import ModelRef
from codea1_cli.runs.run_dir import RunDir, find_run, list_runs
from codea1_cli.runs.run_dir import runs_root as default_root


def find_model(
    text: str | None, *, role: str = "code", step: int | None = None, runs_root: Path | None = None
) -> ModelRef:
    """The model that `text` names; None is the newest run's policy of `role`.

    A run (name or folder) gives its newest whole checkpoint, or that of `step`; step 0 is the model it started from.

    Raises:
        UserError: there is no such run, checkpoint or folder; a step for what is not a run.
    """
    root = default_root(runs_root)
    run = _named_run(text, root)
    if run is not None:
        return _policy(run, role, step)
    assert text is not None
    if step is not None:
        raise UserError(f"{text} is no run, so it has no step {step}", hint="--step goes with a run")
    folder = Path(text).expanduser()
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        return _adapter(folder)
    return ModelRef(_model_path(text, root), label=_label(text))


def _named_run(text: str | None, root: Path) -> RunDir | None:
    if text is None:
        return find_run(None, root)
    for run in (RunDir(root / text), RunDir(Path(text).expanduser())):
        if run.exists():
            return run
    return None


def _policy(run: RunDir, role: str, step: int | None) -> ModelRef:
    from codea1_cli.runs.export import policy_folder
    from codea1_cli.models.loading import resolve_model

    base = run.recipe().model_of(role)
    if step == 0:
        return ModelRef(resolve_model(base), label=f"{run.name}:{role}@0", run=str(run.path), step=0)
    folder, step = policy_folder(run, role, step)
    label = f"{run.name}:{role}@{step}"
    if (folder / "adapter_config.json").is_file():
        return ModelRef(resolve_model(base), str(folder), label, str(run.path), step)
    return ModelRef(str(folder), None, label, str(run.path), step)


def _adapter(folder: Path) -> ModelRef:
    from codea1_cli.models.loading import resolve_model

    try:
        base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):
        base = None
    if not isinstance(base, str) or not base:
        raise UserError(f"the adapter in {folder} does not name its base model", hint="merge it, and give the result")
    return ModelRef(resolve_model(base), str(folder.resolve()), folder.resolve().name)


def _model_path(text: str, root: Path) -> str:
    from difflib import get_close_matches

    from codea1_cli.models.loading import BUILTIN, resolve_model

    path = resolve_model(text)
    if path == text and "/" not in text and text != BUILTIN:  # a hub id has an owner
        near = get_close_matches(text, [run.name for run in list_runs(root)], 3)
        raise UserError(
            f"no run and no model is named {text!r}",
            hint=f"did you mean {', '.join(near)}?" if near else "give a run, a model folder, OWNER/NAME, builtin:tiny",
        )
    return path


def _label(text: str) -> str:
    return Path(text).expanduser().resolve().name if Path(text).expanduser().is_dir() else text
