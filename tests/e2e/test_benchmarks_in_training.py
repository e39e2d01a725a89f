"""A run that measures itself on a benchmark between its steps, and marks its best checkpoint by that."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import SMALL, Cli, comparable

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]

_SOLUTIONS = {
    "add": ("a: int, b: int", "Add two numbers.", "return a + b", [[1, 2], [0, 0]], [[5, -5]]),
    "halves": ("xs: list", "Half of each number.", "return [x / 2 for x in xs]", [[[1, 2]]], [[[3, 5]]]),
    "words": ("text: str", "The words of a text.", "return text.split()", [["a b"]], [["one  two"]]),
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three tasks in the shape of EvalPlus' release file and two functions to write tests for."""
    tasks = [
        {
            "task_id": f"HumanEval/{number}",
            "prompt": f'def {name}({parameters}):\n    """{about}"""\n',
            "entry_point": name,
            "canonical_solution": f"    {body}\n",
            "base_input": base,
            "plus_input": plus,
            "atol": 0,
        }
        for number, (name, (parameters, about, body, base, plus)) in enumerate(_SOLUTIONS.items())
    ]
    folder = tmp_path_factory.mktemp("release")
    text = "".join(json.dumps(task) + "\n" for task in tasks)
    (folder / "humaneval_plus.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    functions = {
        "total": "def total(a, b):\n    return a + b\n",
        "sign": "def sign(x):\n    return 1 if x > 0 else -1\n",
    }
    rows = [
        {"task_id": str(number), "func_name": name, "code": source, "test_list": []}
        for number, (name, source) in enumerate(functions.items())
    ]
    (folder / "ult_lite.json").write_text(json.dumps(rows))
    return folder


@pytest.mark.slow
def test_a_run_measures_itself_and_marks_its_best(cli: Cli, whole: str, release: Path, tmp_path: Path) -> None:
    short = (*SMALL, "checkpoint.keep=1", "checkpoint.every=100")
    wish = (
        "eval.benchmarks=[humaneval,ult]",
        f"eval.benchmark_data={release}",
        "eval.benchmark_every=1",
        "eval.benchmark_n=2",
        "eval.benchmark_limit=2",
        "eval.best=humaneval/plus/pass@1",
    )
    cache = {"CODEA1_CACHE": str(tmp_path / "cache")}
    done = cli("train", "--recipe", "tiny", "--run", "measured", *short, *wish, "--max-steps", "2", "--json", env=cache)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["state"], told["step"], told["last"], told["total"]) == ("stopped", 2, 2, 6)
    assert "step 1/2" in done.stderr
    assert "stopped and saved at step 2 of 6" in done.stderr
    assert "stopped" in cli("runs", "list").stdout
    run = cli.path("measured")
    lines = cli.metrics("measured")
    measured = _of(lines, "humaneval")
    assert sorted(measured) == [0, 1, 2]
    tests = _of(lines, "ult")
    assert sorted(tests) == [0, 1, 2]
    for told in tests.values():
        assert (told["tasks"], told["n"], told["functions"], told["unscored"]) == (2, 1, 2, 0)
        assert 0.0 <= told["mutation"] <= 100.0
    for told in measured.values():
        assert (told["tasks"], told["n"], told["prompts_too_long"], told["unscored"]) == (2, 2, 0, 0)
        assert told["references"] == 1.0
        assert 0.0 <= told["plus/pass@1"] <= told["base/pass@1"] <= 1.0
    assert done.stderr.count("humaneval at step") == done.stderr.count("ult at step") == 3
    assert "could not be scored" not in done.stderr
    # Every evaluation saved; the best and the newest are what keep=1 leaves.
    best = json.loads((run / "best.json").read_text())
    first = max((1, 2), key=lambda step: (measured[step]["plus/pass@1"], -step))
    assert best == {"step": first, "figure": "humaneval/plus/pass@1", "value": measured[first]["plus/pass@1"]}
    assert os.readlink(run / "checkpoints" / "best") == f"step-{first:06d}"
    assert (run / "checkpoints" / "best" / "code" / "config.json").is_file()
    kept = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    assert kept == sorted({f"step-{first:06d}", "step-000002"})
    assert not list((run / "evaluation").glob("*-texts.json"))
    rows = json.loads((run / "evaluation" / "step-000002-humaneval.json").read_text())
    assert {name: row["n"] for name, row in rows.items()} == {"HumanEval/0": 2, "HumanEval/1": 2}

    # The last line is lost, its texts are not: resumed, the run scores them, goes on, and keeps its mark.
    _unscore(run, 2)
    done = cli("train", "--run", "measured", "--resume", "--max-steps", "3", env=cache)
    assert done.returncode == 0, done.stderr
    again = _of(cli.metrics("measured"), "humaneval")
    assert sorted(again) == [0, 1, 2, 3]
    assert again[2]["plus/pass@1"] == 0.5
    expected = max((1, 2, 3), key=lambda step: (again[step]["plus/pass@1"], -step))
    assert json.loads((run / "best.json").read_text())["step"] == expected
    shown = json.loads(cli("runs", "show", "measured", "--json").stdout)
    assert shown["best"] == json.loads((run / "best.json").read_text())
    assert f"step {shown['best']['step']}, humaneval/plus/pass@1" in cli("runs", "show", "measured").stdout

    # A run that is not measured trains as the one that was.
    steps = [line for line in cli.metrics("measured") if "eval" not in line]
    assert comparable(steps) == comparable(cli.metrics(whole)[:3])


def _of(lines: list[dict[str, Any]], name: str) -> dict[int, dict[str, Any]]:
    """What the lines of one set say, by step."""
    return {line["step"]: line["eval"] for line in lines if line.get("eval", {}).get("set") == name}


def _unscore(run: Path, step: int) -> None:
    """What a kill while a step is scored leaves: the texts, and no line."""
    file = run / "metrics.jsonl"
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    file.write_text(
        "".join(json.dumps(x) + "\n" for x in lines if x["step"] != step or x.get("eval", {}).get("set") != "humaneval")
    )
    texts = {"HumanEval/0": ["```python\ndef add(a, b):\n    return a + b\n```"] * 2, "HumanEval/1": ["", ""]}
    file = run / "evaluation" / f"step-{step:06d}-humaneval-texts.json"
    file.write_text(json.dumps({"prompts_too_long": 0, "texts": texts}))


def test_data_that_is_not_there_ends_the_run_before_anything_starts(cli: Cli, tmp_path: Path) -> None:
    wish = ("eval.benchmarks=[humaneval]", f"eval.benchmark_data={tmp_path / 'nothing'}")
    done = cli("train", "--recipe", "tiny", "--run", "without", *SMALL, *wish)
    assert done.returncode == 2, done.stderr
    assert "nothing" in done.stderr
    assert "Traceback" not in done.stderr
    assert not cli.path("without").exists(), "nothing was started"
