"""EvalPlus 0.3.1's rules for one set of answers: when an answer counts as right, and how a task's tolerance moves.

The rules are those of `evalplus.eval.unsafe_execute`, applied here to values that the sandbox sent: `==` first, then
for a float or a list of floats (or where the task has a tolerance) the same type, the same length and numpy's
`allclose`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from codea1_cli.evals.evalplus.values import NotAnAnswer, Read, read

RTOL = 1e-07
FLOAT_ATOL = 1e-6

_SET_EQUAL = (
    "similar_elements find_char_long common_in_nested_lists extract_singly larg_nnum intersection_array "
    "find_dissimilar Diff"
)
_POSTS = {
    **dict.fromkeys(_SET_EQUAL.split(), "set"),
    **dict.fromkeys(("check_str", "text_match_three", "text_starta_endb"), "told"),
    "are_equivalent": "any",
}


Arguments = Any  # a list, or a tuple, of a call's arguments


def _deep(value: Any) -> Any:
    return tuple(map(_deep, value)) if isinstance(value, list) else value


_RULES: list[tuple[str, Callable[[Arguments], Arguments]]] = [
    (
        "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809",
        lambda given: [tuple(one) for one in given],
    ),
    (
        "63 64 70 94 120 237 272 299 400 409 417 438 473 614 780",
        lambda given: [[tuple(part) for part in one] for one in given],
    ),
    ("75 413 444 753", lambda given: [[tuple(part) for part in given[0]], given[1]]),
    ("106 750", lambda given: [given[0], tuple(given[1])]),
    ("115", lambda given: [[set(part) if isinstance(part, list) and part else {} for part in given[0]]]),
    ("124", lambda given: (float(given[0]), complex(given[1]))),
    ("250 405 446 617 720 763 808", lambda given: [tuple(given[0]), given[1]]),
    ("259 401 445", lambda given: [tuple(tuple(part) for part in one) for one in given]),
    ("278", lambda given: [tuple(tuple(part) if isinstance(part, list) else part for part in given[0])]),
    ("307", lambda given: [tuple(given[0]), given[1], given[2]]),
    ("722", lambda given: [{key: tuple(row) for key, row in given[0].items()}, *given[1:]]),
    ("252", lambda given: [complex(given[0])]),
    ("580 615 791", _deep),
]
"""How the arguments of MBPP tasks, by their numbers, are made of the JSON of the release files."""
_RULE_OF = {f"Mbpp/{number}": rule for numbers, rule in _RULES for number in numbers.split()}


def arguments_of(task_id: str, stored: list[Any]) -> list[Arguments]:
    """The arguments of each call, from the inputs as the release files store them."""
    rule = _RULE_OF.get(task_id)
    return stored if rule is None else [rule(arguments) for arguments in stored]


def shipped(arguments: list[Arguments]) -> dict[str, Any]:
    """The inputs for `in_jail`: as they are where JSON has them exactly, else a Python expression."""
    if all(map(_is_json, arguments)):
        return {"json": True, "inputs": arguments}
    return {"json": False, "inputs": repr(arguments)}


def _is_json(value: Any) -> bool:
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(part) for key, part in value.items())
    return value is None or type(value) in (bool, int, float, str)


def post_of(benchmark: str, entry_point: str) -> str:
    """What is done to an answer before it is compared; the names are those of `in_jail.POSTS`."""
    if benchmark == "humaneval":
        return "with_input" if entry_point == "find_zero" else ""
    return _POSTS.get(entry_point, "")


def poly(coefficients: Sequence[float], x: float) -> float:
    """The polynomial's value at x; coefficients by rising power."""
    return sum(coefficient * math.pow(x, power) for power, coefficient in enumerate(coefficients))


def surface_area(base_edge: float, height: float) -> int:
    """MBPP/581's second reading: the height is that of the pyramid, not of its side."""
    slant = math.sqrt((base_edge / 2) ** 2 + height**2)
    return round(base_edge**2 + 2 * base_edge * slant)


def digit_distance(one: int, other: int) -> int:
    """MBPP/558's second reading: digit by digit, the shorter number filled up with zeros in front."""
    width = max(len(str(one)), len(str(other)))
    return sum(abs(int(a) - int(b)) for a, b in zip(str(one).zfill(width), str(other).zfill(width), strict=True))


def is_floats(value: Any) -> bool:
    """Whether the expected value is a float, or a list, tuple or array of nothing but floats."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.dtype in (np.float64, np.float32)
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(part, float) for part in value)
    return isinstance(value, float)


class Rules:
    """One run over a set of answers; `atol` starts as the task's and stays set once an expected float has set it."""

    def __init__(self, benchmark: str, entry_point: str, atol: float) -> None:
        self.special = entry_point if benchmark == "mbpp" else f"{benchmark}:{entry_point}"
        self.atol = atol

    def right(self, text: str, expected: str, arguments: Any) -> bool:
        """Whether the answer `text` is right; both are lines of `in_jail`. Raises NotAnAnswer for a digest."""
        if self.special == "humaneval:find_zero":
            return self._zero(text, arguments)
        if expected[:1] == "#" or text[:1] == "#":
            kind = expected.partition(" ")[0]
            if text != expected or "n" in kind:
                raise NotAnAnswer("a digest")
            self.atol = self.atol or (FLOAT_ATOL if "f" in kind else 0)
            return True
        same = text == expected and "nan" not in expected and text != "?"
        wanted = read(expected).value if not same or "." in expected or "inf" in expected else None
        found = Read(wanted) if same else read(text)
        if wanted is not None and self.atol == 0 and is_floats(wanted):
            tolerance = FLOAT_ATOL
        else:
            tolerance = self.atol
        try:
            exact = bool(same or self._exact(found.value, wanted, arguments))
            self.atol = tolerance
            if exact or self.atol == 0:
                return exact
            return self._close(found, wanted)
        except Exception:  # as in EvalPlus: what cannot be compared is wrong
            self.atol = tolerance
            return False

    def _exact(self, value: Any, wanted: Any, arguments: Any) -> bool:
        match = value == wanted
        if self.special == "are_equivalent":
            return True
        if self.special == "sum_div":
            return bool(match or value == 0)
        if self.special == "surface_Area":
            return bool(match or abs(value - surface_area(*arguments)) <= self.atol)
        if self.special == "digit_distance_nums":
            return bool(match or value == digit_distance(*arguments))
        return bool(match)

    def _close(self, found: Read, wanted: Any) -> bool:
        import numpy as np

        if not found.exact or type(found.value) is not type(wanted):
            return False
        if isinstance(wanted, list | tuple) and len(found.value) != len(wanted):
            return False
        return bool(np.allclose(found.value, wanted, rtol=RTOL, atol=self.atol))

    def _zero(self, text: str, arguments: Any) -> bool:
        """EvalPlus puts the answer into the list that the candidate was given, as the candidate left it; here it has to
        be a root of the task's own polynomial too, so that emptying the list solves nothing."""
        try:
            left, x = read(text).value
            return bool(abs(poly(left, x)) <= self.atol and abs(poly(arguments[0], x)) <= self.atol)
        except Exception:
            return False
