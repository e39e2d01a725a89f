import json

import pytest

from codea1_cli.engine.run_setup import RunSetup
from codea1_cli.errors import UserError
from codea1_cli.problems.problem import Problem, write_problems
from codea1_cli.recipe.files import load_recipe
from codea1_cli.recipe.resources import heldout_problems
from codea1_cli.runs.run_dir import RunDir


def problem(name, **fields):
    return Problem(id=name, question="q", declaration="def f():", entry_point="f", reference="def f(): pass", **fields)


@pytest.fixture
def begun(tmp_path):
    """A run that began with five problems, two of which could not be used."""
    file = tmp_path / "train.jsonl"
    problems = [problem(name) for name in "abcde"]
    write_problems(file, problems)
    recipe = load_recipe(
        "tiny", [f"data.train={file}", f"data.heldout={file}", "train.problems_per_step=2", "code.max_prompt_tokens=10"]
    )
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    setup = RunSetup(recipe, run)
    schedule, kept = setup.fresh(
        problems, {"b": "its reference does not load"}, [5, 5, 99, 5, 5], {"code[0]": "cpu", "test[0]": "cpu"}
    )
    return setup, schedule, kept, problems, file


def test_unusable_problems_are_left_out_by_name(begun):
    setup, schedule, kept, *_ = begun
    assert list(kept) == ["a", "d", "e"]
    assert setup.skipped == {
        "its reference does not load": ["b"],
        "prompt longer than code.max_prompt_tokens=10": ["c"],
    }
    info = json.loads((setup.run.path / "run.json").read_text())
    assert info["problem_ids"] == ["a", "d", "e"]
    assert info["data"]["skipped"] == {
        "its reference does not load": 1,
        "prompt longer than code.max_prompt_tokens=10": 1,
    }
    assert info["total_steps"] == len(schedule)


def test_resuming_gives_the_same_order(begun):
    setup, schedule, kept, problems, _ = begun
    assert setup.resume(problems, ["code[0]", "test[0]"]) == (schedule, kept)


def test_a_changed_file_or_another_number_of_ranks_is_refused(begun):
    setup, _, _, problems, file = begun
    with pytest.raises(UserError, match=r"began with the ranks code\[0\], test\[0\]"):
        setup.resume(problems, ["code[0]", "code[1]", "test[0]", "test[1]"])
    write_problems(file, problems[:4])
    with pytest.raises(UserError, match="has changed since"):
        setup.resume(problems, ["code[0]", "test[0]"])


def test_nothing_left_names_every_reason(tmp_path):
    file = tmp_path / "train.jsonl"
    write_problems(file, [problem("a")])
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    setup = RunSetup(load_recipe("tiny", [f"data.train={file}"]), run)
    with pytest.raises(UserError, match=r"no problem of .* can be used: 1 its reference does not load"):
        setup.fresh([problem("a")], {"a": "its reference does not load"}, [5], {})
    assert not (run.path / "run.json").exists()


def test_held_out_problems_without_tests_are_refused(tmp_path):
    file = tmp_path / "heldout.jsonl"
    write_problems(file, [problem("a")])
    with pytest.raises(UserError, match=r"no problem of .* has tests"):
        heldout_problems(load_recipe("tiny", [f"data.heldout={file}"]))


def test_a_step_follows_the_problems_that_can_be_used(tmp_path):
    """Twelve a step are asked for, five are there, three can be used; the run keeps what it settled on."""
    file = tmp_path / "train.jsonl"
    known = problem("a", tests=["assert f([1, 2]) == 1"])
    strange = [problem(name, tests=["assert f(0.5) == 1", "assert f(['a'], k=2) == 1"]) for name in "bcde"]
    write_problems(file, [known, *strange])
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    setup = RunSetup(load_recipe("tiny", [f"data.train={file}", "data.heldout=null", "code.max_prompt_tokens=10"]), run)
    devices = {"code[0]": "cpu", "test[0]": "cpu"}
    schedule, kept = setup.fresh([known, *strange], {"b": "x", "c": "x"}, [5] * 5, devices)
    assert {len(step) for step in schedule.steps} == {3}
    assert len(schedule) == 26
    assert setup.notes == [
        "3 problems per step, where the recipe asks for 12: there are 3",
        "the embedded model has seen integers, words, lists of integers, dicts of integers by words; "
        "2 of 3 problems take other arguments (float, list[str]), at which it can only guess: d, e",
    ]
    assert run.recipe().train.problems_per_step == 3
    assert RunSetup(run.recipe(), run).resume([known, *strange], list(devices)) == (schedule, kept)
