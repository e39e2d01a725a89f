"""Files and rows that cannot be read, or hold what no problem may: each is named with its place and what is wrong."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from codea1_cli.data.sources.kodcode import KodCode, Mbpp
from codea1_cli.data.sources.rows import FileRows, file_identity
from codea1_cli.data.sources.table import MappedRows
from codea1_cli.data.stages import PromptCounter, Stages
from codea1_cli.errors import UserError
from codea1_cli.problems.row_files import Skipped, read_rows


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


KODCODE = {"question_id": "1", "question": "Q", "solution": "def f(x):\n    return x", "test": "assert f(1) == 1"}


def converted(source):
    return [row if isinstance(row, Skipped) else source.convert(row) for place, row in source.records()]


def test_broken_lines_are_named_and_kept_out(tmp_path):
    path = tmp_path / "b.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n{"a": \n\n[1]\n"\xff"\n' + b"[" * 100_000 + b'\n{"a": 2}\n{"a":')
    rows = dict(read_rows(path))
    assert [place.rpartition(":")[2] for place in rows] == ["1", "2", "4", "5", "6", "7", "8"]
    kinds = ["ok" if isinstance(row, dict) else row.reason for row in rows.values()]
    assert kinds == ["ok", "broken_row", "broken_row", "broken_row", "broken_row", "ok", "broken_row"]
    (tmp_path / "b.csv").write_text('a,b\n1,2\n3\n4,5,6\n"x\ny",7\n')
    rows = dict(read_rows(tmp_path / "b.csv"))
    assert ["ok" if isinstance(row, dict) else row.reason for row in rows.values()] == [
        "ok",
        "broken_row",
        "broken_row",
        "ok",
    ]


def test_files_that_cannot_be_read_at_all(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 1000)[:-20])
    (tmp_path / "a.parquet").write_bytes(b"no")
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("a.jsonl.gz", "a.parquet", "a.csv", "none.jsonl", "a.xlsx"):
        with pytest.raises(UserError) as failure:
            list(read_rows(tmp_path / name))
        assert failure.value.hint


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe4\xb8"], ids=["byte", "cut", "surrogate", "cut of three"]
)
def test_bytes_that_are_no_utf8_cost_their_row(tmp_path, bad):
    filler = b"".join(b"ok%d,\xc3\xa9\n" % i for i in range(5000))  # beyond what is decoded at once
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa,b\n" + filler + b"x,y" + bad + b"\n1,2\n")
    rows = list(read_rows(tmp_path / "a.csv"))
    assert len(rows) == 5002
    assert rows[5000] == (f"{tmp_path}/a.csv:5002", Skipped("broken_row", "not UTF-8 in the column b"))
    assert rows[4999][1] == {"a": "ok4999", "b": "é"}
    assert rows[5001] == (f"{tmp_path}/a.csv:5003", {"a": "1", "b": "2"})
    (tmp_path / "b.csv").write_bytes(b"a,b" + bad + b"\n1,2\n")
    with pytest.raises(UserError, match=r"b\.csv:1: the names of the columns are not UTF-8"):
        list(read_rows(tmp_path / "b.csv"))


def test_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("question,reference,question\n1,2,3\n")
    pq.write_table(pa.table([[1], [2]], names=["question", "question"]), tmp_path / "a.parquet")
    for name, place in (("a.csv", r"a\.csv:1"), ("a.parquet", r"a\.parquet")):
        with pytest.raises(UserError, match=f"{place}: two columns are named 'question'") as failure:
            list(read_rows(tmp_path / name))
        assert failure.value.hint
    (tmp_path / "a.csv").write_text("a,b,,\n1,2,,\n")  # as spreadsheets leave them
    assert [row["a"] for _, row in read_rows(tmp_path / "a.csv")] == ["1"]


UNREADABLE = {
    "a number too long to read": '{"a": ' + "1" * 6000 + "}",
    "nested too deep": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "not JSON: Expecting value at column 7": '{"a": }',
    "a list, not an object": "[1]",
}


@pytest.mark.parametrize("why", UNREADABLE)
def test_why_a_line_cannot_be_read(tmp_path, why):
    (tmp_path / "a.jsonl").write_text(UNREADABLE[why] + "\n")
    ((_, skipped),) = read_rows(tmp_path / "a.jsonl")
    assert skipped.reason == "broken_row"
    assert why in skipped.detail


GOOD = {"id": "a", "question": "Q", "reference": "def f(x):\n    return x", "tests": "assert f(1) == 1"}
FIELDS_WRONG = [
    ({"question": ["Q"]}, "bad_field", "question is not text: a list"),
    ({"reference": 5}, "bad_field", "reference is not text: a number"),
    ({"reference": {"a": 1}}, "bad_field", "reference is not text: an object"),
    ({"question": True}, "bad_field", "question is not text: true or false"),
    ({"question": None}, "missing_field", "question"),
    ({"reference": " "}, "missing_field", "reference"),
    ({"question": "\ud800"}, "bad_field", "question: text that is not Unicode (a lone surrogate)"),
    ({"license": "\udc80"}, "bad_field", "license: text that is not Unicode (a lone surrogate)"),
    ({"id": "\udc80"}, "bad_field", "id: text that is not Unicode (a lone surrogate)"),
    ({"meta": {"a": ["\udc80"]}}, "bad_field", "meta: text that is not Unicode (a lone surrogate)"),
    ({"meta": {"a": float("nan")}}, "bad_field", "meta: Out of range float values are not JSON compliant"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "reason", "detail"), FIELDS_WRONG)
def test_a_wrong_field_is_named_with_what_is_wrong(tmp_path, change, reason, detail):
    stages = Stages.__new__(Stages)
    stages.source = MappedRows(FileRows(write_lines(tmp_path / "a.jsonl", [GOOD])))
    assert "problem" in stages._converted("a:1", GOOD)
    line = stages._converted("a:1", {**GOOD, **change})
    assert line["reason"] == reason
    assert line["detail"].removesuffix(": nan") == detail or not detail  # which later Pythons add


def test_published_rows_with_a_field_of_another_type(tmp_path):
    rows = [{**KODCODE, "test": 5}, {**KODCODE, "question_id": 7}, {**KODCODE, "test": None}]
    made = converted(KodCode(write_lines(tmp_path / "k.jsonl", rows)))
    assert [(m.reason, m.detail) for m in made] == [
        ("bad_field", "test or test_code is not text: a number"),
        ("bad_field", "question_id is not text: a number"),
        ("missing_field", "test or test_code"),
    ]
    rows = [{"task_id": 1, "test_list": "assert f(1) == 1"}, {"task_id": 1, "test_list": []}]
    assert [m.reason for m in converted(Mbpp(write_lines(tmp_path / "m.jsonl", rows)))] == [
        "bad_field",
        "missing_field",
    ]


def test_a_key_that_an_object_has_twice_is_named_and_none_is_chosen(tmp_path):
    lines = write_lines(tmp_path / "a.jsonl", [KODCODE])
    lines.write_text(lines.read_text() + '{"question": {"a": 1, "a": 1}}\n{"b": {"a": 1}, "a": 2}\n')
    broken = {place: row.detail for place, row in read_rows(lines) if isinstance(row, Skipped)}
    assert broken == {f"{lines}:2": "the key 'a' stands twice in one object"}
    (tmp_path / "a.json").write_text('[{"a": 1},\n {"a": 2,\n  "b": {"a": 1},\n  "a": 3}]')
    with pytest.raises(UserError, match="the key 'a' stands twice in one object, which begins at line 2"):
        list(read_rows(tmp_path / "a.json"))


def test_what_has_no_end_or_can_be_read_once_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for place in (Path("/dev/zero"), tmp_path / "pipe.jsonl"):
        with pytest.raises(UserError, match="it is a device or a pipe"):
            FileRows(place).identity()
    with pytest.raises(UserError, match="it is a folder"):
        file_identity(tmp_path)
    with pytest.raises(UserError, match="it is a device"):
        PromptCounter("builtin:tiny", Path("/dev/zero"))
