import json

import pytest

from codea1_cli.engine.run_setup import RunSetup
from codea1_cli.errors import UserError
from codea1_cli.problems.problem import Problem, read_problems, write_problems
from codea1_cli.recipe.files import load_recipe
from codea1_cli.recipe.resources import heldout_problems, split_notes, unread_problems
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.tiny import problems_path, unread


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


def test_problems_outside_the_solve_rate_are_left_out_and_only_what_no_row_states_is_measured(tmp_path):
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    setup = RunSetup(load_recipe("tiny", ["data.solve_rate=[0.25, 0.75]", "code.max_prompt_tokens=10"]), run)
    stated = {"a": 0.25, "b": 0.8, "c": 0, "d": "much", "e": True}
    problems = [*(problem(name, meta={"solve_rate": rate}) for name, rate in stated.items()), *map(problem, "fghi")]
    measured = {"d": 0.75, "e": 1.0, "f": 0.125, "g": None}

    def measure(missing):
        assert [one.id for one in missing] == ["d", "e", "f", "g"]  # h is too long, i cannot be used anyway
        return measured

    lengths = [9, 9, 9, 9, 9, 9, 9, 11, 9]
    assert setup.outside_solve_rate(problems, {"i": "its reference does not load"}, lengths, measure) == {
        "b": "solve rate above 0.75",
        "c": "solve rate below 0.25",
        "e": "solve rate above 0.75",
        "f": "solve rate below 0.25",
        "g": "no solve rate: its own tests judge no solution",
    }
    kept = json.loads((run.path / "solve_rates.json").read_text())
    assert kept == {"a": 0.25, "b": 0.8, "c": 0.0, **measured}


def test_a_range_that_falls_is_refused():
    with pytest.raises(UserError, match=r"data\.solve_rate: \[least, most\], and 0\.9 is more than 0\.1"):
        load_recipe("tiny", ["data.solve_rate=[0.9, 0.1]"])


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


def test_suites_need_wrong_programs_to_be_measured_on(tmp_path):
    """Those of the problems, of another run, or of the first policy, which are found before the first step."""
    write_problems(tmp_path / "held.jsonl", [problem("a", tests=["assert f() == 1"])])
    wish = ["eval.before=false", f"data.heldout={tmp_path / 'held.jsonl'}"]
    with pytest.raises(UserError, match="leaves no wrong programs"):
        heldout_problems(load_recipe("0.5b", wish))
    assert heldout_problems(load_recipe("0.5b", [*wish, "method=golden-tests"]))
    wish.append(f"eval.targets={tmp_path}")
    with pytest.raises(UserError, match=r"there is no targets\.json or near_miss\.json in"):
        heldout_problems(load_recipe("0.5b", wish))
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / "targets.json").write_text("[]")
    assert heldout_problems(load_recipe("0.5b", wish))


def test_a_step_follows_the_problems_that_can_be_used(tmp_path):
    """Twelve a step are asked for, five are there, three can be used; the run keeps what it settled on."""
    file = tmp_path / "train.jsonl"
    problems = [problem(name) for name in "abcde"]
    write_problems(file, problems)
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    setup = RunSetup(load_recipe("tiny", [f"data.train={file}", "data.heldout=null", "code.max_prompt_tokens=10"]), run)
    devices = {"code[0]": "cpu", "test[0]": "cpu"}
    schedule, kept = setup.fresh(problems, {"b": "x", "c": "x"}, [5] * 5, devices)
    assert {len(step) for step in schedule.steps} == {3}
    assert len(schedule) == 26
    assert setup.notes == ["3 problems per step, where the recipe asks for 12: there are 3"]
    assert run.recipe().train.problems_per_step == 3
    assert RunSetup(run.recipe(), run).resume(problems, list(devices)) == (schedule, kept)


def test_what_the_embedded_model_cannot_read_is_left_out_by_name():
    """Its own problems are all read; of others those that take what the functions of its corpus take."""
    recipe = load_recipe("tiny")
    for split in ("train", "heldout"):
        assert not unread_problems(recipe, read_problems(problems_path(split)))
    read = ["f(1)", "f(1, -2)", "f('a b')", "f([])", "f([1, 2], [])", "f({'a': 1})"]
    strange = {"f(0.5)": "(float)", "f(True)": "(bool)", "f([1], 2)": "(list[int], int)", "f(['a'])": "(list[str])",
               "f(n=1)": "(n=int)", "f()": "()", "f({1: 2})": "(dict[int: int])", "f(None)": "(NoneType)"}  # fmt: skip
    problems = [problem(call, tests=[f"assert {call} == 1"]) for call in (*read, *strange)]
    untested = problem("without a test").model_copy(update={"declaration": "def f(n: int):"})
    left_out = unread_problems(recipe, [*problems, untested])
    assert left_out == {call: f"the embedded model knows no function of {kinds}" for call, kinds in strange.items()}
    assert not unread_problems(load_recipe("tiny", ["model=me/other"]), problems)
    with pytest.raises(UserError, match=r"can read no problem of .*\(bool\), \(float\)"):
        unread_problems(recipe, problems[6:8])
    told, split = split_notes(recipe, 8, problems[5:8])
    assert told.startswith("2 of 3 held-out problems will stay unsolved: ")
    assert split.startswith("8 problems to train on, 3 held out: too few")
    assert split_notes(recipe, 8, problems[:6])[0].startswith("8 problems")


@pytest.mark.parametrize(
    ("declaration", "kind"),
    [
        ("def f(value: int, low: int, high: int) -> int:", "(int, int, int)"),
        ("def f(xs: List[float]) -> float:", "(list[float])"),
        ("def f(xs: list[int], *, k: int = 2) -> int:", "(list[int], int)"),
        ("def f(a: int, b: int) -> int:", ""),
        ("def f(counts: Dict[str, int]) -> str:", ""),
        ("def f(a, b: int):", ""),
        ("def f(*a: int):", ""),
        ("def f(:", ""),
    ],
)
def test_without_tests_the_annotations_say_what_the_embedded_model_cannot_read(declaration, kind):
    assert unread([], declaration) == kind
