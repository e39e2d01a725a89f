"""Perturbed and wrong solutions of a benchmark's tasks, to hold two checkers against each other.

Per task: the reference with one part of it changed (an operator, a constant, a comparison, a returned value's type), and
programs that are wrong in ways a checker must not stumble over: no function, exceptions, exits, endless loops, other types,
mutated arguments, state kept between calls, generators, numpy values, printing, reading. Deterministic by seed.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator

_COMPARE = [ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq]
_BINARY = [ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod]
_RETURNS = [
    "list(R)", "tuple(R)", "set(R)", "str(R)", "float(R)", "int(R)", "bool(R)", "[R]", "(R,)", "iter(R)", "R + 1e-9",
    "R + 1e-7", "R * (1 + 1e-6)", "R or None", "(lambda: R)", "type('Sub', (type(R),), {})(R)", "__import__('numpy').array(R)",
    "__import__('numpy').float64(R)", "__import__('numpy').int64(R)", "__import__('collections').Counter(R)",
    "__import__('collections').deque(R)", "__import__('collections').OrderedDict(R)", "__import__('fractions').Fraction(R)",
    "complex(R)", "R.__class__(R)", "sorted(R)", "dict(R)", "not R", "-R", "R[::-1]", "__import__('copy').deepcopy(R)",
]  # fmt: skip


def whole_programs(entry: str, reference: str) -> list[tuple[str, str]]:
    """Programs around the reference, by name."""
    wrapped = f"{reference}\n\n_inner = {entry}\n"
    seen = f"{wrapped}\n_seen = []\ndef {entry}(*a):\n    _seen.append(1)\n"
    return [
        ("no function", reference.replace(f"def {entry}(", f"def other_{entry}(")),
        ("no syntax", reference + "\n)"),
        ("nothing", ""),
        ("returns none", f"def {entry}(*a):\n    return None\n"),
        ("returns zero", f"def {entry}(*a):\n    return 0\n"),
        ("returns true", f"def {entry}(*a):\n    return True\n"),
        ("returns its argument", f"def {entry}(*a):\n    return a[0]\n"),
        ("raises", f"def {entry}(*a):\n    raise ValueError\n"),
        ("exits", f"import sys\ndef {entry}(*a):\n    sys.exit(0)\n"),
        ("exits hard", f"import os\ndef {entry}(*a):\n    os._exit(0)\n"),
        ("exits at load", f"{reference}\nraise SystemExit(0)\n"),
        ("recursion", f"def {entry}(*a):\n    return {entry}(*a)\n"),
        ("right, prints", f"{wrapped}\ndef {entry}(*a):\n    print(a)\n    return _inner(*a)\n"),
        ("right, reads stdin", f"{wrapped}\ndef {entry}(*a):\n    input()\n    return _inner(*a)\n"),
        ("right, opens a file", f"{wrapped}\nopen('/dev/null')\n"),
        ("right, with a main guard", f"{reference}\nif __name__ == '__main__':\n    raise ValueError\n"),
        ("right, then clears", f"{wrapped}\ndef {entry}(*a):\n    r = _inner(*a)\n    [x.clear() for x in a if isinstance(x, list)]\n    return r\n"),
        ("wrong from the third call on", f"{seen}    return _inner(*a) if len(_seen) < 3 else None\n"),
        ("right from the third call on", f"{seen}    return _inner(*a) if len(_seen) > 2 else None\n"),
        ("raises in the tenth call", f"{seen}    assert len(_seen) != 10\n    return _inner(*a)\n"),
        ("generator", f"{wrapped}\ndef {entry}(*a):\n    yield from _inner(*a)\n"),
        ("async", f"{wrapped}\nasync def {entry}(*a):\n    return _inner(*a)\n"),
        ("class", f"{wrapped}\nclass {entry}:\n    def __init__(self, *a):\n        self.r = _inner(*a)\n"),
        ("catches everything", f"{wrapped}\ndef {entry}(*a):\n    try:\n        return _inner(*a)\n    except BaseException:\n        return None\n"),
        ("uses os.getcwd", f"import os\n{wrapped}\ndef {entry}(*a):\n    os.getcwd()\n    return _inner(*a)\n"),
        ("deep recursion", f"{wrapped}\nimport sys\nsys.setrecursionlimit(100000)\ndef _deep(n):\n    return n and _deep(n - 1)\ndef {entry}(*a):\n    _deep(5000)\n    return _inner(*a)\n"),
    ]  # fmt: skip


def mutants(entry: str, reference: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """The reference with one part changed, in random order, without end of distinct ones when there are enough."""
    try:
        tree = ast.parse(reference)
    except SyntaxError:
        return
    places = [i for i, node in enumerate(ast.walk(tree)) if _changeable(node)]
    rng.shuffle(places)
    for place in places:
        changed = copy.deepcopy(tree)
        node = list(ast.walk(changed))[place]
        _change(node, rng)
        try:
            yield f"{type(node).__name__} changed", ast.unparse(ast.fix_missing_locations(changed))
        except (ValueError, TypeError):
            continue


def _changeable(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp | ast.Return | ast.If)
        or (isinstance(node, ast.Constant) and isinstance(node.value, int | float | str))
    )  # fmt: skip


def _change(node: ast.AST, rng: random.Random) -> None:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
        node.ops[0] = rng.choice([op for op in _COMPARE if not isinstance(node.ops[0], op)])()
    elif isinstance(node, ast.BinOp):
        node.op = rng.choice([op for op in _BINARY if not isinstance(node.op, op)])()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.If):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant) and not isinstance(node.value, str):
        node.value = node.value + rng.choice([-1, 1, 2]) if not isinstance(node.value, bool) else not node.value
    elif isinstance(node, ast.Constant):
        node.value = node.value[1:] or "x"
    elif isinstance(node, ast.Return) and node.value is not None:
        text = rng.choice(_RETURNS).replace("R", f"({ast.unparse(node.value)})")
        node.value = ast.parse(text, mode="eval").body


def wrong_solutions(tasks: list[tuple[str, str, str]], count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """`count` programs as (task id, what it is, source), spread evenly over `tasks` of (id, entry point, reference)."""
    rng = random.Random(seed)
    each = -(-count // len(tasks))
    found = []
    for task, entry, reference in tasks:
        fixed = whole_programs(entry, reference)
        rng.shuffle(fixed)
        chosen = fixed[: each // 2]
        changed = mutants(entry, reference, rng)
        chosen += [made for made, _ in zip(changed, range(each - len(chosen)), strict=False)]
        chosen += fixed[each // 2 : each // 2 + each - len(chosen)]
        found += [(task, what, source) for what, source in chosen]
    return found[:count] if len(found) > count else found
