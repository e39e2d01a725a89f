"""Recipes as files: finding, extending, overriding, and errors that name the nearest key."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from codea1_cli.errors import UserError, command, did_you_mean, first_line, meant, near, plain_fault
from codea1_cli.files import no_file, read_text, user_path
from codea1_cli.methods.registry import DEFAULT, ROLES, ignored_by, without, without_ignored, without_settings_of
from codea1_cli.recipe import ALIASES, recipe_folder, recipe_names
from codea1_cli.recipe.schema import Recipe


def recipe_path(name: str) -> Path:
    """The file behind a shipped name or a path.

    Raises:
        UserError: neither a shipped name nor a file.
    """
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or "/" in name:
        if not path.is_file():
            raise UserError(
                f"cannot read the recipe {name}: {no_file(path)}", hint=f"shipped recipes: {', '.join(recipe_names())}"
            )
        return path
    shipped = recipe_folder() / f"{name}.yaml"
    if not shipped.is_file():
        known = f"shipped recipes: {', '.join(recipe_names())}; or give a .yaml file"
        raise UserError(f"no recipe named {name!r}", hint=did_you_mean(name, recipe_names()) or known)
    return shipped


def _read(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    if path in seen:
        raise UserError(f"{path}: recipes extend each other in a circle")
    try:
        text = read_text(path)
        _refuse_repeated(yaml.compose(text, Loader=yaml.SafeLoader), path)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    except (RecursionError, ValueError) as error:  # of YAML too deep, of a date that is none
        if isinstance(error, UserError):
            raise
        why = "nested too deeply" if isinstance(error, RecursionError) else first_line(error)
        raise UserError(f"{path}: not YAML that can be read: {why}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: a recipe is a mapping of sections, this is {type(content).__name__}")
    parent = content.pop("extends", None)
    if parent is None:
        return content
    base = _read(_parent_path(path, str(parent)), (*seen, path))
    return _merge(without_settings_of(base, _merge(base, content), content), content)


def _set(content: dict[str, Any], overrides: Iterable[tuple[list[str], Any]]) -> dict[str, Any]:
    """A copy of nested keys with overrides, of which a mapping takes a section's place."""
    content = copy.deepcopy(content)
    for parts, value in overrides:
        target = content
        for part in parts[:-1]:
            if not isinstance(target.get(part), dict):
                target[part] = {}
            target = target[part]
        target[parts[-1]] = value
    return content


def _refuse_repeated(tree: yaml.Node | None, path: Path, above: tuple[yaml.Node, ...] = ()) -> None:
    """Raises UserError for a key that stands twice in one section: YAML would silently take the last."""
    if not isinstance(tree, yaml.MappingNode) or tree in above:  # an alias may stand for what it is in
        return
    lines: dict[str, int] = {}
    for name, value in tree.value:
        line = name.start_mark.line + 1
        if isinstance(name, yaml.ScalarNode) and name.value in lines:
            raise UserError(
                f"{path}:{line}: {name.value} is there already, on line {lines[name.value]}",
                hint="a key stands once in its section",
            )
        if isinstance(name, yaml.ScalarNode):
            lines[name.value] = line
        _refuse_repeated(value, path, (*above, tree))


def _parent_path(path: Path, parent: str) -> Path:
    beside = [path.parent / f"{parent}.yaml", path.parent / parent]
    # A file may bear the name of the shipped recipe that it extends.
    found = [near for near in beside if near.is_file() and near.resolve() != path.resolve()]
    return found[0] if found else recipe_path(parent)


def _merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def parse_override(text: str) -> tuple[list[str], Any]:
    """`a.b=v` as (["a", "b"], v); the value is read as YAML.

    Raises:
        UserError: no `=`, an empty key or value, or a value that is not YAML.
    """
    key, sign, value = text.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise UserError(
            f"override {text!r} is not key=value", hint="for example: train.max_steps=20; a run is --run NAME"
        )
    if not value.strip():
        raise UserError(f"override {text!r} has no value", hint=_without_value(key.strip()))
    try:
        return parts, yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"override {text!r}: the value is not valid YAML") from None


def _without_value(key: str) -> str:
    """The hint for a key that is given no value: null only where that is one."""
    fields = dict(walk_fields(Recipe))
    if key in fields and type(None) in get_args(fields[key].annotation):
        return f"write {key}=null for none"
    return f"write {key}=VALUE, or leave it out"


def load_recipe(name: str, overrides: Sequence[str] = (), *, of_run: bool = False) -> Recipe:
    """Reads a shipped recipe or a file, applies overrides in order, and checks the whole.

    of_run: the file is a run's recipe.yaml, which holds every key of its time; those that came later are as they were.

    Raises:
        UserError: an unknown recipe, key or value; the message names the key and the nearest known one.
    """
    path = recipe_path(name)
    try:
        plain = _read(path)
    except UserError as fault:
        if of_run and not fault.hint:
            fault.hint = f"restore {path.name}; recipe.source.yaml beside it has what the run began with"
        raise
    plain.setdefault("name", path.stem)
    if of_run:
        plain = without_ignored(str(plain.get("method", DEFAULT)), _merge({"game": {"kill": "own"}}, plain))
    parsed = [parse_override(override) for override in overrides]
    keys = {".".join(parts): override for override, (parts, _) in zip(overrides, parsed, strict=True)}
    content = _set(without_settings_of(plain, _set(plain, parsed), _set({}, parsed)), parsed)
    try:
        recipe = Recipe.model_validate(content)
    except ValidationError as error:
        raise _fault(error, str(path), keys, plain) from None
    found = ignored_by(recipe.method, recipe.model_dump(mode="json"))
    read = flat(without(found, content))
    if ignored := [key for key in flat(content) if key not in read]:
        given = [text for key, text in keys.items() if any(f"{one}.".startswith(f"{key}.") for one in ignored)]
        by: dict[str, list[str]] = {}
        for key in ignored:
            by.setdefault(next(why for name, why in found.items() if f"{key}.".startswith(f"{name}.")), []).append(key)
        told = "; ".join(f"{why} ignores {', '.join(names)}" for why, names in by.items())
        raise UserError(
            f"{' '.join(given) or path}: {told}",
            hint=f"leave it out, or set another {' or '.join(why.partition('=')[0] for why in by)}",
        )
    return recipe


