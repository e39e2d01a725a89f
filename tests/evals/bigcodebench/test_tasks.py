"""Tasks, prompts and sample files in the published forms."""

import gzip
import json

import pytest

from codea1_cli.errors import UserError
from codea1_cli.evals.benchmark import Sample
from codea1_cli.evals.bigcodebench import BigCodeBenchmark
from codea1_cli.evals.bigcodebench.tasks import (
    load_tasks,
    methods_of,
    prompt_text,
    read_task,
    user_turn,
)
from codea1_cli.evals.evalplus.tasks import INSTRUCTION, RESPONSE
from codea1_cli.evals.samples import SampleFile, raw_file, read_samples
from tests.evals.bigcodebench.cases import row


def test_a_file_is_read_plain_and_zipped_with_equal_digests(task_file, tmp_path):
    plain = load_tasks(task_file)
    zipped = tmp_path / "bigcodebench-v0.1.4.jsonl.gz"
    zipped.write_bytes(gzip.compress(task_file.read_bytes()))
    assert [t.task_id for t in plain.tasks] == [f"BigCodeBench/{n}" for n in range(4)]
    assert load_tasks(tmp_path).digest == load_tasks(zipped).digest == plain.digest
    assert plain.tasks[0].names == ("test_error", "test_negative", "test_value")
    assert plain.tasks[0].libs == ("os",)


def test_hard_is_the_marked_part(task_file):
    hard = load_tasks(task_file, "hard")
    assert [t.task_id for t in hard.tasks] == ["BigCodeBench/1"]
    assert hard.digest != load_tasks(task_file).digest


@pytest.mark.parametrize(
    ("line", "says"),
    [("{", ":1: not JSON"), ('{"task_id": "x"}', ":1: no task of BigCodeBench: it lacks"), ("", "holds no task")],
)
def test_bad_data_is_named(tmp_path, line, says):
    file = tmp_path / "tasks.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(UserError, match=says):
        load_tasks(file)


def test_absent_data_and_unknown_subsets_are_errors(tmp_path):
    with pytest.raises(UserError, match="no BigCodeBench below"):
        load_tasks(tmp_path / "absent.jsonl")
    with pytest.raises(UserError, match="no subset"):
        load_tasks(None, "medium")


@pytest.mark.parametrize("tests", ["def f(:", "x = 1", "class Other: pass"])
def test_tests_without_the_class_are_no_task(tests):
    with pytest.raises(ValueError, match=r"tests (do not parse|have no class)"):
        read_task(row(test=tests))


def test_methods_are_found_in_bases_once_and_sorted():
    source = """
class Base:
    def test_b(self): pass
    def helper(self): pass
class TestCases(Base, unittest.TestCase):
    def test_c(self): pass
    def test_a(self): pass
    def test_a(self): pass
    test_value = 3
"""
    assert methods_of(source) == ("test_a", "test_b", "test_c")


class Chat:
    chat_template = "some"

    def apply_chat_template(self, turns, tokenize, **_):
        assert not tokenize
        return "".join(f"<{turn['role']}>{turn['content']}<end>" for turn in turns)

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [len(text)]}


class Plain:
    chat_template = None

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [len(text)]}


def asked(tokenizer, task_file):
    """The benchmark after its prompts, which tell it what kind of model is sampled, and its first task."""
    made = BigCodeBenchmark()
    tasks = made.load(task_file)
    made.prompts(tasks[:1], tokenizer, "complete")
    return made, tasks[0]


def test_a_chat_prompt_ends_behind_the_opening_fence(task, task_file):
    text = prompt_text(task, Chat())
    assert text == (
        f"<user>{INSTRUCTION}\n```\n{task.complete_prompt.strip()}\n```\n<end><assistant>{RESPONSE}\n```python\n"
    )
    instruct = prompt_text(task, Chat(), "instruct")
    assert instruct.startswith(f"<user>{INSTRUCTION}\nAdds one.\n")
    assert asked(Chat(), task_file)[0].stop("complete")[-1] == "\n```\n"


