"""The training methods by name. Imports none of them: a recipe is checked in a blink."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from codea1_cli.methods.base import Method

METHODS = {  # name -> module:Class
    "code-a1": "codea1_cli.methods.code_a1:CodeA1",
    "self-play": "codea1_cli.methods.code_a1:SelfPlay",
    "golden-tests": "codea1_cli.methods.golden_tests:GoldenTests",
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


def without_ignored(name: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's nested `keys` less those that a method ignores; all of them for a name that is no method's. The
    section `sft` has a meaning under that method, and for a warm-up, which trains the policies that its method does."""
    try:
        method = find_method(name)
    except ValueError:
        return dict(keys)
    own = () if method.pairs else ("sft.role",) if keys.get("warmup") else ("sft",)
    return _without({*method.ignores, *own}, keys)


def without_settings_of(before: str, name: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's `keys` for method `name` less what they hold for the method `before`: what the new one ignores, and
    the GPUs that are shared out among other policies."""
    try:
        same = find_method(before)().policies == find_method(name)().policies
    except ValueError:  # a name that is no method's is refused elsewhere
        return dict(keys)
    return without_ignored(name, keys if same else _without(("code.gpus", "test.gpus"), keys))


def _without(names: Collection[str], keys: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    kept = {key: value for key, value in keys.items() if prefix + key not in names}
    return {k: _without(names, v, f"{prefix}{k}.") if isinstance(v, Mapping) else v for k, v in kept.items()}
