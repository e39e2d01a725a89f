"""A program's mutants by cosmic-ray's operators: the same ones, in the same order, as `cosmic-ray init` plans.

cosmic-ray parses a program anew for each mutant. Here it is parsed once; each mutation is made in the tree, printed and
taken back, which is some ten times quicker.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from codea1_cli.errors import EnvironmentFault
from codea1_cli.extract.source import PARSER


@dataclass(frozen=True)
class Mutant:
    """One change. `source` is the changed program, None where the operator fails on it (cosmic-ray calls that
    incompetent, and counts it as killed); `line` is where it begins."""

    operator: str
    occurrence: int
    line: int
    source: str | None


def make_mutants(source: str) -> list[Mutant]:
    """Every mutant of a program, by operator and then by place, identical to cosmic-ray's default session.

    Raises:
        EnvironmentFault: cosmic-ray is not installed.
    """
    with PARSER:  # cosmic-ray evaluates numbers, and its parser literals, with Python's own
        tree = _parse(source)
        operators = _operators()
        found: list[list[Mutant]] = [[] for _ in operators]
        for node in _nodes(tree):
            for kind, (name, operator) in zip(found, operators, strict=True):
                for index, (start, _) in enumerate(operator.mutation_positions(node)):
                    kind.append(Mutant(name, len(kind), start[0], _mutated(tree, node, operator, index)))
        return [mutant for kind in found for mutant in kind]


def show_diff(source: str, mutant: Mutant, name: str = "source") -> str:
    """The change as a unified diff."""
    changed = (mutant.source or "").splitlines()
    lines = difflib.unified_diff(source.splitlines(), changed, name, f"{name} ({mutant.operator})", lineterm="", n=1)
    return "\n".join(lines)


@cache
def _operators() -> list[tuple[str, Any]]:
    """The operators that need no arguments, which are those of a session without operator settings."""
    try:
        from cosmic_ray.plugins import get_operator, operator_names
    except ImportError as error:
        raise EnvironmentFault(f"mutation needs cosmic-ray: {error}", hint="`uv sync` installs it") from None
    kinds = [(name, get_operator(name)) for name in operator_names()]
    return [(name, kind()) for name, kind in kinds if not kind.arguments()]


def _parse(source: str) -> Any:
    _operators()
    from cosmic_ray.ast import get_ast

    return get_ast(source)


def _nodes(tree: Any) -> Iterator[Any]:
    """The tree from the top, each node before its children: an explicit stack, since programs may nest deep."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(getattr(node, "children", ())))


def _mutated(tree: Any, node: Any, operator: Any, index: int) -> str | None:
    before = [(part, *_state(part)) for part in _nodes(node)]
    parent = node.parent
    siblings = list(parent.children) if parent is not None else None
    try:
        changed = operator.mutate(node, index)
        if parent is None:
            return changed.get_code() if changed is not None else None
        parent.children = [
            kept for kept in (changed if child is node else child for child in siblings or ()) if kept is not None
        ]
        return str(tree.get_code())
    except Exception:  # whatever an operator raises: cosmic-ray reports the mutant, and so do we
        return None
    finally:
        for part, children, value in before:
            if children is not None:
                part.children = children
            if value is not None:
                part.value = value
        if siblings is not None:
            parent.children = siblings


def _state(node: Any) -> tuple[list[Any] | None, str | None]:
    children = getattr(node, "children", None)
    return (list(children), None) if children is not None else (None, node.value)
