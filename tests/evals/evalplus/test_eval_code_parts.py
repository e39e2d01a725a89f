"""Sample files, figures, sanitising, prompts and the hub's rows."""

import json

import pytest

from codea1_cli.errors import UserError
from codea1_cli.evals.benchmark import ReferenceReport, Scored, ScoreOptions, Status
from codea1_cli.evals.evalplus.tasks import prompt_ids, release_row, stops
from codea1_cli.evals.registry import open_benchmark
from codea1_cli.evals.results import read_result
from codea1_cli.evals.samples import SampleFile, read_samples
from codea1_cli.evals.scoring import score_texts
from codea1_cli.evals.statistics import figures, flat, task_rows

P, F, T, U = Status.PASS, Status.FAIL, Status.TIMEOUT, Status.UNSCORED


def scored(task, *pairs):
    return [Scored(task, i, {"base": base, "plus": plus}) for i, (base, plus) in enumerate(pairs)]


def test_figures():
    rows = task_rows(
        [*scored("a", (P, P), (P, F), (F, P), (T, F)), *scored("b", (P, P), (P, P), (P, P), (P, P))], ("base", "plus")
    )
    assert rows["a"] == {"n": 4, "unscored": 0, "not_run": 0, "timeouts": 1, "base": 2, "plus": 1}  # plus needs base
    told = figures(rows, ("base", "plus"), ReferenceReport(2, {"a": "why"}))
    assert told["plus"]["pass@1"] == (0.25 + 1) / 2
    assert told["plus"]["avg@4"] == (0.25 + 1) / 2
    assert told["plus"]["pass@2"] == (0.5 + 1) / 2
    assert told["plus"]["pass@4"] == 1.0
    assert told["plus"]["valid"] == {"tasks": 1, "pass@1": 1.0}
    assert flat(told)["base/pass@1"] == 0.75


def test_what_was_not_scored_is_in_no_figure():
    rows = task_rows([*scored("a", (U, U), (P, P)), *scored("b", (Status.NOT_RUN, Status.NOT_RUN))], ("base", "plus"))
    assert (rows["a"]["n"], rows["a"]["unscored"], rows["b"]["n"], rows["b"]["not_run"]) == (1, 1, 0, 1)
    assert figures(rows, ("plus",))["plus"]["tasks"] == 1
    assert figures({}, ("plus",)) == {"plus": {"tasks": 0}}


@pytest.fixture
def benchmark(release):
    made = open_benchmark("humaneval")
    made.load(release)
    yield made
    made.close()


