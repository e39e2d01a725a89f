"""Rows of every source become problems, or are skipped by a named reason; broken ones are named by file and line."""

import gzip
import json
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from codea1_cli.data.sources import make_source
from codea1_cli.data.sources.kodcode import DATASET_KODCODE, BenchmarkTasks, KodCode, Mbpp
from codea1_cli.data.sources.rows import FileRows, HubRows
from codea1_cli.data.sources.table import MappedRows
from codea1_cli.errors import CannotKeep, EnvironmentFault, UserError
from codea1_cli.evals.evalplus import MAX_PLUS
from codea1_cli.evals.registry import benchmark_row
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import Skipped
from codea1_cli.recipe.data_options import SourceOptions
from tests.hub import COMMIT, parquet

KODCODE = {  # the columns of the newer revisions
    "version": "v1.0",
    "style": "instruct",
    "subset": "Leetcode",
    "question_id": "Leetcode_1_I",
    "question": "Return the double.",
    "solution": "import math\n\ndef double(x: int, *, by=2) -> int:\n    '''Twice.'''\n    return by * x",
    "test": "from solution import double\n\ndef test_a():\n    result = double(2)\n    assert result == 4\n    assert double(-1) == -2",
    "test_info": [{"docstring": "Twice.", "function_declaration": "def double(x):", "function_name": "double", "parameter_list": "(x)"}],
    "gpt_pass_sequence": [1, 0],
    "gpt_pass_trial_num": 1,
    "gpt_difficulty": "hard",
    "gpt_pass_percentage": 0.5,
    "trials": {"trial_gpt4o_0": {"file_coverage": 1.0}},
}  # fmt: skip


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def converted(source):
    return [row if isinstance(row, Skipped) else source.convert(row) for place, row in source.records()]


# -- KodCode -------------------------------------------------------------------------------------------------------
def test_kodcode_newer_columns(tmp_path):
    (made,) = converted(KodCode(write_lines(tmp_path / "k.jsonl", [KODCODE]), difficulty="hard"))
    assert isinstance(made, Problem)
    assert made.id == "kodcode/Leetcode_1_I"
    assert made.declaration == "def double(x: int, *, by=2) -> int:"
    assert made.entry_point == "double"
    assert made.tests == ["assert double(2) == 4", "assert double(-1) == -2"]
    assert made.test_code == KODCODE["test"]
    assert made.meta["docstring"] == "Twice."
    assert made.meta["gpt_difficulty"] == "hard"
    assert made.license == "CC-BY-NC-4.0"


def test_kodcode_older_columns_and_parquet_copies(tmp_path):
    old = {**KODCODE, "test_code": KODCODE["test"], "test_info": json.dumps(KODCODE["test_info"])}
    del old["test"]
    bare = {**old, "test_info": None, "question_id": "b"}
    first, second = converted(KodCode(write_lines(tmp_path / "k.jsonl", [old, bare])))
    assert first.tests == second.tests == ["assert double(2) == 4", "assert double(-1) == -2"]
    assert first.entry_point == second.entry_point == "double"


SKIPPED = {
    "difficulty": {"gpt_difficulty": "easy"},
    "missing_field": {"test": " "},
    "reference_syntax": {"solution": "def double(x:"},
    "class": {"solution": "class Double:\n    pass", "test": "def test_a():\n    assert Double().go() == 1"},
    "several_functions": {
        "solution": "def double(x):\n    return 2 * x\ndef half(x):\n    return x / 2",
        "test": "def test_a():\n    assert double(1) == 2\n    assert half(2) == 1",
    },
    "no_function": {"solution": "double = 2"},
}


@pytest.mark.parametrize("reason", SKIPPED)
def test_kodcode_rows_that_are_skipped(tmp_path, reason):
    row = {**KODCODE, **SKIPPED[reason]}
    (made,) = converted(KodCode(write_lines(tmp_path / "k.jsonl", [row]), difficulty="hard"))
    assert isinstance(made, Skipped)
    assert made.reason == reason


def test_kodcode_helpers_are_no_second_function(tmp_path):
    row = {**KODCODE, "solution": "def two():\n    return 2\ndef double(x):\n    return two() * x", "test_info": []}
    (made,) = converted(KodCode(write_lines(tmp_path / "k.jsonl", [row])))
    assert made.entry_point == "double"


@pytest.mark.shared
def test_kodcode_demo(shared):
    made = converted(KodCode(shared / "data" / "raw" / "kodcode_demo.jsonl"))
    problems = [p for p in made if isinstance(p, Problem)]
    assert len(made) == 150
    assert {s.reason for s in made if isinstance(s, Skipped)} == {"class", "several_functions"}
    assert len(problems) == 126
    assert sum(bool(p.tests) for p in problems) >= 110
    assert all(p.test_code for p in problems)
    assert sum(len(p.tests) for p in problems) >= 690
    assert not [
        p for p in converted(KodCode(shared / "data" / "raw" / "kodcode_demo.jsonl", "hard")) if isinstance(p, Problem)
    ]


