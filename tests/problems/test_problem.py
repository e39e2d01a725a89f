import gzip
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.errors import UserError
from codea1_cli.problems.problem import FIELDS, Problem, read_problems, write_problems

ROW = {
    "id": "a/1",
    "question": "Double a number.",
    "declaration": "def double(x):",
    "entry_point": "double",
    "reference": "def double(x):\n    return 2 * x",
}
SUFFIXES = [".jsonl", ".jsonl.gz", ".parquet"]


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_gives_back_what_was_written(tmp_path: Path, suffix: str) -> None:
    problems = [
        Problem(**ROW),
        Problem(**{**ROW, "id": "é\u2028/2"}, tests=["assert double(1) == 2"], extra_tests=["assert double(0) == 0"]),
        Problem(
            **{**ROW, "id": "3"},
            test_code="def test(): ...",
            source="s",
            license="MIT",
            meta={"deep": [1, {"x": None}]},
        ),
    ]
    path = tmp_path / f"deep/problems{suffix}"
    write_problems(path, problems)
    assert read_problems(path) == problems
    assert read_problems(path, limit=2) == problems[:2]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_problems_give_equal_bytes(tmp_path: Path, suffix: str) -> None:
    for name in "ab":
        write_problems(tmp_path / f"{name}{suffix}", [Problem(**ROW)])
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_problems(path, [Problem(**ROW)])
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_problems(path, [Problem(**ROW, meta={"not json": object()})])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_unknown_fields_move_to_meta_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{**ROW, "id": str(i), "difficulty": i, "meta": {"seen": True}} for i in range(3)]
    path = write_lines(tmp_path / "p.jsonl", *map(json.dumps, rows))
    with caplog.at_level(logging.WARNING):
        problems = read_problems(path)
    assert [p.meta for p in problems] == [{"seen": True, "difficulty": i} for i in range(3)]
    assert len(caplog.records) == 1
    assert "difficulty" in caplog.text


def test_tests_may_be_empty_and_null_counts_as_absent(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", json.dumps({**ROW, "tests": [], "extra_tests": None, "test_code": None}))
    (problem,) = read_problems(path)
    assert (problem.tests, problem.extra_tests, problem.test_code) == ([], [], None)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ("{", "not JSON"),
        ("[1]", "a list, not an object"),
        ('"text"', "a text, not an object"),
        ("1", "a number, not an object"),
        (json.dumps({k: v for k, v in ROW.items() if k != "reference"}), "lacks the field reference"),
        (json.dumps({**ROW, "reference": ""}), "lacks the field reference"),
        (json.dumps({**ROW, "question": None}), "lacks the field question"),
        (json.dumps({**ROW, "question": ""}), "field question"),
        (json.dumps({**ROW, "id": 7}), "field id"),
        (json.dumps({**ROW, "tests": "assert f()"}), "field tests"),
        (json.dumps({**ROW, "tests": ["ok", 1]}), "field tests.1"),
        (json.dumps({**ROW, "meta": [1]}), "field meta"),
        (json.dumps({**ROW, "meta": "no json"}), "field meta"),
        (json.dumps({**ROW, "entry_point": "not a name"}), "field entry_point"),
        (json.dumps({**ROW, "question": "\ud800"}), "field question"),
        (json.dumps(ROW), "repeats line 1"),
        ("[" * 100_000, "nested too deeply"),
        ('{"id": ' + "1" * 5000 + "}", "a number too long"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_field(tmp_path: Path, bad: str, named: str) -> None:
    path = write_lines(tmp_path / "p.jsonl", json.dumps(ROW), "", bad)
    with pytest.raises(UserError) as caught:
        read_problems(path)
    assert f"{path}:3" in caught.value.what
    assert named in caught.value.what
    assert caught.value.hint


def test_rows_past_the_limit_are_not_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", json.dumps(ROW), "{")
    assert len(read_problems(path, limit=1)) == 1


def test_a_row_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b"\n\xff\xfe\n")
    with pytest.raises(UserError, match=r"p\.jsonl:2: not UTF-8"):
        read_problems(path)


def test_a_byte_order_mark_and_crlf_are_no_error(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\r\n")
    assert read_problems(path) == [Problem(**ROW)]


@pytest.mark.parametrize("name", ["p.csv", "p", "p.json"])
def test_a_file_is_read_by_its_content_and_written_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps([ROW]))
    if not name.endswith("csv"):
        assert read_problems(tmp_path / name) == [Problem(**ROW)]
    with pytest.raises(UserError, match="format"):
        write_problems(tmp_path / name, [])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_a_user_error(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_problems(tmp_path / f"none{suffix}")


def test_a_broken_container_is_a_user_error(tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(json.dumps({**ROW, "id": str(i)}) for i in range(1000)).encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-20])
    (tmp_path / "plain.jsonl.gz").write_text("{}")
    (tmp_path / "text.parquet").write_text("{}")
    for name in ("cut.jsonl.gz", "plain.jsonl.gz", "text.parquet"):
        with pytest.raises(UserError) as caught:
            read_problems(tmp_path / name)
        assert name in caught.value.what


@given(st.binary(max_size=200))
def test_any_bytes_are_problems_or_a_user_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("wild") / "p.jsonl"
    path.write_bytes(data)
    error, problems = None, []
    try:
        problems = read_problems(path)
    except UserError as caught:
        error = caught
    assert problems == []
    assert error is None or str(path) in error.what


def test_a_reference_may_be_missing_where_none_is_needed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", json.dumps({key: ROW[key] for key in ROW if key != "reference"}))
    (problem,) = read_problems(path, references=False)
    assert problem.reference == ""


def test_a_problem_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Problem(**ROW).question = "other"  # type: ignore[misc]


@pytest.mark.shared
def test_every_row_of_the_data_is_read_without_a_warning(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    train, val = (read_problems(shared / f"data/{name}.jsonl") for name in ("train", "val"))
    assert (len(train), len(val)) == (1859, 103)
    assert caplog.records == []
    raw = json.loads((shared / "data/val.jsonl").read_text().splitlines()[-1])
    assert {k: v for k, v in val[-1].model_dump().items() if k in raw} == raw
    assert set(raw) <= set(FIELDS)
