"""A policy for others: the model card of an exported one, and its way to the Hugging Face hub."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codea1_cli import __version__
from codea1_cli.environment import endpoint, offline, way_out
from codea1_cli.errors import CodeA1Error, EnvironmentFault, UserError, counted, first_line, size_text
from codea1_cli.evals.heldout import PARTS
from codea1_cli.evals.registry import ROWS
from codea1_cli.evals.statistics import levels
from codea1_cli.files import kept_json, user_path
from codea1_cli.hub import tell, unreached, within
from codea1_cli.methods.registry import method_of
from codea1_cli.models.loading import BUILTIN
from codea1_cli.problems.prompts import role_messages
from codea1_cli.runs import trained_on
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import FIGURES, Measured, Parts, measured

_PAPER = "https://arxiv.org/abs/2603.15611"
_USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForCausalLM.from_pretrained("{name}", dtype="auto")
messages = [...]  # as under "What it was asked"
prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
reply = model.generate(**prompt, do_sample=True, max_new_tokens={tokens})[0, prompt["input_ids"].shape[1]:]
print(tokenizer.decode(reply, skip_special_tokens=True))
```"""


_MEANT = {
    "exposed": "wrong programs exposed",
    "near-miss exposed": "nearly right programs exposed",
    "soundly exposed": "wrong programs exposed by a suite that would pass a right one",
    "near-miss soundly exposed": "nearly right programs exposed by a suite that would pass a right one",
    "false alarm": "suites that would reject a right program (lower is better)",
    "suite validity": "suite validity: asserts that are valid and rightly stated, of those asked for",
    "stated rightly": "valid asserts that state the right answer",
}
"""What a figure of suites says, for who has not seen the run."""


# -- the model card ----------------------------------------------------------------------------------------------------
def model_card(run: RunDir, role: str, step: int, repo: str | None = None) -> str:
    """README.md of an exported policy: how it is used, what it was trained from, how and on what, what it was measured
    at, and what it was asked. `repo` is its name on the hub, where it goes there."""
    import yaml

    recipe, info = run.recipe(), run.info()
    method, data = method_of(recipe), info.get("data", {})
    roles, base = method.roles_of(method.policy(role)), recipe.model_of(method.policy(role))
    on_hub = bool(re.fullmatch(r"\w[\w.-]*/[\w.-]+", base)) and not user_path(base).exists()
    prepared = kept_json(run.path / "data" / "card.json").get("source")
    dataset = prepared.get("dataset") if isinstance(prepared, dict) else None
    # Other terms than those of the embedded model are not known here: the hub shows none rather than wrong ones.
    head = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": base} if on_hub else {"license": "apache-2.0"} if base == BUILTIN else {}),
        **({"datasets": [dataset]} if dataset and isinstance(dataset, str) else {}),
        "tags": ["code", "codea1", "trl", "sft" if method.pairs else "grpo"],
    }
    named = f"[{base}]({endpoint()}/{base})" if on_hub else _code(base)
    source = recipe.data.train or (recipe.data.source.name if recipe.data.source else None)
    pairs = {role: count for role, count in data.get("pairs", {}).items() if role in roles}
    facts = {
        "base model": named,
        "method": f"`{recipe.method}`, recipe {_code(recipe.name)}, seed {recipe.seed}",
        "step": f"{step} of {info.get('total_steps', '?')}",
        "training data": trained_on({**data, "pairs": pairs}, source, _code),
        "its SHA-256": data.get("sha256"),
        "versions": ", ".join(f"{name} {version}" for name, version in info.get("versions", {}).items()),
    }
    terms = f"derive from {named}, whose licence applies to them"
    if base == BUILTIN:
        terms = "derive from the embedded model of codea1 and are under its licence, Apache-2.0"
    card = run.path / "data" / "README.md"
    counts = "; the data card below counts them" if card.is_file() else ""
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {' and '.join(one.capitalize() for one in roles)} LLM of the run {_code(run.name)}",
        "Trained with codea1, which trains two language models against each other: a Code LLM writes solutions, a Test "
        f"LLM the tests that break them ([paper]({_PAPER})).",
        "\n".join(f"- **{name}**: {text}" for name, text in facts.items() if text),
        "## Use",
        _USE.format(name=repo or "FOLDER", tokens=recipe.role(method.policy(role)).max_completion_tokens),
        "## Figures",
        _figures(run, roles, step),
        "## Licence",
        f"The weights {terms}. The licence of each training problem is in its row's field `license`{counts}.",
        "## What it was asked",
    ]
    for one in roles:
        asked = role_messages(one, recipe.game.tests_per_suite, recipe.game.white_box)
        parts += [f"As {one.capitalize()} LLM, {said['role']}:\n\n````text\n{said['content']}\n````" for said in asked]
    recipe_text = run.recipe_file.read_text(encoding="utf-8")
    fence = _longer("``", recipe_text)
    parts.append(f"## Recipe\n\n{fence}yaml\n{recipe_text}{fence}")
    if card.is_file():
        parts.append("## Data\n\n" + re.sub(r"^#", "###", card.read_text(encoding="utf-8"), flags=re.M))
    return "\n\n".join(parts).rstrip() + "\n"