def test_a_base_model_continues_the_prompt(task, task_file):
    assert prompt_text(task, Plain()) == task.complete_prompt
    plain, first = asked(Plain(), task_file)
    assert plain.sample(first, "\treturn 1", 0, "complete").raw == first.prompt + "    return 1"
    chat, first = asked(Chat(), task_file)
    assert chat.sample(first, "x", 0, "complete").raw == "x"
    assert "\ndef " in plain.stop("complete")
    with pytest.raises(ValueError, match="instruct"):
        prompt_text(task, Plain(), "instruct")
    with pytest.raises(ValueError, match="split"):
        user_turn(task, "other")


def test_the_published_settings():
    settings = BigCodeBenchmark()
    assert (settings.n, settings.temperature, settings.top_p, settings.max_new_tokens) == (32, 0.7, 0.95, 2048)


@pytest.fixture
def benchmark():
    return BigCodeBenchmark()


@pytest.fixture
def tasks(benchmark, task_file):
    return benchmark.load(task_file)


def test_samples_go_to_a_file_and_come_back(benchmark, tasks, tmp_path):
    file = tmp_path / "samples.jsonl"
    written = [Sample(tasks[0].id, "x = 1\n", "```python\nx = 1\n```", 0), Sample(tasks[0].id, "é", "", 1)]
    SampleFile(file, {}).append(written)
    assert [json.loads(line).keys() for line in file.read_text().splitlines()] == [
        {"task_id", "solution"},
        {"task_id", "solution"},
    ]
    read = read_samples(file, benchmark, tasks)
    assert [(s.task_id, s.solution, s.number) for s in read] == [(s.task_id, s.solution, s.number) for s in written]
    raw = read_samples(raw_file(file), benchmark, tasks)
    assert [(s.task_id, s.solution) for s in raw] == [(s.task_id, s.raw) for s in written]


def test_a_solution_and_what_it_was_before_may_share_a_line(benchmark, tasks, tmp_path):
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps({"task_id": tasks[0].id, "solution": "x = 1\n", "raw_solution": "```x = 1```"}) + "\n")
    assert [(s.solution, s.raw) for s in read_samples(file, benchmark, tasks)] == [("x = 1\n", "```x = 1```")]


def test_completions_folders_and_other_tasks(benchmark, tasks, tmp_path):
    file = tmp_path / "samples.jsonl"
    file.write_text(
        json.dumps({"task_id": tasks[0].id, "completion": "    return 1"})
        + "\n\n"
        + json.dumps({"task_id": "BigCodeBench/99", "solution": "x"})
        + "\n"
    )
    assert [s.solution for s in read_samples(file, benchmark, tasks)] == [tasks[0].prompt + "    return 1"]
    folder = tmp_path / "programs" / "BigCodeBench_0"
    folder.mkdir(parents=True)
    for name in ("10", "2"):
        (folder / f"{name}.py").write_text(f"x = {name}")
    assert [s.solution for s in read_samples(folder.parent, benchmark, tasks)] == ["x = 2", "x = 10"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", ":1: not JSON"),
        ('{"solution": "x"}', ":1 has no task_id"),
        ('{"task_id": "BigCodeBench/0", "solution": ["x"]}', ":1: BigCodeBench/0: neither solution nor completion"),
        ('{"task_id": "BigCodeBench/7", "solution": "x"}', "holds no sample of BigCodeBench"),
    ],
)
def test_bad_sample_files_are_named(benchmark, tasks, tmp_path, line, says):
    file = tmp_path / "samples.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(UserError, match=says):
        read_samples(file, benchmark, tasks)
    with pytest.raises(UserError, match=r"cannot read .*absent\.jsonl"):
        read_samples(tmp_path / "absent.jsonl", benchmark, tasks)