# -- MBPP and EvalPlus -----------------------------------------------------------------------------------------------
def test_mbpp(tmp_path):
    rows = [
        {"task_id": 9, "text": "Double.", "code": "def two():\r\n\treturn 2\r\ndef d(x):\r\n\treturn two()*x",
         "test_list": ["assert d(1)==2", "assert d(2) == 4"], "test_setup_code": "", "challenge_test_list": ["assert d(9) == 18"]},
        {"task_id": 10, "text": "T", "code": "def h(r):\n  return r", "test_list": ["assert h(root) == 1"], "test_setup_code": "root = 1"},
        {"text": "T"},
    ]  # fmt: skip
    first, second, third = converted(Mbpp(write_lines(tmp_path / "m.jsonl", rows)))
    assert (first.id, first.entry_point, first.tests) == ("mbpp/9", "d", ["assert d(1) == 2", "assert d(2) == 4"])
    assert first.extra_tests == ["assert d(9) == 18"]
    assert "\r" not in first.reference
    assert (second.reason, third.reason) == ("setup_code", "missing_field")


@pytest.mark.shared
def test_evalplus(shared):
    source = BenchmarkTasks("evalplus", benchmarks=shared / "data" / "bench")
    made = converted(source)
    problems = [p for p in made if isinstance(p, Problem)]
    assert len(made) == 164 + 378
    assert len(problems) >= 535
    humaneval = [p for p in problems if p.id.startswith("HumanEval")]
    assert all(0 < len(p.meta["calls"]) <= MAX_PLUS for p in humaneval)
    assert sum(bool(p.tests) for p in problems) >= 480


# -- your own rows ---------------------------------------------------------------------------------------------------
OWN = [
    {"prompt": "Double x", "answer": "def d(x):\n    return 2 * x", "checks": ["assert d(2) == 4"]},
    {"prompt": "Triple x", "answer": "def t(x):\n    return 3 * x", "checks": ["assert t(2) == 6"]},
]
MAPPING = {"question": "prompt", "reference": "answer", "tests": "checks"}


def table_file(folder, kind):
    path = folder / f"own.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(OWN), path)
    elif kind == "jsonl.gz":
        with gzip.open(path, "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in OWN)
    elif kind == "csv":
        import csv

        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(OWN[0]))
            writer.writeheader()
            writer.writerows({**row, "checks": json.dumps(row["checks"])} for row in OWN)
    else:
        write_lines(path, OWN)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet", "csv"])
def test_tables(tmp_path, kind):
    source = make_source(
        str(table_file(tmp_path, kind)),
        SourceOptions(maps=[f"{name}={column}" for name, column in MAPPING.items()], license="MIT"),
    )
    first, second = converted(source)
    assert (first.entry_point, first.tests, first.license) == ("d", ["assert d(2) == 4"], "MIT")
    assert second.declaration == "def t(x):"
    assert first.id != second.id
    swapped = MappedRows(FileRows(write_lines(tmp_path / "own.jsonl", OWN[::-1])), MAPPING)
    assert {p.id for p in converted(swapped)} == {first.id, second.id}  # ids do not depend on the place


def test_tests_come_in_several_forms(tmp_path):
    forms = [
        "assert d(1) == 2\nassert d(2) == 4",
        '["assert d(1) == 2"]',
        "def test_a():\n    assert d(1) == 2",
        None,
        5,
        ["def test():\n    assert d(1) == 2", "def test():\n    assert d(2) == 4"],
    ]
    rows = [
        {"id": str(i), "question": "Q", "reference": "def d(x):\n  return 2*x", "tests": form}
        for i, form in enumerate(forms)
    ]
    made = converted(MappedRows(FileRows(write_lines(tmp_path / "t.jsonl", rows))))
    assert [len(p.tests) for p in made[:4]] == [2, 1, 1, 0]
    assert made[4].reason == "tests_form"
    assert made[5].tests == ["assert d(1) == 2", "assert d(2) == 4"]
    code = [{"question": "Q", "reference": rows[0]["reference"], "test_code": forms[2]}]
    (made,) = converted(MappedRows(FileRows(write_lines(tmp_path / "c.jsonl", code))))
    assert (made.tests, made.test_code) == (["assert d(1) == 2"], forms[2])


def test_a_wrong_mapping_names_the_columns_there_are(tmp_path):
    path = table_file(tmp_path, "jsonl")
    for mapping in ({}, {**MAPPING, "tests": "chekcs"}):
        with pytest.raises(UserError, match="no column") as failure:
            MappedRows(FileRows(path), mapping)
        assert "prompt, answer, checks" in (failure.value.hint or "")
    with pytest.raises(UserError, match="no field 'querstion'"):
        MappedRows(FileRows(path), {"querstion": "prompt"})


def table_rows(count=2):
    return [{"question": f"Q{number}", "reference": "def d(x):\n    return x"} for number in range(count)]


