"""What is, or resembles, a benchmark's task is found, and says by which rule."""

import gzip
import json
import os
from collections import Counter

import pytest

from codea1_cli.data.decontaminate import Decontaminator, load_benchmarks
from codea1_cli.data.similarity import blind_hash
from codea1_cli.data.sources.kodcode import Mbpp
from codea1_cli.errors import UserError
from codea1_cli.evals.registry import ROWS
from codea1_cli.problems.benchmark_files import PublicTask
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import Skipped
from codea1_cli.recipe.data_options import Thresholds, read_thresholds
from tests.hub import publish_benchmarks

CODE = """def largest_gap(values):
    ordered = sorted(set(values))
    best = 0
    for left, right in zip(ordered, ordered[1:]):
        if right - left > best:
            best = right - left
    return best
"""
TASK = PublicTask(
    "Bench",
    "Bench/7",
    "Return the largest gap between neighbouring distinct values of an unordered list of whole numbers.",
    CODE,
    "largest_gap",
    "assert largest_gap([1, 5, 9]) == 4\nassert set(largest_gap((2, 2))) == set([0])",
)


def problem(**changes):
    fields = {
        "id": "mine/1",
        "question": "Something else entirely, about counting vowels in words.",
        "declaration": "def own(xs):",
        "entry_point": "own",
        "reference": "def own(xs):\n    return len([x for x in xs if x in 'aeiou'])",
        "tests": ["assert own('ab') == 1"],
    }
    return Problem(**{**fields, **changes})


@pytest.fixture(scope="module")
def index():
    return Decontaminator([TASK], Thresholds())


def test_a_clean_row_stays(index):
    assert index.collision(problem()) is None


RULES = {
    "same_id": {"id": "bench/7"},
    "same_code": {"reference": CODE.replace("values", "zz").replace("best", "b").replace("largest_gap", "own")},
    "same_test": {"entry_point": "largestGap", "tests": ["assert largestGap([1, 5, 9]) == 4"]},
    "question": {"question": TASK.question.replace("whole ", "").replace("Return", "Write a function for")},
    "name": {"entry_point": "Largest_Gap", "question": "Return the largest gap between values of an unordered list of numbers."},
    "code": {"reference": CODE.replace("    best = 0\n", "    best = 1\n")},
    "overlap": {"question": "You get a shop's prices. " + TASK.question + " Print it with the date, a label, and whatever the customer asked for, sorted by shelf, in three columns and with a footer."},
}  # fmt: skip


@pytest.mark.parametrize("reason", RULES)
def test_each_rule(index, reason):
    hit = index.collision(problem(**RULES[reason]))
    assert hit is not None
    assert hit.reason == reason
    assert hit.other == "Bench Bench/7"


def test_the_same_name_alone_is_no_collision(index):
    assert index.collision(problem(entry_point="largest_gap", tests=["assert largest_gap([1, 5, 9]) == 8"])) is None


def test_thresholds_are_adjustable_and_named():
    strict = Decontaminator([TASK], read_thresholds(["bench_question=1.0", "bench_overlap=99", "bench_name=1"]))
    assert strict.collision(problem(**RULES["question"])) is None
    with pytest.raises(UserError, match="nonsense") as failure:
        read_thresholds(["nonsense=1"])
    assert "bench_question" in (failure.value.hint or "")
    with pytest.raises(UserError, match="near_code"):
        read_thresholds(["near_code=7"])


def test_a_folder_of_benchmarks(tmp_path):
    tasks, missing = load_benchmarks(None)
    assert tasks == []
    assert list(missing) == ["HumanEval+", "MBPP+", "BigCodeBench", "ULT"]
    with pytest.raises(UserError, match="holds no benchmark") as failure:
        load_benchmarks(tmp_path)
    assert "--no-decontaminate" in (failure.value.hint or "")
    row = {"task_id": "Mbpp/2", "prompt": '"""\nShare.\nassert f(1) == 1\n"""', "canonical_solution": "def f(x):\n  return x",
           "entry_point": "f", "assertion": "assert f(1) == 1"}  # fmt: skip
    with gzip.open(tmp_path / "whatever.jsonl.gz", "wt") as file:
        file.write(json.dumps(row) + "\n")
    (task,), missing = load_benchmarks(tmp_path)
    assert (task.benchmark, task.id, task.entry_point) == ("MBPP+", "Mbpp/2", "f")
    assert list(missing) == ["HumanEval+", "BigCodeBench", "ULT"]
    with gzip.open(tmp_path / "whatever.jsonl.gz", "at") as file:
        file.write("{}\n")
    with pytest.raises(UserError, match=r"whatever\.jsonl\.gz:2"):
        load_benchmarks(tmp_path)


