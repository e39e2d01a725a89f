"""docs/python.md does what it says, and importing the package costs nothing."""

import doctest
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import codea1_cli
from codea1_cli import api, judge, mutation_score, rollouts
from codea1_cli.errors import UserError
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
