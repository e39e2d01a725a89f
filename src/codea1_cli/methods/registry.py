"""The training methods by name."""

from __future__ import annotations

import importlib
from typing import Protocol

from codea1_cli.methods.base import Method
from codea1_cli.methods.code_a1 import CodeA1

METHODS: dict[str, type[Method]] = {"code-a1": CodeA1}
RESERVED = ("golden-tests", "self-play", "sft")


class Named(Protocol):
    """A recipe, as far as this module knows it."""

    @property
    def method(self) -> str: ...


def method_of(recipe: Named) -> Method:
    """The method that a recipe names."""
    return find_method(recipe.method)()


def find_method(name: str) -> type[Method]:
    """The class of a method: a name of the registry, or `module:Class` for one that lies outside the project.

    Raises:
        ValueError: there is no such method; the message names those that there are.
    """
    if name in METHODS:
        return METHODS[name]
    if name in RESERVED:
        raise ValueError(f"method {name!r} is not available yet; use {', '.join(METHODS)}")
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"unknown method {name!r}; there are {', '.join((*METHODS, *RESERVED))}, or module:Class")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"method {name!r} cannot be imported: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ValueError(f"method {name!r} is not a subclass of codea1_cli.methods.base.Method")
    return found