def test_a_broken_file_hides_no_good_one_and_an_empty_one_is_no_benchmark(tmp_path, monkeypatch):
    row = {"task_id": "Mbpp/2", "prompt": "Share.", "canonical_solution": "def f(x):\n  return x", "entry_point": "f",
           "assertion": "assert f(1) == 1"}  # fmt: skip
    good = tmp_path / "good.jsonl.gz"
    good.write_bytes(gzip.compress((json.dumps(row) + "\n").encode()))
    many = gzip.compress((json.dumps(row) + "\n").encode()) + gzip.compress(os.urandom(9000).hex().encode())
    (tmp_path / "a-cut.jsonl.gz").write_bytes(many[:-4000])
    (tmp_path / "b-empty.jsonl").touch()
    assert [task.id for task in load_benchmarks(tmp_path)[0]] == ["Mbpp/2"]
    others = ["HumanEval+", "BigCodeBench", "ULT"]
    for named, missing in (
        (good, others),
        (tmp_path / "b-empty.jsonl", ["HumanEval+", "MBPP+", "BigCodeBench", "ULT"]),
    ):
        monkeypatch.setenv("CODEA1_BENCHMARKS", str(named))
        found, lacking = load_benchmarks(None)
        assert ([task.id for task in found], list(lacking)) == (["Mbpp/2"] if named is good else [], missing)


@pytest.mark.shared
@pytest.mark.parametrize("limit", [9, pytest.param(None, marks=pytest.mark.slow)])
def test_benchmarks_come_from_where_they_are_published(hub, shared, monkeypatch, limit):
    """What is on the hub is compared like the release files; a second use asks nobody."""
    publish_benchmarks(hub, shared, limit, monkeypatch)
    tasks, missing = load_benchmarks(None)
    assert missing == {}
    assert Counter(task.benchmark for task in tasks) == {
        "HumanEval+": limit or 164, "MBPP+": limit or 378, "BigCodeBench": limit or 1140, "ULT": limit or 200,
    }  # fmt: skip
    there = {task.id: task for task in load_benchmarks(shared / "data" / "bench")[0]}
    for one in tasks:
        assert one.entry_point == there[one.id].entry_point
        assert blind_hash(one.code) == blind_hash(there[one.id].code), one.id
    hub.asked.clear()
    assert load_benchmarks(None) == (tasks, {})
    assert hub.asked == []


@pytest.mark.shared
@pytest.mark.slow
def test_mbpp_against_the_benchmarks(shared):
    tasks, _ = load_benchmarks(shared / "data" / "bench")
    assert {name: sum(t.benchmark == name for t in tasks) for name in (row.title for row in ROWS.values())} == {
        "HumanEval+": 164,
        "MBPP+": 378,
        "BigCodeBench": 1140,
        "ULT": 200,
    }
    index = Decontaminator(tasks, Thresholds())
    plus = {task.id.casefold() for task in tasks if task.benchmark == "MBPP+"}
    source = Mbpp(shared / "data" / "raw" / "mbpp.jsonl")
    own, others, renamed = set(), [], []
    for _, row in source.records():
        made = source.convert(row)
        if isinstance(made, Skipped):
            assert f"mbpp/{row['task_id']}" not in plus
            continue
        hit = index.collision(made)
        if made.id in plus:
            assert hit is not None
            assert hit.other.casefold() == f"mbpp+ {made.id}"
            own.add(made.id)
            if len(own) % 3 == 0:
                renamed.append(index.collision(made.model_copy(update={"id": "x"})) is not None)
        elif hit is not None:
            others.append((made.id, hit))
    assert own == plus
    assert sum(renamed) >= 0.95 * len(renamed) > 100  # without the ids, the other rules find them
    assert 20 <= len(others) <= 45
    assert all(hit.other and hit.text for _, hit in others)
    assert {"mbpp/217", "mbpp/924", "mbpp/625", "mbpp/411"} <= {id for id, _ in others}
