"""docs/python.md does what it says, and importing the package costs nothing."""

import doctest
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import codea1_cli
from codea1_cli import SandboxOptions, api, judge, mutation_score, rollouts
from codea1_cli.errors import UserError
from codea1_cli.judging.judge_rows import row_of
from codea1_cli.tiny import model_path, problems_path
from tests.cli.fake_run import make_run

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
RIGHT = "def f(x):\n    return x"


def plain_blocks() -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return "\n\n".join(block for block in blocks if not block.startswith(">>>"))


def test_the_examples_of_the_page_give_what_it_shows(tmp_path, monkeypatch):
    make_run(tmp_path)
    monkeypatch.setenv("CODEA1_RUNS", str(tmp_path))
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 12
    assert found.failed == 0


def test_the_names_are_those_of_the_module_and_of_the_page():
    assert sorted([*api.__all__, "__version__"]) == sorted(codea1_cli.__all__)
    assert all(getattr(codea1_cli, name) is getattr(api, name) for name in api.__all__)
    text = PAGE.read_text()
    assert [name for name in api.__all__ if name not in text and name != "BookRow" and name != "MutationScore"] == []
    with pytest.raises(ImportError):
        from codea1_cli import nothing_of_the_kind  # noqa: F401


def test_neither_the_package_nor_its_functions_import_what_is_heavy():
    program = (
        "import sys, codea1_cli; early = {name for name in sys.modules if name.startswith('codea1_cli.')};"
        "from codea1_cli import judge, mutation_score;"
        "heavy = {'torch', 'transformers', 'trl', 'ray', 'datasets', 'pyarrow', 'vllm'} & set(sys.modules);"
        "print(sorted(early), sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


def test_a_script_that_judges_ends_by_itself():
    program = (
        "from codea1_cli import judge\n"
        f"row = {{'entry_point': 'f', 'reference': {RIGHT!r}, 'candidate': {RIGHT!r}, 'tests': ['assert f(1) == 1']}}\n"
        "print(judge([row])[0].status)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_a_failure_of_the_sandbox_is_no_number():
    class Broken:
        workers, layers = 1, {}

        def run(self, program, entry_point, calls, limits, hash_seed=0):
            from codea1_cli.sandbox.base import ProgramRun

            return ProgramRun.unscored(len(calls), "broken")

    row = {"entry_point": "f", "reference": RIGHT, "candidate": RIGHT, "tests": ["assert f(1) == 1"]}
    [one] = judge([row], sandbox=Broken())
    assert (one.status, one.share, one.exposed) == ("unscored", None, None)
    assert mutation_score(RIGHT, "f", ["assert f(1) == 1"], sandbox=Broken()) is None


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(UserError, match="row 1: reference is missing"):
        judge([{"entry_point": "f", "reference": "", "candidate": "", "tests": []}, {}])
    with pytest.raises(UserError, match="defines no function 'g'"):
        mutation_score(RIGHT, "g", [])
    make_run(tmp_path)
    with pytest.raises(UserError, match="no rollouts of step 77"):
        rollouts(step=77, runs=tmp_path)
    assert list(rollouts(runs=str(tmp_path))) == list(rollouts(tmp_path / "first")), "a path is a text or a Path"


@pytest.mark.parametrize(
    ("key", "meant"),
    [("refrence", "reference"), ("canditate", "candidate"), ("suit", "suite"), ("test", "tests"), ("tolerence", "tolerance"),
     ("time_limit", "time_limit_s"), ("entrypoint", "entry_point"), ("ID", "id")],
)  # fmt: skip
def test_a_misspelt_field_of_a_row_is_named(key, meant, tmp_path):
    """In a file too, as long as what it stands for is not there."""
    row = {"id": "a", "entry_point": "f", "reference": RIGHT, "candidate": RIGHT}
    row |= {"tests": ["assert f(1) == 1"]} if meant not in ("tests", "suite") else {}
    row = {**{name: value for name, value in row.items() if name != meant}, key: "x"}
    for wrong in (lambda: row_of(row, "row 0"), lambda: judge([row]) if meant != "id" else row_of(row, "row 0")):
        with pytest.raises(UserError, match=f"row 0: no field of a row is called {key}") as told:
            wrong()
        assert told.value.hint == f"did you mean {meant}?"


def test_fields_of_the_users_own_are_left_alone():
    [one] = judge([{**ROW, "meta": {"split": "a"}, "test": 1, "suites": [], "difficulty": "hard", "id": "mine"}])
    assert (one.id, one.status) == ("mine", "ok")


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("def f(x:\n", "SyntaxError"), ("def g(x):\n    return x\n", "does not define f"), ("1 / 0\n", "ZeroDivisionError"),
        ("import os\nos._exit(1)\n", "crashed: while loading"),
    ],
)  # fmt: skip
def test_a_reference_that_does_not_load_is_told(reference, why):
    [one] = judge([{**ROW, "reference": reference}])
    assert (one.status, one.load_detail.startswith("the reference does not load: ")) == ("no_valid_test", True)
    assert why in one.load_detail
    [one] = judge([{**ROW, "reference": "def f(x):\n    return 1 / 0\n"}])
    assert (one.status, one.load_detail) == ("no_valid_test", None)