def test_sample_files_of_all_kinds(benchmark, release, tmp_path):
    tasks = benchmark.load(release)
    folder = tmp_path / "folder" / "HumanEval_0"
    folder.mkdir(parents=True)
    for number in (10, 2):
        (folder / f"{number}.py").write_text(f"# {number}")
    assert [s.solution for s in read_samples(tmp_path / "folder", benchmark, tasks)] == ["# 2", "# 10"]
    file = tmp_path / "s.jsonl"
    for text, said in (
        ("[1]\n", "a list, not an object"), ("{\n", "not JSON"), ('{"task_id": "HumanEval/0"}\n', "neither a solution"),
        ('{"task_id": "Other/0", "solution": ""}\n', "holds no sample"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(UserError, match=said):
            read_samples(file, benchmark, tasks)


def test_rows_that_are_no_samples_are_named(benchmark, release, tmp_path):
    tasks = benchmark.load(release)
    known = json.dumps({"task_id": tasks[0].id, "solution": "x = 1"})
    file = tmp_path / "samples.jsonl"
    for line, says in (("{}", "samples.jsonl:2 has no task_id"), ("[" * 100_000, "samples.jsonl:2: not JSON"),
                       ('{"task_id": 0, "solution": ""}', "samples.jsonl:2 has no task_id")):  # fmt: skip
        file.write_text(f"{known}\n{line}\n")
        with pytest.raises(UserError, match=says):
            read_samples(file, benchmark, tasks)
    file.write_text("\ufeff" + known + '\n{"task_id": "Other/9", "solution": ""}\n', encoding="utf-8")
    strangers: list[str] = []
    assert len(read_samples(file, benchmark, tasks, strangers)) == 1
    assert strangers == [f"{file}:2 Other/9"]


def test_only_whole_samples_are_kept_after_a_crash(benchmark, release, tmp_path):
    task = benchmark.load(release)[0]
    file = SampleFile(tmp_path / "s.jsonl", {"n": 2})
    file.append([benchmark.sample(task, text, i, "evalplus") for i, text in enumerate(("x = 1", "y = 2"))])
    with open(tmp_path / "s.raw.jsonl", "a") as raw:
        raw.write(json.dumps({"task_id": task.id, "solution": "alone"}) + "\n")
    again = SampleFile(tmp_path / "s.jsonl", {"n": 2})
    assert again.counts[task.id] == 2
    assert len((tmp_path / "s.raw.jsonl").read_text().splitlines()) == 2
    with pytest.raises(UserError, match="n 2 there, 3 now"):
        SampleFile(tmp_path / "s.jsonl", {"n": 3})


def test_texts_are_scored_within_training(benchmark, release, tmp_path):
    tasks = benchmark.load(release)
    texts = {
        "HumanEval/0": ["```python\ndef add(a, b):\n    return a + b\n```", "no"],
        "HumanEval/2": ["```python\ndef words(text):\n    return text.split()\n```"] * 2,
    }
    options = ScoreOptions(workers=1, cache=tmp_path)
    metrics, rows = score_texts(benchmark, texts, tasks, style="codea1", options=options)
    assert metrics["plus/pass@1"] == 0.75
    assert metrics["plus/pass@2"] == 1.0
    assert metrics["references"] == 1.0
    assert rows["HumanEval/0"]["plus"] == 1
    kept = list(tmp_path.glob("expected-*.json"))
    assert len(kept) == 1
    assert set(json.loads(kept[0].read_text())["tasks"]) == {"HumanEval/0", "HumanEval/2"}


def test_results_in_evalplus_own_shape(tmp_path):
    row = {"task_id": "HumanEval/0", "solution": "x", "base_status": "pass", "plus_status": "fail"}
    row |= {"base_fail_tests": [], "plus_fail_tests": []}
    result = {"date": "2026-01-01 00:00", "hash": "h", "eval": {"HumanEval/0": [row]}}
    (tmp_path / "r_eval_results.json").write_text(json.dumps(result))
    assert read_result(tmp_path / "r_eval_results.json")["tasks"] == {"HumanEval/0": {"n": 1, "base": 1, "plus": 0}}


def test_prompts(benchmark, release):
    from codea1_cli.models.loading import load_tokenizer

    task = benchmark.load(release)[0].data
    tokenizer = load_tokenizer("builtin:tiny")
    text = tokenizer.decode(prompt_ids(task, tokenizer, "evalplus"))
    assert text.endswith("passes corresponding tests:\n```python\n")
    assert "in a markdown code block:\n```\ndef add(a: int, b: int) -> int:" in text
    assert tokenizer.decode(prompt_ids(task, tokenizer, "completion")).strip() == task.prompt.strip()
    trained = tokenizer.decode(prompt_ids(task, tokenizer, "codea1"))
    assert "Add two numbers." in trained
    assert "def add(a: int, b: int) -> int:" in trained
    assert "\n```\n" in stops("humaneval", "evalplus")
    assert '\n"""' in stops("mbpp", "completion")
    assert stops("mbpp", "codea1") == ()


def test_rows_of_the_hub():
    test = (
        "import numpy as np\ndef check(candidate):\n    inputs = [[1, 2], [(3,), {4}], ['a', -1.5]]\n    results = [3, 4, 5]\n"
        "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, 1e-06)\n"
    )
    row = {
        "task_id": 11, "prompt": "Write it.", "code": "def f(a, b):\n    return a", "test_list": ["assert f(1, 2) == 1"],
        "test": test,
    }  # fmt: skip
    made = release_row("mbpp", row)
    assert (made["task_id"], made["entry_point"], made["atol"]) == ("Mbpp/11", "f", 1e-06)
    assert (made["base_input"], made["plus_input"]) == ([[1, 2]], [[(3,), {4}], ["a", -1.5]])
    row = {"task_id": "HumanEval/162", "prompt": "p", "canonical_solution": "c", "entry_point": "g", "test": test}
    assert len(release_row("humaneval", row)["base_input"]) == 3
    with pytest.raises(UserError, match="not of the known shape"):
        release_row("humaneval", {**row, "test": "inputs = load()"})


@pytest.mark.shared
def test_release_files(shared):
    for name, count in (("humaneval", 164), ("mbpp", 378)):
        tasks = open_benchmark(name).load(shared / "data" / "bench")
        assert len(tasks) == count
        assert len({task.id for task in tasks}) == count