def _fault(error: ValidationError, file: str, overrides: dict[str, str], plain: dict[str, Any]) -> UserError:
    """What is wrong with which key, and whether the file or an override (by its key) made it so."""
    lines: dict[str, list[str]] = {}
    hints: list[str] = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        named = next((name for name in overrides if f"{name}.".startswith(f"{key}.") or key.startswith(f"{name}.")), "")
        origin = overrides.get(named, file)
        if problem["type"] == "extra_forbidden":
            line = f"unknown key {named or key}"
            hints += filter(None, [_meant(named or key)])
        elif problem["type"] == "missing":
            line = f"{key} is missing"
        else:
            message = plain_fault(problem["msg"])
            line = f"{key}: {message}" if key else message
            if isinstance(problem["input"], bool | int | float | str):
                line += f", not {problem['input']!r}" if message.startswith("Input should") else ""
            if not named and overrides and _holds(plain):  # keys that do not go together
                origin = " ".join(overrides.values())
        lines.setdefault(origin, []).append(line)
    what = "; ".join(f"{origin}: {'; '.join(said)}" for origin, said in lines.items())
    return UserError(
        what, hint=" ".join(dict.fromkeys(hints)) or f"`{command('recipes', 'show', 'tiny')}` explains every key"
    )


def _holds(content: dict[str, Any]) -> bool:
    try:
        Recipe.model_validate(content)
    except ValidationError:
        return False
    return True


# What may change while a run goes on: how far it goes, what it keeps, how it is looked at and watched. Everything else
# would make it another run.
MAY_CHANGE = (
    "train.max_steps", "train.epochs", "sandbox.endpoint", "sandbox.patience_s",
    "tracker", "checkpoint", "eval", "faults", "preflight",
)  # fmt: skip


def resumed_recipe(file: Path, overrides: Sequence[str]) -> tuple[Recipe, dict[str, list[Any]]]:
    """A run's recipe with overrides for the rest of it, and what they change: [before, now] by key.

    Raises:
        UserError: a key that may not change, an unknown one, or a wrong value.
    """
    for override in overrides:
        parts, _ = parse_override(override)
        if parts[0] not in MAY_CHANGE and ".".join(parts) not in MAY_CHANGE:
            raise UserError(
                f"{'.'.join(parts)} cannot change on --resume: it would be another run",
                hint=f"what may: {', '.join(MAY_CHANGE[:5])} and the sections {', '.join(MAY_CHANGE[5:])}; "
                "start a new run for the rest, under the same name while no step is done",
            )
    before, now = load_recipe(str(file), of_run=True), load_recipe(str(file), overrides, of_run=True)
    old, changed = flat(before.dump()), flat(now.dump())
    return now, {key: [old[key], value] for key, value in changed.items() if old[key] != value}


def flat(values: dict[str, Any], prefix: str = "", sign: str = ".") -> dict[str, Any]:
    """Nested sections as one level of keys, joined by `sign`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}{sign}", sign) if isinstance(value, dict) else {prefix + key: value}
    return found


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with its files and model folders named in full: a run can be resumed from any folder."""
    pinned = recipe.model_copy(deep=True)
    models = ((section, "model") for section in (pinned, *map(pinned.role, ROLES)))
    files = ((pinned.data, "train"), (pinned.data, "heldout"), (pinned.eval, "targets"))
    for section, key in (*models, *files, *((pinned.sft, role) for role in ROLES)):
        name = getattr(section, key)
        if name is not None and (path := user_path(name)).exists():
            setattr(section, key, str(path.absolute()))
    source = pinned.data.source
    for key in ("name", "data", "mapping", "benchmarks", "chat_template") if source else ():
        name = getattr(source, key, None)
        if name is not None and (path := user_path(name)).exists():
            setattr(source, key, str(path.absolute()))
    return pinned


def _meant(key: str) -> str | None:
    """The hint for an unknown key: the same last part elsewhere, another name for it, or a misspelt last part."""
    section, _, leaf = key.rpartition(".")
    leaf = leaf.replace("-", "_").lower()
    by_leaf: dict[str, list[str]] = {}
    for known in all_keys():
        by_leaf.setdefault(known.rpartition(".")[2], []).append(known)
    if leaf in by_leaf or leaf in ALIASES:
        return meant([*ALIASES.get(leaf, ()), *by_leaf.get(leaf, ())])
    siblings = [name for name, keys in by_leaf.items() if f"{section}.{name}" in keys]
    if close := near(leaf, siblings, 1):
        return meant([f"{section}.{close[0]}"])
    return meant(known for name in near(leaf, by_leaf, 1) for known in by_leaf[name])


def all_keys() -> list[str]:
    """Every dotted key that a recipe may hold."""
    return [key for key, _ in walk_fields(Recipe)]


def walk_fields(model: type[BaseModel], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """(dotted key, pydantic FieldInfo) of every leaf and section, depth first."""
    for name, info in model.model_fields.items():
        yield prefix + name, info
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from walk_fields(kind, f"{prefix}{name}.")


def recipe_text(recipe: Recipe) -> str:
    """The recipe as YAML with every default written out."""
    return yaml.safe_dump(recipe.dump(), sort_keys=False, allow_unicode=True)
