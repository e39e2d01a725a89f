"""Options of a command in dataclasses: a command with many of them takes a few typed groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def option_groups(command: Callable[..., int]) -> Callable[..., int]:
    """Makes an option of each field of the command's parameters that are dataclasses.

    A field is `name: Annotated[TYPE, typer.Option(...)] = DEFAULT`; `--help` lists parameters and fields in their order.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: p.annotation for name, p in signature.parameters.items() if is_dataclass(p.annotation)
    }
    flat: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            kind = inspect.Parameter.KEYWORD_ONLY
            flat.append(inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name]))

    @wraps(command)
    def grouped(**given: Any) -> int:
        made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        return command(**given, **made)

    grouped.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    grouped.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return grouped
