"""The mutants are cosmic-ray's own: same operators, same order, same text, though made another way."""

import json

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from codea1_cli.evals.test_generation import functions_of, make_mutants, own_mutants, show_diff
from tests.evals.test_generation.hand_made import ADD, NEG, SIGN

EVERY_OPERATOR = '''
import functools

@functools.lru_cache
@staticmethod
def f(x, *rest, y=-1, **more):
    """Docs."""
    try:
        while not x and y is not None or x in (1, 2.5, 0x10, 1j):
            x += 1 if y > 3 else ~y
            if x == 7:
                break
            continue
    except (ValueError, KeyError):
        return [i ** 2 for i in range(3) if i % 2] , {**more}
    except OSError as fault:
        assert True is False, fault
    for a, b in zip(rest, rest):
        print(a | b, a @ b, a << 1, x != None, 1 < a <= 3)
    return x
'''


def cosmic(source: str) -> list[tuple[str, int, str | None]]:
    """What cosmic-ray itself plans and makes."""
    found = []
    tree = get_ast(source)
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():
            continue
        places = [place for node in ast_nodes(tree) for place in kind().mutation_positions(node)]
        for occurrence in range(len(places)):
            try:
                changed = mutate_code(source, kind(), occurrence)
            except Exception:
                changed = None
            found.append((name, occurrence, changed))
    return found


@pytest.mark.parametrize("source", [ADD, SIGN, NEG, EVERY_OPERATOR, "", "x = = 1\n", "def f(:\n  return 1 + 2"])
def test_equal_to_cosmic_rays(source):
    assert [(m.operator, m.occurrence, m.source) for m in make_mutants(source)] == cosmic(source)


@pytest.mark.shared
def test_equal_to_cosmic_rays_on_the_benchmark(shared):
    rows = json.loads((shared / "data/bench/ult_lite.json").read_text())
    for row in rows[50:53]:
        assert [(m.operator, m.occurrence, m.source) for m in make_mutants(row["code"])] == cosmic(row["code"])


def test_counts_worked_out_by_hand():
    assert [len(make_mutants(source)) for source in (ADD, SIGN, NEG)] == [11, 16, 4]


def test_a_function_without_operators_has_no_mutants():
    assert make_mutants("def f(x):\n    return x\n") == []


def test_a_functions_own_mutants_are_made_and_no_others():
    """A table of numbers beside it would make many, each with a copy of the table."""
    source = f"{EVERY_OPERATOR}\n\n{SIGN}\nBIG = [1, 2]\n\n\n{ADD}"
    every = make_mutants(source)
    for one in (functions := functions_of(source)):
        lines = range(one.first, one.last + 1)
        own = [(m.operator, m.line, m.source) for m in own_mutants(one)]
        assert own == [(m.operator, m.line, m.source) for m in every if m.line in lines]
    assert [one.name for one in functions] == ["f", "sign", "add"]
    [add] = functions_of(f"BIG = [{', '.join(map(str, range(3000)))}]\n\n\n{ADD}")
    assert len(own_mutants(add)) == 11


def test_a_mutant_is_shown_as_a_diff():
    mutant = make_mutants(ADD)[0]
    assert mutant.line == 2
    shown = show_diff(ADD, mutant).splitlines()
    assert "-    return a + b" in shown
    assert "+    return a - b" in shown