def _longer(ticks: str, text: str) -> str:
    """Backticks, one more than `ticks` and than the text has anywhere in a row."""
    return "`" + max([ticks, *re.findall("`+", text)], key=len)


def _code(text: str) -> str:
    """A name as Markdown shows it, whatever is in it."""
    ticks = _longer("", text)
    return f"{ticks} {text} {ticks}" if len(ticks) > 1 else f"`{text}`"


def _figures(run: RunDir, roles: Sequence[str], step: int) -> str:
    """Of each set the figures of these roles in the newest evaluation up to a step, beside those before the first."""
    tables = []
    for kind, found in measured(run, lambda _: None).items():
        at = max((number for number in found if number <= step), default=None)
        if at is not None and (rows := _rows(kind, found[at], found.get(0) if at else None, roles)):
            title = "Held-out problems" if kind == "heldout" else f"Tasks of {kind}"
            first = " before |" if at and 0 in found else ""
            head = f"| figure |{first} value | 95 % interval |\n|---|{'---|' if first else ''}---|---|"
            tables.append(f"{title}: {len(found[at].problems)}, evaluated at step {at}.\n\n" + "\n".join([head, *rows]))
    return "\n\n".join(tables) or "No evaluation of the run is kept up to this step."


def _rows(kind: str, last: Measured, first: Measured | None, roles: Sequence[str]) -> list[str]:
    import numpy as np

    rows = []
    for name, parts in last.figures.items():
        if kind == "heldout":
            part = PARTS[FIGURES[name][0]] if name in FIGURES else "code"
        else:
            part = ROWS[kind].role if kind in ROWS else "test"
        cells = np.array([list(parts.values())])
        if part not in roles or not cells[0, :, 1].sum():
            continue
        scale, unit = (1, "") if name == "asserts per suite" else (100, " %")
        values = [_share(one.figures.get(name, {})) for one in ([first, last] if first else [last])]
        shown = ["" if value is None else f"{scale * value:.1f}{unit}" for value in values]
        low, high = (scale * bound for bound in levels(cells)[0])
        rows.append(f"| {' | '.join([_MEANT.get(name, name), *shown, f'{low:.1f} to {high:.1f}'])} |")
    return rows


def _share(parts: Parts) -> float | None:
    top, below = (sum(one[place] for one in parts.values()) for place in (0, 1))
    return top / below if below else None


