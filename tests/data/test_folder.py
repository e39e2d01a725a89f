"""A folder of tables is read file by file: every format, every file's bytes in the identity, errors name it."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from codea1_cli.data.sources import make_source
from codea1_cli.data.sources.python_folder import PythonFolder
from codea1_cli.errors import UserError
from codea1_cli.evals.registry import task_sources
from codea1_cli.recipe.data_options import SourceOptions


def row(name, **more):
    return {
        "question": f"Do {name}",
        "reference": f"def {name}(x):\n    return x",
        "tests": f"assert {name}(1) == 1",
        **more,
    }


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        import csv

        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


KINDS = ("a.jsonl", "b.jsonl.gz", "c.parquet", "D.CSV", "below/e.csv")


@pytest.fixture
def mixed(tmp_path):
    for name in KINDS:
        write(tmp_path / name.lower(), [row(f"f_{name[-1]}_{name[0].lower()}")])
    (tmp_path / "d.csv").rename(tmp_path / "D.CSV")
    return tmp_path


def entry_points(source):
    made = [(place, source.convert(row)) for place, row in source.records()]
    return {place: problem.entry_point for place, problem in made}


def test_every_file_of_every_format_is_read_in_the_order_of_the_paths(mixed):
    found = entry_points(make_source(str(mixed)))
    assert len(found) == len(KINDS)
    files = [place.removeprefix(f"{mixed}/").rpartition(":")[0] for place in found]
    assert files == sorted(KINDS)
    assert make_source(str(mixed)).title == mixed.name


@pytest.mark.parametrize("name", KINDS)
def test_a_change_of_any_file_changes_the_identity(mixed, name):
    before = make_source(str(mixed)).identity()
    assert [file["file"] for file in before["files"]] == sorted(KINDS)
    assert all(file["bytes"] and file["sha256"] for file in before["files"])
    assert make_source(str(mixed)).identity() == before
    write(mixed / name if name != "D.CSV" else mixed / "d.csv", [row("other")])
    if name == "D.CSV":
        os.replace(mixed / "d.csv", mixed / "D.CSV")
    assert make_source(str(mixed)).identity() != before


def test_added_removed_and_renamed_files_change_the_identity(mixed):
    seen = [make_source(str(mixed)).identity()]
    for change in (
        lambda: write(mixed / "z.jsonl", [row("z")]),
        lambda: (mixed / "z.jsonl").rename(mixed / "y.jsonl"),
        lambda: (mixed / "a.jsonl").unlink(),
    ):
        change()
        identity = make_source(str(mixed)).identity()
        assert identity not in seen
        seen.append(identity)


def test_files_with_other_columns(tmp_path):
    write(tmp_path / "d" / "a.jsonl", [row("a", level=1)])
    write(tmp_path / "d" / "b.csv", [{**row("b"), "level": "hard", "more": "x"}])
    assert list(entry_points(make_source(str(tmp_path / "d"))).values()) == ["a", "b"]
    write(tmp_path / "d" / "c.parquet", [{"prompt": "Q", "reference": "def c(): pass"}])
    with pytest.raises(UserError, match=r"^d/c\.parquet: no column 'question' for the field question") as failure:
        make_source(str(tmp_path / "d"))
    assert "prompt, reference" in failure.value.hint
    (tmp_path / "d" / "c.parquet").unlink()
    mapped = make_source(str(tmp_path / "d"), SourceOptions(maps=["license=more"]))  # not every file must have it
    assert [mapped.convert(row).license for place, row in mapped.records()] == ["", "x"]
    with pytest.raises(UserError, match="d: no column 'mroe' for the field license"):
        make_source(str(tmp_path / "d"), SourceOptions(maps=["license=mroe"]))


def test_broken_rows_of_a_folder_name_their_file(mixed):
    (mixed / "a.jsonl").write_text("{\n" + json.dumps(row("ok")) + "\n")
    by_place = dict(make_source(str(mixed)).records())
    assert by_place[f"{mixed}/a.jsonl:1"].reason == "broken_row"
    assert by_place[f"{mixed}/a.jsonl:2"]["question"] == "Do ok"
    (mixed / "c.parquet").write_bytes(b"no")
    with pytest.raises(UserError, match=r"c\.parquet: not a parquet file"):
        make_source(str(mixed))


def test_what_is_no_table_is_named_or_refused(tmp_path, caplog):
    write(tmp_path / "a.jsonl", [row("a")])
    (tmp_path / "README.md").write_text("hello")
    write(tmp_path / ".hidden" / "h.jsonl", [row("h")])
    write(tmp_path / "out" / "train.jsonl", [row("made")])
    (tmp_path / "out" / ".work").mkdir()
    assert list(entry_points(make_source(str(tmp_path))).values()) == ["a"]
    assert not caplog.messages
    for name in ("b.json", "c.tsv", "sub/m.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    make_source(str(tmp_path))
    assert "b.json, c.tsv, sub/m.py" in caplog.text
    (tmp_path / "m.py").write_text("x = 1")
    with pytest.raises(UserError, match=r"tables \(a\.jsonl\) and Python files \(m\.py\)") as failure:
        make_source(str(tmp_path))
    assert failure.value.hint


def test_tables_below_a_folder_and_data_files_of_a_package(tmp_path):
    write(tmp_path / "data" / "train-0.parquet", [row("a")])
    assert list(entry_points(make_source(str(tmp_path))).values()) == ["a"]
    (tmp_path / "m.py").write_text("def f():\n    'F.'\n")
    assert isinstance(make_source(str(tmp_path)), PythonFolder)


@pytest.mark.parametrize("name", ["kodcode", "mbpp"])
def test_a_folder_of_a_published_data_set(tmp_path, name):
    rows = {
        "kodcode": {
            "question_id": "1",
            "question": "Q",
            "solution": "def f(x):\n    return x",
            "test": "assert f(1) == 1",
        },
        "mbpp": {"task_id": 1, "text": "Q", "code": "def f(x):\n    return x", "test_list": ["assert f(1) == 1"]},
    }
    write(tmp_path / "a.jsonl", [rows[name]])
    write(tmp_path / "b.parquet", [rows[name]])
    source = make_source(name, SourceOptions(data=tmp_path))
    assert list(entry_points(source).values()) == ["f", "f"]
    assert [file["file"] for file in source.identity()["files"]] == ["a.jsonl", "b.parquet"]
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(UserError, match="no table in") as failure:
        make_source(name, SourceOptions(data=tmp_path))
    assert ".parquet" in failure.value.hint


@pytest.mark.parametrize("option", ["split", "revision", "config"])
def test_options_of_the_hub_do_not_go_with_local_files(mixed, option):
    own = {option: "train"}
    for spec in (mixed, mixed / "a.jsonl", *task_sources()):
        with pytest.raises(UserError, match=f"--{option} does not go with this source"):
            make_source(str(spec), SourceOptions(**own))
    for spec in ("kodcode", "mbpp"):
        for data in (mixed, None) if option == "config" else (mixed,):
            with pytest.raises(UserError, match=f"--{option} does not go with this source"):
                make_source(spec, SourceOptions(data=data, **own))
        if option != "config":
            make_source(spec, SourceOptions(**own))
