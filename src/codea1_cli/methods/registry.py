"""The training methods by name. Imports none of them: a recipe is checked in a blink."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from codea1_cli.methods.base import Method

METHODS = {"code-a1": "codea1_cli.methods.code_a1:CodeA1"}  # name -> module:Class
RESERVED = ("golden-tests", "self-play", "sft")


class Named(Protocol):
    """A recipe, as far as this module knows it."""

    @property
    def method(self) -> str: ...


def method_of(recipe: Named) -> Method:
    """The method that a recipe names."""
    return find_method(recipe.method)()


def check_method(name: str) -> None:
    """Raises ValueError when no method has this name; see `find_method`."""
    if name in RESERVED:
        raise ValueError(f"method {name!r} is not available yet; use {', '.join(METHODS)}")
    if name not in METHODS and ":" not in name:
        raise ValueError(f"unknown method {name!r}; there are {', '.join((*METHODS, *RESERVED))}, or module:Class")
    if name not in METHODS:
        find_method(name)


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
