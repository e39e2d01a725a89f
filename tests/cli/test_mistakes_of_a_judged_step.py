"""`codea1 mistakes` on what the engine itself writes: a real judge, a real book, real rollout files."""

import pytest

from codea1_cli.cli import mistakes
from codea1_cli.engine.run_writer import RunWriter
from codea1_cli.problems.problem import write_problems
from codea1_cli.recipe.files import recipe_text
from codea1_cli.recipe.resources import open_step_judge
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir
from tests.cli.fake_run import PROBLEMS, run_pytest

SUITE = """```python
assert ratio(1, 2) == 0.5
assert ratio(1, 0) == float("nan")
assert ratio(3, 'x') == 1
assert ratio(1, 3) == 0.25
```"""
CODE = {
    1: [
        "def ratio(a, b):\n    if b:\n        return a // b\n    return 0",
        "def ratio(a, b):\n    return a / b",
        "def ratio(a, b) return 1",
    ],
    2: ["def ratio(a, b):\n    return a / b", "import math\ndef ratio(a, b):\n    return a / b if b else math.nan"],
}
RATIO = "basic/ratio"


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run of two judged steps on one problem."""
    root = tmp_path_factory.mktemp("runs")
    write_problems(root / "problems.jsonl", PROBLEMS)
    recipe = Recipe.model_validate({"model": "builtin:tiny", "data": {"train": str(root / "problems.jsonl")}})
    run = RunDir(root / "judged")
    run.create()
    run.recipe_file.write_text(recipe_text(recipe))
    problem = next(problem for problem in PROBLEMS if problem.id == RATIO)
    judge = open_step_judge(recipe, run.path)
    writer = RunWriter(recipe, run)
    for step, sources in CODE.items():
        candidates = judge.load_candidates(problem, [f"```python\n{source}\n```" for source in sources])
        book = writer.replayed(RATIO)
        judged = [judge.judge_suites(problem, candidate, [SUITE], book) for candidate in candidates]
        writer.score_step(step, {RATIO: judge.judge_pool(problem, judged, writer.pool(RATIO), step)})
    writer.close()
    judge.close()
    return run


def test_inspect_reads_the_engine_s_own_files(judged, call):
    data = call(mistakes.app, "inspect", RATIO, "--run", judged.path, "--replay", "--json").data
    (live,) = data["live"]
    assert (live["test"], live["count"], live["first_step"], live["last_step"]) == (
        "assert ratio(1, 0) == nan",
        2,
        1,
        2,
    )
    assert live["latest"] == {
        "step": 2,
        "candidate_index": 0,
        "verdict": "raised",
        "expected": "nan",
        "got": "ZeroDivisionError: division by zero",
        "failing": 1,
        "candidates": 2,
        "code": CODE[2][0],
    }
    assert (data["failing"]["code"], data["failing"]["lines"]) == (CODE[2][0], [2])
    (replayed,) = data["replay"]
    assert (replayed["before"], replayed["verdict"], replayed["line"]) == ("raised", "raised", 2)
    assert data["retired"] == [
        {"test": "assert ratio(1, 2) == 0.5", "peak": 1, "first_step": 1, "last_step": 2},
        {"test": "assert ratio(1, 3) == 0.3333333333333333", "peak": 1, "first_step": 1, "last_step": 2},
    ]
    assert [(one["step"], one["at"], one["suites"]) for one in data["pool"]] == [(2, 2, 2), (1, 2, 2)]
    assert [(one["breaking"], len(one["broken_by"])) for one in data["pool"]] == [(2, 2), (2, 2)]
    assert {name for one in data["pool"] for name in one["broken_by"]} <= {f"{i}.{j}" for i in (0, 1) for j in (0, 1)}
    assert data["trend"] == [{"step": 1, "tests": 3, "mistakes": 4}, {"step": 2, "tests": 1, "mistakes": 2}]


def test_the_exported_tests_pass_on_the_reference(judged, call, tmp_path):
    done = call(mistakes.app, "export", "--run", judged.path, "--to", tmp_path / "test_book.py", "--json")
    assert (done.code, done.data["skipped"]) == (0, [])
    passed = run_pytest(tmp_path / "test_book.py")
    assert passed.returncode == 0, passed.stdout
    assert "1 passed" in passed.stdout
