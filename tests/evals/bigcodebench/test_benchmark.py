"""References first, then samples, through the interface of `codea1 eval-code`."""

import json
import sys

import pytest

from codea1_cli.errors import UserError
from codea1_cli.evals.benchmark import CodeBenchmark, Sample, ScoreOptions, Status
from codea1_cli.evals.bigcodebench import BigCodeBenchmark
from codea1_cli.evals.bigcodebench.environment import REQUIREMENTS, environment_key, interpreter
from codea1_cli.evals.bigcodebench.scoring import (
    CORPUS,
    FAILS,
    MISSING,
    NETWORK,
    RUNS,
    UNSCORED,
    BigCodeScored,
    ScoreSettings,
    check_references,
    classify,
)
from codea1_cli.evals.registry import open_benchmark
from codea1_cli.sandbox.base import UnitRun

QUICK = ScoreSettings(time_limit_s=10.0, memory_mb=1024)


@pytest.fixture
def benchmark(room, task_file):
    made = BigCodeBenchmark(settings=QUICK)
    made.load(task_file)
    made._sandbox = room  # no second sandbox
    return made


def nothing(_done: int, _of: int) -> None:
    pass


def test_references_come_first_and_tell_missing_from_failing(benchmark):
    seen = []
    report = benchmark.check_references(ScoreOptions(), lambda done, of: seen.append((done, of)))
    assert report.tasks == 4
    assert list(report.failing) == ["BigCodeBench/3"]
    assert report.not_run["BigCodeBench/2"].startswith(MISSING)
    assert "no_such_library_at_all" in report.not_run["BigCodeBench/2"]
    assert report.rate == pytest.approx(2 / 3)
    assert seen[-1] == (4, 4)


def test_only_the_references_of_sampled_tasks_run(benchmark):
    seen = []
    report = benchmark.check_references(
        ScoreOptions(), lambda done, of: seen.append((done, of)), {"BigCodeBench/0", "BigCodeBench/3"}
    )
    assert (report.tasks, list(report.failing), seen[-1]) == (2, ["BigCodeBench/3"], (2, 2))


def test_progress_counts_the_references_that_are_known(benchmark, tmp_path):
    benchmark.check_references(ScoreOptions(cache=tmp_path), nothing, {"BigCodeBench/0", "BigCodeBench/1"})
    seen = []
    benchmark.check_references(ScoreOptions(cache=tmp_path), lambda done, of: seen.append((done, of)))
    assert sorted(set(seen)) == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_samples_are_scored_in_order_and_missing_libraries_are_no_failures(benchmark):
    benchmark.check_references(ScoreOptions(), nothing)
    good, bad = "def task_func(n):\n    return n + 1", "def task_func(n):\n    return n"
    samples = [Sample(f"BigCodeBench/{n}", code, number=i) for n in range(4) for i, code in enumerate((good, bad))]
    scored = benchmark.score(samples, ScoreOptions(), nothing)
    assert [(s.task_id, s.number) for s in scored] == [(s.task_id, s.number) for s in samples]
    assert [s.verdicts["tests"] for s in scored] == [
        Status.PASS, Status.FAIL, Status.PASS, Status.FAIL, Status.NOT_RUN, Status.NOT_RUN, Status.PASS, Status.FAIL
    ]  # fmt: skip


def test_a_lie_is_a_failure_that_says_so(benchmark):
    benchmark.check_references(ScoreOptions(), nothing)
    lie = "class A:\n    def __eq__(self, other): return True\ndef task_func(n):\n    return A() if n != 'a' else n + 1"
    [scored] = benchmark.score([Sample("BigCodeBench/0", lie)], ScoreOptions(), nothing)
    assert scored.verdicts["tests"] is Status.FAIL
    assert "never looks at" in scored.detail


def test_references_are_checked_once(benchmark, tmp_path):
    options = ScoreOptions(cache=tmp_path / "cache")
    first = benchmark.check_references(options, nothing)
    [file] = (tmp_path / "cache").iterdir()
    lines = file.read_text().splitlines()
    assert len(lines) == 4
    file.write_text("\n".join([*lines[:3], lines[3][:20]]))  # an interrupted check
    benchmark._references = {}
    assert benchmark.check_references(options, nothing) == first


class Broken:
    """A sandbox that fails."""

    workers = 1

    def run_unit(self, module, limits, hash_seed=0):
        return UnitRun.unscored(module, "the sandbox failed: gone")


def test_our_failure_is_no_verdict(task, tmp_path):
    cache = tmp_path / "truth.jsonl"
    results = check_references(Broken(), [task], QUICK, cache)
    assert results[task.task_id].state == UNSCORED
    assert not cache.exists()
    made = BigCodeBenchmark(settings=QUICK)
    made._sandbox = Broken()
    made.tasks = {task.task_id: task}
    [scored] = made.score([Sample(task.task_id, task.reference)], ScoreOptions(), nothing)
    assert scored.verdicts["tests"] is Status.UNSCORED