ROW = {"entry_point": "f", "reference": RIGHT, "candidate": RIGHT, "tests": ["assert f(1) == 1"]}
MAPPINGS, TEXTS = "where a list, each part a mapping, is wanted", "where a list, each part a text, is wanted"


@pytest.mark.parametrize(
    ("name", "arguments", "named", "said"),
    [
        ("judge", [None], {}, f"judge: rows is None, {MAPPINGS}"),
        ("judge", [5], {}, f"judge: rows is 5, {MAPPINGS}"),
        ("judge", [ROW], {}, MAPPINGS),
        ("judge", [[ROW, 5]], {}, "row 1 is 5, where a mapping is wanted"),
        ("judge", [[]], {"time_limit_s": 0}, "judge: time_limit_s is 0"),
        ("judge", [[]], {"time_limit_s": "4"}, "judge: time_limit_s is '4', where a number is wanted"),
        ("judge", [[]], {"memory_mb": True}, "judge: memory_mb is True, where a whole number is wanted"),
        ("judge", [[]], {"tolerance": math.nan}, "judge: tolerance is no number of at least 0"),
        ("judge", [[]], {"sandbox": "local"}, "judge: sandbox is 'local', where a sandbox of make_sandbox or None"),
        ("pass_at_k", [10, 20, 1], {}, "20 passes among 10 samples: c is from 0 to n"),
        ("pass_at_k", [10, 3, 11], {}, "pass@11 of 10 samples: k is from 1 to n"),
        ("pass_at_k", [10, 3, 0], {}, "pass@0 of 10 samples"),
        ("pass_at_k", [10, 3.0, 1], {}, "pass_at_k: c is 3.0, where a whole number is wanted"),
        ("mutation_score", [RIGHT, "f", "assert f(1) == 1"], {}, f"tests is 'assert f(1) == 1', {TEXTS}"),
        ("mutation_score", [RIGHT, "f", [5]], {}, TEXTS),
        ("mutation_score", [None, "f", []], {}, "mutation_score: source is None, where a text is wanted"),
        ("extract_code", [None, "f"], {}, "extract_code: text is None, where a text is wanted"),
        ("parse_suite", ["assert f(1) == 1", None], {}, "parse_suite: entry_point is None, where a text is wanted"),
        ("read_problems", [5], {}, "read_problems: path is 5, where a path or a text is wanted"),
        ("mistake_book", [5], {}, "mistake_book: run is 5, where a text or a path or None is wanted"),
        ("rollouts", [], {"step": "1"}, "rollouts: step is '1', where a whole number or None is wanted"),
        ("make_sandbox", ["local"], {}, "make_sandbox: options is 'local', where a SandboxOptions is wanted"),
        ("make_sandbox", [SandboxOptions(require="all")], {}, f"SandboxOptions: require is 'all', {TEXTS}"),
        ("SandboxOptions", [], {"workers": 0}, "a sandbox of 0 workers runs nothing"),
        ("SandboxOptions", [5], {}, "no sandbox is called '5'"),
    ],
)
def test_an_argument_of_another_kind_is_named_with_what_is_wanted(name, arguments, named, said):
    with pytest.raises(UserError) as told:
        getattr(codea1_cli, name)(*arguments, **named)
    assert said in str(told.value)


def test_what_is_as_good_as_a_list_or_a_number_is_taken():
    assert [one.status for one in judge(iter([ROW, ROW]), time_limit_s=np.float32(4))] == ["ok", "ok"]
    for tests in (("assert f(1) == 1",), np.array(["assert f(1) == 1"])):
        assert mutation_score(RIGHT, "f", tests).outcomes == ["passed"]
    assert codea1_cli.pass_at_k(np.int64(4), c=2, k=1) == 0.5
    with pytest.raises(TypeError, match=r"judge\(\) got an unexpected keyword"):
        judge([], limit=3)


@pytest.mark.slow
def test_trl_trains_on_the_reward_of_the_page(tmp_path):
    names = {}
    exec(plain_blocks(), names)
    problem = {
        "entry_point": ["f"] * 2,
        "reference": [RIGHT] * 2,
        "tests": [["assert f(1) == 1", "assert f(0) == 0"]] * 2,
    }
    replies = [[{"content": f"```python\n{RIGHT}{more}\n```"}] for more in ("", " or 1")]
    assert names["reward"](replies, **problem) == [1.0, 0.5]
    trainer = names["trainer"](
        str(model_path()),
        problems_path("train"),
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=24,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer.train()
    [logged] = [line for line in trainer.state.log_history if "reward" in line]
    assert 0 <= logged["reward"] <= 1
    assert math.isfinite(logged["grad_norm"])
