"""The training methods by name. `base` says what one is; a class of it and a row of `METHODS` make another.

Imports none of them: a recipe is checked in a blink.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from codea1_cli.errors import UserError

if TYPE_CHECKING:
    from codea1_cli.methods.base import Method

RoleName = Literal["code", "test"]
ROLES: tuple[RoleName, ...] = get_args(RoleName)
"""Every role that there is; `Method.roles` are those that a method plays. They divide the files of a run: its
recipe into sections, a line of metrics.jsonl and an evaluation into parts."""

METHODS = {  # name -> module:Class
    "code-a1": "codea1_cli.methods.code_a1:CodeA1",
    "self-play": "codea1_cli.methods.code_a1:SelfPlay",
    "golden-tests": "codea1_cli.methods.code_a1:GoldenTests",
    "sft": "codea1_cli.methods.sft:Sft",
}
DEFAULT = "code-a1"


class Named(Protocol):
    """A recipe, as far as this module knows it."""

    @property
    def method(self) -> str:
        """Its name."""

    @property
    def sft(self) -> Any:
        """The section of that name."""


def method_of(recipe: Named) -> Method:
    """The method that a recipe names."""
    return find_method(recipe.method).of(recipe)


def check_method(name: str) -> str:
    """The name; ValueError when no method has it, see `find_method`."""
    if name not in METHODS and ":" not in name:
        raise ValueError(f"unknown method {name!r}; there are {', '.join(METHODS)}, or module:Class")
    if name not in METHODS:
        find_method(name)
    return name


def find_method(name: str) -> type[Method]:
    """The class of a method: a name of the registry, or `module:Class` for one that lies outside the project.

    Raises:
        ValueError: it cannot be imported, or is not a Method.
    """
    from codea1_cli.methods.base import Method

    module, _, attribute = METHODS.get(name, name).partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"method {name!r} cannot be imported: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ValueError(f"method {name!r} is not a subclass of codea1_cli.methods.base.Method")
    return found


def ignored_by(name: str, keys: Mapping[str, Any]) -> dict[str, str]:
    """The keys and sections that have no meaning in a recipe of method `name`, and the setting that leaves each without
    one, as its nested `keys` have it; none for a name that is no method's. The section `sft` has a meaning under that
    method, and for a warm-up, which trains the policies that its method does."""
    try:
        method = find_method(name)
    except ValueError:
        return {}
    warmed = ("sft.role",) if "test" in method.roles else ("sft.role", "sft.test")
    own = () if method.pairs else warmed if keys.get("warmup") else ("sft",)
    return dict.fromkeys((*method.ignores, *own), f"method={name}") | method.also_ignores(_sections(keys))


def _sections(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The sections alone: a recipe that is not checked yet may hold anything in their place."""
    return {key: value for key, value in keys.items() if isinstance(value, Mapping)}


def without_ignored(name: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's nested `keys` less those that are ignored; all of them for a name that is no method's."""
    return without(ignored_by(name, keys), keys)


def without_settings_of(
    base: Mapping[str, Any], recipe: Mapping[str, Any], change: Mapping[str, Any]
) -> dict[str, Any]:
    """The nested keys of `base`, of which a `change` makes `recipe`, less what they hold for settings that the change
    replaces: what these alone had a use for, and with another method the GPUs shared out among other policies."""
    before, after = (str(keys.get("method", DEFAULT)) for keys in (base, recipe))
    gone = set(ignored_by(after, recipe))
    if "method" not in change:
        return without(gone - set(ignored_by(before, base)), base)
    try:
        same = find_method(before)().policies == find_method(after)().policies
    except ValueError:  # a name that is no method's is refused elsewhere
        return dict(base)
    return without(gone if same else {*gone, "code.gpus", "test.gpus"}, base)


def refuse_ignored(
    method: str,
    values: Mapping[str, Any],
    given: Iterable[str],
    overrides: Mapping[str, str],
    files: Mapping[str, Path],
    file: Path,
) -> None:
    """Refuses keys that have no meaning in a recipe of these `values`.

    Args:
        given: the dotted keys that somebody set: `overrides` by their text, the user's own `files`, or `file` itself.

    Raises:
        UserError: there are some; who set them, what leaves them without a meaning, and the way out.
    """
    found = ignored_by(method, values)
    why = {key: next((found[one] for one in found if f"{key}.".startswith(f"{one}.")), "") for key in given}
    ignored = [key for key in why if why[key]]
    typed = {name: text for name, text in overrides.items() if any(f"{key}.".startswith(f"{name}.") for key in ignored)}
    told: dict[tuple[str, str], list[str]] = {}
    below = []  # it was right to set these where they were set
    for key in ignored:
        where = str(files.get(key, file))
        if any(f"{key}.".startswith(f"{name}.") for name in typed):
            where = " ".join(typed.values())
        elif overrides or where != str(file):
            below.append(f"{key}=null")
        told.setdefault((where, why[key]), []).append(key)
    if told:
        back = f"take it back with {' '.join(below)}, " if below else ""
        lines: dict[str, list[str]] = {}
        for (where, reason), names in told.items():
            lines.setdefault(where, []).append(f"{reason} ignores {', '.join(names)}")
        others = " or ".join(dict.fromkeys(reason.partition("=")[0] for _, reason in told))
        raise UserError(
            "; ".join(f"{where}: {'; '.join(said)}" for where, said in lines.items()),
            hint=f"leave it out, {back}or set another {others}",
        )


def without(names: Collection[str], keys: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested `keys` less those of these dotted names, which may be sections."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if (name := prefix + key) not in names:
            inside = isinstance(value, Mapping) and any(one.startswith(f"{name}.") for one in names)
            found[key] = without(names, value, f"{name}.") if inside else value
    return found