# -- the hub -----------------------------------------------------------------------------------------------------------
def is_new(repo: str, private: bool) -> bool:
    """Whether the hub, asked with the token that is set, has no model `repo` yet.

    Raises:
        UserError: that is no name of a repository; it is public already, and `private` is wanted.
        EnvironmentFault: there is no token, or one that the hub does not know; it cannot be reached.
    """
    from huggingface_hub import errors, utils

    where = endpoint()
    try:
        utils.validate_repo_id(repo)
        why = "" if repo.count("/") == 1 else "its owner is missing"
    except errors.HFValidationError as error:
        why = first_line(error)
    if why:
        raise UserError(f"--push {repo} names no repository: {why}", hint="give OWNER/NAME, such as me/code-model")
    if offline():
        raise EnvironmentFault("--push needs the hub, and HF_HUB_OFFLINE is set", hint="unset it, or leave --push out")
    if not (token := utils.get_token()):
        raise EnvironmentFault(f"--push {repo} needs a token for {where}, and none is set", hint=_token_hint())

    def ask(hub: Any) -> Any:
        api = hub.HfApi(where, token)
        api.whoami()
        try:
            return api.repo_info(repo, repo_type="model")
        except errors.RepositoryNotFoundError:
            return None

    there = within(ask, f"model {repo}", "model", where, lambda error: _refused(error, repo))
    if private and there is not None and not there.private:
        raise UserError(f"{repo} is on {where} already, and public", hint="choose another name, or leave --private out")
    return there is None


def _token_hint() -> str:
    return f"HF_TOKEN=TOKEN, or `hf auth login`, with one of {endpoint()}/settings/tokens that may write"


def send(folder: Path, repo: str, title: str, weights: Sequence[str], *, new: bool, private: bool) -> str:
    """Lists the files of `folder`, and sends them to the model `repo` of the hub in one commit with this title, which
    takes out other files there that match `weights`; a `new` repository is made first. Returns its address.

    Raises:
        EnvironmentFault: the hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi, utils

    where = endpoint()
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    state = f"a new {'private ' if private else ''}repository" if new else "a commit on what is there"
    tell(f"sending {counted(len(files), 'file')} ({size_text(sum(files.values()))}) to {where}/{repo}, {state}:")
    for name, size in files.items():
        tell(f"  {size_text(size):>8}  {name}")
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a card without a licence
            api = HfApi(where, token=utils.get_token())
            if new:
                api.create_repo(repo, private=private or None, exist_ok=True)
            api.upload_folder(
                repo_id=repo, folder_path=folder, delete_patterns=list(weights), commit_message=title,
                commit_description=f"codea1 {__version__}",
            )  # fmt: skip
    except Exception as error:
        fault = _refused(error, repo)
        again = shlex.join(["hf", "upload", repo, str(folder), *(["--private"] if private else [])])
        raise type(fault)(fault.what, hint=f"{fault.hint}; the export is whole: `{again}` sends it again") from None
    return f"{where}/{repo}"


def _refused(error: Exception, repo: str) -> CodeA1Error:
    """What an error of the hub means to whoever sends a model to `repo`."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, CodeA1Error):
        return error
    where = endpoint()
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):  # names the file, hides the reason
        error = error.__cause__
    if why := unreached(error, where):
        return EnvironmentFault(f"cannot send to {repo}: {why}", hint=way_out("leave --push out"))
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
    said = " ".join(str(getattr(error, "server_message", None) or error).split()) or type(error).__name__
    if status == 401:
        return EnvironmentFault(f"{where} does not know the token that is set", hint=_token_hint())
    if status in (402, 403):
        return EnvironmentFault(f"{where} does not let this token write to {repo}: {said}", hint=_token_hint())
    if status == 404:
        return EnvironmentFault(f"{where} has no {repo}, or takes no models", hint="check the name, and HF_ENDPOINT")
    if status == 409:
        return EnvironmentFault(f"{repo} was changed by somebody else meanwhile: {said}", hint="look at what is there")
    return EnvironmentFault(f"cannot send to {repo}: {said}", hint="try again later")