class Flaky(Broken):
    """The first run of a module fails, the second is the room's."""

    def __init__(self, room) -> None:
        self.room, self.runs = room, 0

    def run_unit(self, module, limits, hash_seed=0):
        self.runs += 1
        if self.runs == 1:
            module = type(module)("raise ValueError", module.tests, module.names)
        return self.room.run_unit(module, limits, hash_seed)


def test_a_reference_that_fails_gets_a_second_chance(room, task):
    flaky = Flaky(room)
    assert check_references(flaky, [task], QUICK)[task.task_id].state == RUNS
    assert flaky.runs == 2


@pytest.mark.parametrize(
    ("verdict", "detail", "state"),
    [
        (Status.PASS, "", RUNS),
        (Status.FAIL, "load_error: ModuleNotFoundError: No module named 'pandas'", MISSING),
        (Status.FAIL, "raised: LookupError: Please use the NLTK Downloader to", CORPUS),
        (Status.FAIL, "raised: URLError: <urlopen error [Errno -3]>", NETWORK),
        (Status.FAIL, "raised: AssertionError: 1 != 2", FAILS),
        (Status.TIMEOUT, "timeout: time limit", FAILS),
        (Status.UNSCORED, "the sandbox failed", UNSCORED),
    ],
)
def test_why_a_reference_does_not_run(verdict, detail, state):
    assert classify(BigCodeScored("BigCodeBench/0", verdict, detail)).state == state


def test_limits_follow_the_reference():
    assert ScoreSettings().limits(1.0).time_s == 241.0
    assert ScoreSettings().limits(300.0).time_s == 301.0
    assert ScoreSettings(time_limit_s=5.0).limits(300.0).time_s == 5.0


class Tokenizer:
    def __init__(self, chat: bool) -> None:
        self.chat_template = "x" if chat else None
        self.texts: list[tuple[str, bool]] = []

    def apply_chat_template(self, turns, tokenize, **_):
        return "|".join(turn["content"] for turn in turns)

    def __call__(self, text, add_special_tokens):
        self.texts.append((text, add_special_tokens))
        return {"input_ids": [len(text)]}


def test_the_interface_holds(benchmark, task_file):
    made: CodeBenchmark = benchmark
    assert open_benchmark("bigcodebench-hard").name == "bigcodebench-hard"
    tasks = made.load(task_file)
    chat, plain = Tokenizer(True), Tokenizer(False)
    assert len(made.prompts(tasks, chat, "complete")) == 4
    assert not chat.texts[0][1]
    raw = "def helper():\n    return 1\n\ndef task_func(n):\n\treturn helper()\n\nprint(task_func(1))\n"
    sample = made.sample(tasks[0], raw, 3, "complete")
    assert (sample.number, sample.raw) == (3, raw.replace("\t", "    "))
    assert sample.solution == "def helper():\n    return 1\ndef task_func(n):\n    return helper()"
    assert "\n```\n" in made.stop("complete")
    made.prompts(tasks, plain, "complete")
    assert plain.texts[0] == (tasks[0].prompt, True)
    assert made.sample(tasks[0], "    return 1\n", 0, "complete").raw == tasks[0].prompt + "    return 1\n"
    assert "\ndef " in made.stop("complete")
    with pytest.raises(UserError, match="instruct"):
        made.prompts(tasks, plain, "instruct")
    assert made.read({"completion": "    return 1"}, tasks[0], 0).solution == tasks[0].prompt + "    return 1"
    with pytest.raises(UserError, match="neither"):
        made.read({}, tasks[0], 0)
    assert (BigCodeBenchmark(hard=True).name, made.name, made.max_new_tokens) == (
        "bigcodebench-hard",
        "bigcodebench",
        2048,
    )


def test_an_interpreter_has_to_be_there(tmp_path):
    with pytest.raises(UserError, match="no interpreter"):
        interpreter(str(tmp_path / "absent"))
    assert environment_key(sys.executable) == environment_key(sys.executable)


def test_every_requirement_is_pinned():
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) > 150
    assert [line for line in lines if "==" not in line] == []


@pytest.mark.shared
def test_real_tasks_of_the_standard_library(room, shared):
    """References pass, stubs do not, on real tasks that need no library; every task's tests are found."""
    made = BigCodeBenchmark(settings=QUICK)
    made._sandbox = room
    tasks = made.load(shared / "data" / "bench")
    assert len(tasks) == 1140
    assert sum(task.data.hard for task in tasks) == 148
    hard = json.loads((shared / "data" / "bench" / "bigcodebench_hard_ids.json").read_text())
    assert {task.id for task in tasks if task.data.hard} == set(hard)
    assert all(task.data.names for task in tasks)
    chosen = [t for t in tasks if t.id in {f"BigCodeBench/{n}" for n in (1, 2, 5, 7, 10, 12, 25, 31, 1004, 1139)}]
    plain = [t for t in chosen if set(t.data.libs) <= set(sys.stdlib_module_names)]
    assert len(plain) >= 4
    samples = [
        Sample(t.id, code) for t in plain for code in (t.reference, t.data.complete_prompt + "\n    return None")
    ]
    scored = made.score(samples, ScoreOptions(), nothing)
    passes = [s.verdicts["tests"] is Status.PASS for s in scored]
    assert passes == [True, False] * len(plain), [s.detail for s in scored]
