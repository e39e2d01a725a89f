"""Recipes as files: finding, extending, overriding, and errors that name the nearest key."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from codea1_cli.errors import UserError, command, did_you_mean, first_line, plain_fault
from codea1_cli.files import no_file, read_text, user_path
from codea1_cli.methods.registry import (
    DEFAULT,
    ROLES,
    refuse_ignored,
    without,
    without_ignored,
    without_settings_of,
)
from codea1_cli.recipe import flat, meant_key, recipe_folder, recipe_names
from codea1_cli.recipe.batching import check_measured
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


def _read(path: Path, seen: tuple[Path, ...] = ()) -> tuple[dict[str, Any], dict[str, Path]]:
    """A file's nested keys over those of what it extends, and which of the user's own files sets each, dotted."""
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
    shipped = path.resolve().parent == recipe_folder().resolve()
    own: dict[str, Path] = {} if shipped else dict.fromkeys(flat(content), path)
    if parent is None:
        return content, own
    base, below = _read(_parent_path(path, str(parent)), (*seen, path))
    return _merge(_built_upon(base, _merge(base, content), content, below), content), below | own


def _built_upon(
    base: dict[str, Any], recipe: dict[str, Any], change: dict[str, Any], own: Collection[str]
) -> dict[str, Any]:
    """The nested keys of `base` less what it holds for settings that a `change`, which makes `recipe`, replaces.

    own: the keys that the user's own files set. They stay, to be refused; where they hold a default, as what `recipes
    show` wrote does, nothing is lost with them.
    """
    left = without_settings_of(base, recipe, change)
    there = flat(left)
    gone = {key: value for key, value in flat(base).items() if key in own and key not in there}
    usual = flat(Recipe(model="any").model_dump(mode="json")) if gone else {}
    return _set(left, [(key.split("."), value) for key, value in gone.items() if usual.get(key, ...) != value])


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


def _refuse_repeated(tree: yaml.Node | None, path: Path | str, above: tuple[yaml.Node, ...] = ()) -> None:
    """Raises UserError for a key that stands twice in one section, of which YAML would silently take the last, and for
    an alias of the section that it is in."""
    if not isinstance(tree, yaml.MappingNode):
        return
    if tree in above:
        raise UserError(f"{path}:{tree.start_mark.line + 1}: a section that holds itself", hint="write out its alias")
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
        _refuse_repeated(yaml.compose(value, Loader=yaml.SafeLoader), f"override {text!r}")
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
        plain, own = _read(path)
    except UserError as fault:
        if of_run and not fault.hint:
            fault.hint = f"restore {path.name}; recipe.source.yaml beside it has what the run began with"
        raise
    plain.setdefault("name", path.stem)
    if of_run:
        plain = without_ignored(str(plain.get("method", DEFAULT)), _merge({"game": {"kill": "own"}}, plain))
        own = {}
    parsed = [parse_override(override) for override in overrides]
    keys = {".".join(parts): override for override, (parts, _) in zip(overrides, parsed, strict=True)}
    content = _set(_built_upon(plain, _set(plain, parsed), _set({}, parsed), own), parsed)
    # null takes back what a file below sets: a key without a meaning need not have a value.
    useful = flat(without_ignored(str(content.get("method", DEFAULT)), content))
    content = without([key for key, value in flat(content).items() if value is None and key not in useful], content)
    try:
        recipe = Recipe.model_validate(content)
    except ValidationError as error:
        raise _fault(error, str(path), keys, plain) from None
    refuse_ignored(recipe.method, recipe.model_dump(mode="json"), flat(content), keys, own, path)
    if not of_run:
        check_measured(recipe)
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
            hints += filter(None, [meant_key(named or key, all_keys())])
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
    changes = {key: [old[key], value] for key, value in changed.items() if old[key] != value}
    if any(key.startswith(("eval.", "checkpoint.")) for key in changes):  # one of an earlier version may go on as it is
        check_measured(now)
    return now, changes


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
