"""The generator: enough families, and solutions that are what they claim to be."""

import random

import pytest

from world.family import Family
from world.problems import SPLITS, WORDING_GROUPS, share
from world.variants import MIN_WRONG, Variant, answer, families, variant

NAMES = list(families())


def every_variant(name: str) -> list[Variant]:
    return [variant(name, tuple(parameters.items())) for parameters in families()[name].grid()]


def test_there_are_at_least_forty_families():
    assert len(NAMES) >= 40
    assert len({family.right for family in families().values()}) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_right_solutions_agree_and_wrong_ones_differ(name):
    for found in every_variant(name):
        calls = [*found.bland_calls, *found.edge_calls]
        for call in calls:
            assert not found.expected(call).startswith("<"), f"the reference raises on {call}"
            assert {answer(source, call) for source in found.right} == {found.expected(call)}
        assert len(found.wrong) >= MIN_WRONG
        assert len(set(found.wrong)) == len(found.wrong)
        for source in found.wrong:
            assert any(answer(source, call) != found.expected(call) for call in calls)


@pytest.mark.parametrize("name", NAMES)
def test_splits_share_no_wording_and_no_parameters(name):
    family = families()[name]
    parts = [share(name, split) for split in SPLITS]
    wordings = [wording for part in parts for wording in part.wordings]
    assert sorted(wordings) == sorted(set(family.wordings))
    assert len(family.wordings) % WORDING_GROUPS == 0
    if family.parameters:
        values = [value for part in parts for value in part.values]
        assert all(part.values for part in parts)
        assert sorted(values) == sorted(tuple(parameters.items()) for parameters in family.grid())


def test_most_wrong_solutions_survive_bland_calls_and_fall_to_edge_calls():
    rng = random.Random(0)
    bland, edge, total = 0.0, 0.0, 0
    for name in rng.sample(NAMES, 60):
        found = variant(name, share(name, "train").values[0])
        for source in found.wrong:
            total += 1
            bland += sum(answer(source, call) != found.expected(call) for call in found.bland_calls) / len(
                found.bland_calls
            )
            edge += bool([call for call in found.killers(source) if call in found.edge_calls])
    assert bland / total < 0.3
    assert edge / total > 0.9


def test_a_function_is_indented_under_its_declaration():
    family = Family(
        "f", ("xs", "n"), ("q",) * 5, ("for x in xs:\n    if x > $k:\n        return x\nreturn n",), (), {"k": (3,)}
    )
    assert family.source(family.right[0], {"k": 3}) == (
        "def solve(xs, n):\n    for x in xs:\n        if x > 3:\n            return x\n    return n"
    )


def test_a_template_that_names_an_unknown_parameter_is_an_error():
    with pytest.raises(KeyError, match="k"):
        families()["divides"].source("return n % $k", {})
