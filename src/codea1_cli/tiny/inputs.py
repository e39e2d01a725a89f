"""Arguments for a family's functions: bland ones, that most wrong solutions survive, and edge ones, that break them."""

import random
from collections.abc import Callable

from codea1_cli.tiny.family import Parameters

Value = int | str | list[int] | dict[str, int]

COMMON_WORDS = ("table", "cat", "boat", "data", "note", "code", "tree", "dog", "bed", "apple", "cocoa", "echo")
KEYS = "abcd"


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
