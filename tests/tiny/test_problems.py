"""The embedded problems: right, telling, unseen where they must be, and regenerated to the byte."""

from pathlib import Path

import pytest

from codea1_cli.errors import UserError
from codea1_cli.problems.problem import Problem, read_problems, write_problems
from codea1_cli.tiny import problems_path
from world.problems import SIZES, TESTS, problems
from world.variants import families

SHIPPED = ["train", "heldout"]


def passes(program: str, tests: list[str]) -> bool:
    """Run sources of this repository's own generator, here."""
    namespace: dict = {}
    exec(program, namespace)
    try:
        for test in tests:
            exec(test, namespace)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("split", SHIPPED)
def test_shipped_files_are_what_the_generator_writes(split, tmp_path):
    write_problems(tmp_path / "again.jsonl", problems(split))
    assert (tmp_path / "again.jsonl").read_bytes() == problems_path(split).read_bytes()


@pytest.mark.parametrize("split", ["train", "dev", "heldout"])
def test_references_pass_and_every_wrong_solution_fails(split):
    rows = problems(split)
    assert len(rows) == SIZES[split]
    for row in rows:
        assert len(set(row.tests)) == len(row.tests) >= TESTS - 4 >= 6
        assert passes(row.reference, row.tests), row.id
        assert len(row.meta["wrong"]) >= 3
        for wrong in row.meta["wrong"]:
            assert not passes(wrong, row.tests), (row.id, wrong)


def test_there_are_enough_problems():
    assert len(read_problems(problems_path("train"))) + len(read_problems(problems_path("heldout"))) >= 150
    assert len(read_problems(problems_path("heldout"))) >= 60


def seen_in(rows: list[Problem]) -> tuple[set[str], set[str]]:
    questions = {row.question for row in rows}
    parameters = {f"{row.meta['family']} {row.meta['parameters']}" for row in rows if row.meta["parameters"]}
    return questions, parameters


def test_splits_share_no_question_and_no_parameters_of_a_family():
    questions, parameters = zip(*(seen_in(problems(split)) for split in ("train", "dev", "heldout")), strict=True)
    for parts in (questions, parameters):
        assert sum(map(len, parts)) == len(set.union(*parts))


def test_a_split_larger_than_the_families_goes_round_again():
    rows = problems("train", size=len(families()) + 10)
    assert len(rows) == len(families()) + 10
    assert {row.meta["family"] for row in rows} == set(families())


def test_an_unknown_split_is_a_user_error():
    with pytest.raises(UserError, match="dev"):
        problems_path("dev")


def test_generation_does_not_depend_on_the_hash_seed(tmp_path):
    import os
    import subprocess
    import sys

    script = Path(__file__).parents[2] / "scripts" / "tiny" / "make_problems.py"
    written = []
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.jsonl"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, script, "--split", "dev", "--out", out], env=environment, check=True)
        written.append(out.read_bytes())
    assert written[0] == written[1]
