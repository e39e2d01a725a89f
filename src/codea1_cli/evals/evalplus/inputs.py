"""The inputs of a task as Python values, and as the text that the sandbox reads.

JSON has no tuples, sets or complex numbers: MBPP+ stores lists and strings in their place and says task by task what
they stand for. The numbers below are EvalPlus 0.3.1's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Arguments = Any  # a list, or a tuple, of a call's arguments


def _deep(value: Any) -> Any:
    return tuple(map(_deep, value)) if isinstance(value, list) else value


def _each(arguments: Arguments) -> Arguments:
    return [tuple(argument) for argument in arguments]


def _each_of_tuples(arguments: Arguments) -> Arguments:
    return [[tuple(part) for part in argument] for argument in arguments]


def _first_of_tuples(arguments: Arguments) -> Arguments:
    return [[tuple(part) for part in arguments[0]], arguments[1]]


def _second(arguments: Arguments) -> Arguments:
    return [arguments[0], tuple(arguments[1])]


def _first_of_two(arguments: Arguments) -> Arguments:
    return [tuple(arguments[0]), arguments[1]]


def _first_of_three(arguments: Arguments) -> Arguments:
    return [tuple(arguments[0]), arguments[1], arguments[2]]


def _tuples_of_tuples(arguments: Arguments) -> Arguments:
    return [tuple(tuple(part) for part in argument) for argument in arguments]


def _mixed_tuple(arguments: Arguments) -> Arguments:
    return [tuple(tuple(part) if isinstance(part, list) else part for part in arguments[0])]


def _sets(arguments: Arguments) -> Arguments:
    return [[set(part) if isinstance(part, list) and part else {} for part in arguments[0]]]


def _polar(arguments: Arguments) -> Arguments:
    return (float(arguments[0]), complex(arguments[1]))


def _complex(arguments: Arguments) -> Arguments:
    return [complex(arguments[0])]


def _table(arguments: Arguments) -> Arguments:
    return [{key: tuple(row) for key, row in arguments[0].items()}, *arguments[1:]]


_RULES: dict[Callable[[Arguments], Arguments], str] = {
    _each: "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809",
    _each_of_tuples: "63 64 70 94 120 237 272 299 400 409 417 438 473 614 780",
    _first_of_tuples: "75 413 444 753",
    _second: "106 750",
    _sets: "115",
    _polar: "124",
    _first_of_two: "250 405 446 617 720 763 808",
    _tuples_of_tuples: "259 401 445",
    _mixed_tuple: "278",
    _first_of_three: "307",
    _table: "722",
    _complex: "252",
    _deep: "580 615 791",
}
_RULE_OF = {f"Mbpp/{number}": rule for rule, numbers in _RULES.items() for number in numbers.split()}


def arguments_of(task_id: str, stored: list[Any]) -> list[Arguments]:
    """The arguments of each call, from the inputs as the release files store them."""
    rule = _RULE_OF.get(task_id)
    return stored if rule is None else [rule(arguments) for arguments in stored]


def shipped(arguments: list[Arguments]) -> dict[str, Any]:
    """The inputs as text: JSON where that is exact, which is quicker to read, else a Python expression."""
    if all(map(_is_json, arguments)):
        return {"json": True, "inputs": json.dumps(arguments)}
    return {"json": False, "inputs": repr(arguments)}


def _is_json(value: Any) -> bool:
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(part) for key, part in value.items())
    return value is None or type(value) in (bool, int, float, str)