def test_rows_of_datasets(hub):
    hub.add("datasets/me/set", {"data/train-0.parquet": parquet(table_rows()), "data/train-1.parquet": parquet(table_rows(1)),
                                "data/test-0.parquet": parquet(table_rows(1)), "README.md": b"-"})  # fmt: skip
    rows = HubRows("me/set", "train")
    assert [place for place, _ in rows.rows()] == [f"me/set[train]:{number}" for number in (1, 2, 3)]
    assert rows.identity()["revision"] == COMMIT
    assert [place for place, _ in HubRows("me/set", "train+test").rows()][-1] == "me/set[test]:4"
    with pytest.raises(UserError, match="no split 'nosplit'"):
        list(HubRows("me/set", "nosplit").rows())
    with pytest.raises(UserError, match="no configuration 'other'"):
        list(HubRows("me/set", "train", config="other").rows())


def test_a_file_is_fetched_when_its_rows_are_wanted(hub):
    hub.add("datasets/me/set", {f"train-{number}.parquet": parquet(table_rows(9 + number)) for number in range(3)})
    assert len(list(islice(HubRows("me/set", "train").rows(), 12))) == 12
    assert sorted(hub.sent) == ["train-0.parquet", "train-1.parquet"]


def test_configurations_of_datasets(hub):
    files = {f"{name}/train.parquet": parquet(table_rows(count)) for name, count in (("big", 3), ("small", 1))}
    configs = [
        {"config_name": name, "data_files": [{"split": "train", "path": f"{name}/*"}]} for name in ("big", "small")
    ]
    hub.add("datasets/me/set", files, configs)
    assert len(list(HubRows("me/set", "train").rows())) == 3
    assert len(list(HubRows("me/set", "train", config="small").rows())) == 1
    with pytest.raises(UserError, match="no split 'test'") as failure:
        list(HubRows("me/set", "test").rows())
    assert "train" in (failure.value.hint or "")


def test_rows_of_datasets_where_nothing_can_be_kept_at_home(hub, tmp_path, monkeypatch):
    hub.add("datasets/me/set", {"train.parquet": parquet(table_rows())})
    for name in ("HF_HOME", "XDG_CACHE_HOME", "CODEA1_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/proc/1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert len(list(HubRows("me/set", "train").rows())) == 2
    monkeypatch.setenv("HF_HOME", "/proc/1/here")
    with pytest.raises(EnvironmentFault, match=r"dataset me/set.*/proc/1/here"):
        list(HubRows("me/set", "train").rows())


def test_a_benchmark_that_cannot_be_kept_names_the_place_and_no_network(monkeypatch):
    why = CannotKeep("cannot keep it", hint="HF_HOME=FOLDER keeps it elsewhere")

    def fails(*_):
        raise why

    monkeypatch.delenv("CODEA1_BENCHMARKS", raising=False)
    monkeypatch.setattr("codea1_cli.hub.kept_file", lambda *_: None)
    monkeypatch.setattr("codea1_cli.hub.find_repo", fails)
    with pytest.raises(EnvironmentFault, match=r"no file of MBPP\+ is here: cannot keep it") as failure:
        benchmark_row("mbpp").file(None)
    assert failure.value.hint == why.hint


def test_kodcode_as_the_hub_has_it(hub):
    hub.add(
        f"datasets/{DATASET_KODCODE}",
        {"data/train-0.parquet": parquet([KODCODE, {**KODCODE, "gpt_difficulty": "easy"}])},
    )
    source = make_source("kodcode", SourceOptions(difficulty="hard"))
    first, second = converted(source)
    assert first.tests == ["assert double(2) == 4", "assert double(-1) == -2"]
    assert second.reason == "difficulty"
    assert source.identity()["dataset"] == DATASET_KODCODE


# -- names ----------------------------------------------------------------------------------------------------------
def test_sources_that_do_not_exist(tmp_path):
    for spec in ("kodcod", "./nowhere.jsonl", "nowhere.py", str(tmp_path)):
        with pytest.raises(UserError) as failure:
            make_source(spec)
        assert failure.value.hint
    with pytest.raises(UserError, match="--difficulty"):
        make_source("mbpp", SourceOptions(difficulty="hard"))
    with pytest.raises(UserError, match="extreme"):
        make_source("kodcode", SourceOptions(difficulty="extreme"))
    with pytest.raises(UserError, match="--map"):
        make_source("kodcode", SourceOptions(maps=["question=q"]))


def test_near_names_are_suggested(tmp_path):
    with pytest.raises(UserError) as caught:
        make_source("mbp")
    assert "did you mean mbpp?" in caught.value.hint
    path = tmp_path / "br.csv"
    path.write_text("prompt,answer\nq,r\n")
    with pytest.raises(UserError) as caught:
        make_source(str(path), SourceOptions(maps=["questoin=prompt"]))
    assert "did you mean question?" in caught.value.hint
    with pytest.raises(UserError, match=r"br\.csv: no column"):
        make_source(str(path))
