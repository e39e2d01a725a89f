"""What a family of function problems is, and arguments for its functions.

A family has parameters, several wordings, right and plausibly wrong bodies. Its arguments are bland ones, which most
wrong solutions survive, and edge ones, which break them.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from string import Template

ENTRY_POINT = "solve"
INDENT = "    "

Parameters = Mapping[str, int | str]
Value = int | str | list[int] | dict[str, int]

COMMON_WORDS = ("table", "cat", "boat", "data", "note", "code", "tree", "dog", "bed", "apple", "cocoa", "echo")
KEYS = "abcd"


@dataclass(frozen=True)
class Family:
    """Templates over `$k`, `$j`, `$c`, `$e` (parameters) and `$near` (`$k` missed by one).

    `arguments` names the function's arguments, and each name stands for a kind of value: `xs`, `ys` lists of integers,
    `s` a short word, `n`, `m` integers, `d` a dict from letters to integers. `wordings` holds at least five questions:
    one is kept for the held-out split and one for the dev split.
    """

    name: str
    arguments: tuple[str, ...]
    wordings: tuple[str, ...]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    parameters: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)

    @property
    def declaration(self) -> str:
        """The function's first line."""
        return f"def {ENTRY_POINT}({', '.join(self.arguments)}):"

    def grid(self) -> Iterator[Parameters]:
        """Every combination of parameter values, in a fixed order."""
        for values in product(*self.parameters.values()):
            yield dict(zip(self.parameters, values, strict=True))

    def source(self, body: str, parameters: Parameters) -> str:
        """A whole function: the declaration over a filled-in body."""
        lines = fill(body, parameters).split("\n")
        return "\n".join([self.declaration, *(INDENT + line for line in lines)])


def fill(template: str, parameters: Parameters) -> str:
    """Substitute the parameters into a template.

    Raises:
        KeyError: the template names a parameter that is not there.
    """
    return Template(template).substitute(parameters)


def bland(kind: str, parameters: Parameters, rng: random.Random) -> Value:
    """A typical argument: a few small positive numbers, away from the parameters; a common word."""
    return _BLAND[kind](parameters, rng)


def edge(kind: str, parameters: Parameters, rng: random.Random) -> Value:
    """An argument near a boundary: empty, of one item, repeated items, below zero, or equal to a parameter."""
    return _EDGE[kind](parameters, rng)


def _bland_list(parameters: Parameters, rng: random.Random) -> list[int]:
    away = [value for value in range(1, 10) if value not in parameters.values()]
    return rng.sample(away, 3)


def _edge_list(parameters: Parameters, rng: random.Random) -> list[int]:
    near = _near(parameters, rng)
    shape = rng.random()
    if shape < 0.15:
        return []
    if shape < 0.45:
        return [rng.choice(near)]
    if shape < 0.6:
        return [rng.choice(near)] * 2
    if shape < 0.7:
        return rng.sample(range(1, 10), min(max(_k(parameters, 2) + rng.choice((0, 1)), 1), 5))
    return [rng.choice(near) for _ in range(rng.choice((2, 2, 3)))]


def _near(parameters: Parameters, rng: random.Random) -> list[int]:
    k = _k(parameters, rng.randint(2, 8))
    j = parameters.get("j", k)
    return [k, k, k + 1, k - 1, int(j), 2 * k, 0, -1, -2, rng.randint(1, 9)]


def _k(parameters: Parameters, default: int) -> int:
    return int(parameters.get("k", default))


def _bland_word(parameters: Parameters, rng: random.Random) -> str:
    return rng.choice(COMMON_WORDS)


def _edge_word(parameters: Parameters, rng: random.Random) -> str:
    letter = str(parameters.get("c", "a"))
    shape = rng.random()
    if shape < 0.2:
        return ""
    if shape < 0.35:
        return letter
    if "k" in parameters and shape < 0.8:
        return "abcdefgh"[: max(_k(parameters, 2) + rng.choice((-1, 0, 0, 1)), 1)]
    return rng.choice((letter * 2, letter + "b" + letter, "b" + letter, letter + "x", "ab", "u", "aba", "abca"))


def _bland_number(parameters: Parameters, rng: random.Random) -> int:
    return rng.choice([value for value in range(1, 16) if value not in parameters.values()])


def _edge_number(parameters: Parameters, rng: random.Random) -> int:
    k = _k(parameters, rng.randint(2, 8))
    return rng.choice((k, k, k + 1, k - 1, int(parameters.get("j", k)), 2 * k, 0, -1, -k, -12))


def _bland_dict(parameters: Parameters, rng: random.Random) -> dict[str, int]:
    away = [value for value in range(1, 10) if value not in parameters.values()]
    return dict(zip("ab", rng.sample(away, 2), strict=True))


def _edge_dict(parameters: Parameters, rng: random.Random) -> dict[str, int]:
    if rng.random() < 0.25:
        return {}
    keys = rng.sample(KEYS, rng.choice((1, 1, 2)))
    value = rng.choice(_near(parameters, rng))
    return {key: value if rng.random() < 0.6 else rng.choice(_near(parameters, rng)) for key in keys}


_BLAND: dict[str, Callable[[Parameters, random.Random], Value]] = {
    "xs": _bland_list, "ys": _bland_list, "s": _bland_word, "n": _bland_number, "m": _bland_number, "d": _bland_dict,
}  # fmt: skip
_EDGE: dict[str, Callable[[Parameters, random.Random], Value]] = {
    "xs": _edge_list, "ys": _edge_list, "s": _edge_word, "n": _edge_number, "m": _edge_number, "d": _edge_dict,
}  # fmt: skip
