"""The whole preparation: what it leaves, that it goes on where it stopped, and that its bytes do not vary."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from codea1_cli.cli.console import run_app
from codea1_cli.cli.prepare_data import prepare_data
from codea1_cli.data import WorkFolder
from codea1_cli.data.folder import split_of
from codea1_cli.data.pipeline import Pipeline
from codea1_cli.data.sources.rows import FileRows
from codea1_cli.data.sources.table import MappedRows
from codea1_cli.data.verify import Verifier
from codea1_cli.problems.problem import read_problems
from codea1_cli.recipe.data_options import Options
from codea1_cli.recipe.resources import problems_file, training_problems
from codea1_cli.recipe.schema import Data, Recipe

app = typer.Typer()
app.command()(prepare_data)
QUIET = ["--no-decontaminate"]
VERBS = ["scale", "shift", "shrink", "stretch", "mirror", "fold", "clip", "blend", "round", "wrap", "tilt", "merge"]


def row(i):
    verb, noun = VERBS[i % len(VERBS)], f"widget{i}"
    return {
        "id": f"row-{i}",
        "question": f"{verb.title()} the {noun} by {i} and count {verb}{i} again, please{i}.",
        "reference": f"def f{i}(x):\n    y{i} = x * {i} + {i}\n    return [y{i}, {'-' * (i % 5)}{i}] * {1 + i % 3}",
        "tests": [f"assert f{i}({k}) == {[k * i + i, (-1) ** (i % 5) * i] * (1 + i % 3)}" for k in range(3)],
    }


def write(path, rows):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
    return path


def prepare(capsys, source, out, *words):
    capsys.readouterr()
    code = run_app(app, [str(source), "--out", str(out), *QUIET, "--workers", "1", *map(str, words)])
    return code, capsys.readouterr()


def contents(folder: Path):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != "slow.jsonl"}


@pytest.fixture
def rows(tmp_path):
    broken = ['{"id": "broken"', {**row(1), "id": "twin", "question": "Another wording."}, {**row(2), "id": "row-0"}]
    wrong = {**row(50), "tests": ["assert f50(0) == 3"]}
    near = {**row(51), "question": row(3)["question"].upper()}
    bare = {**row(52), "tests": []}
    return write(tmp_path / "own.jsonl", [*(row(i) for i in range(20)), *broken, wrong, near, bare])


def test_what_a_preparation_leaves(tmp_path, rows, capsys):
    out = tmp_path / "out"
    code, shown = prepare(capsys, rows, out, "--val", 0.2, "--report", "--license", "MIT")
    assert code == 0, shown.err
    card = json.loads((out / "card.json").read_text())
    assert card["read"] == 26
    assert card["removed"] == {
        "read": {"broken_row": 1},
        "filter": {"too_few_tests": 1},
        "duplicates": {"same_code": 1, "same_id": 1},
        "verify": {"fails_own_test": 1},
        "near": {"near_question": 1},
    }
    assert card["kept"] == 20 == sum(card["splits"].values())
    assert card["licenses"] == {"MIT": 20}
    assert card["tests"] == {"3": 20}
    train, val = read_problems(out / "train.jsonl"), read_problems(out / "val.jsonl")
    assert {p.id for p in train} | {p.id for p in val} == {f"row-{i}" for i in range(20)}
    assert train == read_problems(out / "train.parquet")
    assert val == read_problems(out / "val.parquet")
    assert val
    removed = [json.loads(line) for line in (out / "removed.jsonl").read_text().splitlines()]
    assert removed[0]["where"] == f"{rows}:21"
    assert "not JSON" in removed[0]["detail"]
    by_reason = {line["reason"]: line for line in removed}
    assert (by_reason["same_code"]["id"], by_reason["same_code"]["other"]) == ("twin", "row-1")
    assert (by_reason["near_question"]["id"], by_reason["near_question"]["other"]) == ("row-51", "row-3")
    assert by_reason["near_question"]["score"] >= 0.85
    readme = (out / "README.md").read_text()
    assert "codea1 prepare-data own.jsonl --out DIR --license MIT --no-decontaminate --val 0.2" in readme
    for needed in ("MIT: 20", "near_question", card["files"]["train.jsonl"]["sha256"], card["source"]["sha256"]):
        assert needed in readme
    assert str(tmp_path) not in readme
    for needed in ("near_question", "row-3", "tests a problem", "20 of 26 rows kept"):
        assert needed in shown.out
    assert training_problems(Recipe(model="m", data=Data(train=str(out)))) == train


def test_the_same_input_gives_the_same_bytes(tmp_path, rows, capsys):
    for name in ("a", "b"):
        assert prepare(capsys, rows, tmp_path / name)[0] == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    before = contents(tmp_path / "a")
    assert prepare(capsys, rows, tmp_path / "a")[0] == 0  # once more, from the work folder
    assert contents(tmp_path / "a") == before
    assert prepare(capsys, rows, tmp_path / "c", "--seed", 1)[0] == 0
    assert contents(tmp_path / "c")["train.jsonl"] != before["train.jsonl"]


def test_a_folder_is_read_anew_when_one_of_its_files_changed(tmp_path, capsys):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    write(folder / "a.jsonl", map(row, range(5)))
    write(folder / "b.jsonl", map(row, range(5, 10)))
    kept = []
    for rows in (range(5, 10), range(5, 8)):
        write(folder / "b.jsonl", map(row, rows))
        assert prepare(capsys, folder, out, "--no-verify", "--val", 0)[0] == 0
        kept.append(len(read_problems(out / "train.jsonl")))
    assert kept == [10, 8]
    readme = (out / "README.md").read_text()
    assert "| files.2.file | b.jsonl |" in readme
    assert "| split |" not in readme


def test_splits_stay_when_rows_are_added(tmp_path, capsys):
    few, many = write(tmp_path / "x.jsonl", map(row, range(5, 20))), write(tmp_path / "y.jsonl", map(row, range(30)))
    for source in (few, many):
        assert prepare(capsys, source, tmp_path / source.stem, "--no-verify", "--val", 0.3)[0] == 0
    places = [
        {p.id: name for name in ("train", "val") for p in read_problems(tmp_path / folder / f"{name}.jsonl")}
        for folder in ("x", "y")
    ]
    assert places[0].items() <= places[1].items()
    assert set(places[0].values()) == {"train", "val"}


def test_shares_of_splits():
    names = [split_of(f"id{i}", 0, 0.1, 0.2) for i in range(20_000)]
    assert abs(names.count("val") / len(names) - 0.1) < 0.01
    assert abs(names.count("test") / len(names) - 0.2) < 0.01


# -- going on ----------------------------------------------------------------------------------------------------------
class Stopping(MappedRows):
    """A table whose reading is interrupted at one row."""

    stop: int | None = None
    seen: list[dict]

    def convert(self, row):
        self.seen.append(row)
        if self.stop is not None and len(self.seen) > self.stop:
            raise KeyboardInterrupt
        return super().convert(row)


def run_pipeline(source, out, **options):
    settings = Options(decontaminate=False, workers=1, **options)
    with WorkFolder(out / ".work").locked() as work:
        return Pipeline(source, settings, work, lambda *_: None).run()


def test_reading_goes_on_where_it_stopped(tmp_path, rows):
    source = Stopping(FileRows(rows))
    source.seen, source.stop = [], 8
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(source, tmp_path, verify=False)
    read = tmp_path / ".work" / "read.jsonl"
    assert len(read.read_bytes().splitlines()) == 8
    with read.open("ab") as file:
        file.write(b'{"where": "torn')  # as a crash leaves it
    source.seen, source.stop = [], None
    prepared = run_pipeline(source, tmp_path, verify=False)
    assert len(source.seen) == 25 - 8  # one of the 26 rows is broken and never converted
    assert prepared.rows.count() == 21
    assert prepared.rows.get(0).id == "row-0"


def test_verification_is_done_once_and_used_again(tmp_path, rows, monkeypatch):
    checked: list[str] = []
    original = Verifier.check

    def check(self, problem):
        if len(checked) == 7 and stop:
            raise KeyboardInterrupt
        checked.append(problem.id)
        return original(self, problem)

    monkeypatch.setattr(Verifier, "check", check)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(MappedRows(FileRows(rows)), tmp_path)
    stop = False
    whole = run_pipeline(MappedRows(FileRows(rows)), tmp_path)
    assert len(checked) == len(set(checked)) == 22
    other = run_pipeline(MappedRows(FileRows(rows)), tmp_path, min_tests=0, threshold=["near_question=0.9"])
    assert set(checked[22:]) == {"row-52"}  # the only row that was not verified before
    assert other.rows.count() == whole.rows.count() + 1
    run_pipeline(MappedRows(FileRows(rows)), tmp_path, time_limit_s=9.0)
    assert len(checked) == 23 + 22  # other limits, another verification


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(tmp_path, capsys):
    source = write(tmp_path / "s.jsonl", map(row, range(150)))
    assert prepare(capsys, source, tmp_path / "whole")[0] == 0
    out = tmp_path / "killed"
    code = "import os, sys, typer; from codea1_cli.cli.console import run_app; from codea1_cli.cli.prepare_data import prepare_data\n"
    code += "import codea1_cli.data; codea1_cli.data._FLUSH_LINES = 8\n"
    code += "from codea1_cli.data.verify import Verifier; check, left = Verifier.check, iter(range(40))\n"
    code += "Verifier.check = lambda *a: check(*a) if next(left, -1) >= 0 else os.killpg(0, 9)\n"
    code += "a = typer.Typer(); a.command()(prepare_data); sys.exit(run_app(a, sys.argv[1:]))"
    words = [sys.executable, "-c", code, str(source), "--out", str(out), *QUIET, "--workers", "1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    assert process.wait() == -signal.SIGKILL
    assert "\n" in (out / ".work" / "verify.jsonl").read_text()
    assert not (out / "card.json").exists()
    assert {p.name for p in out.iterdir()} == {".work"}
    assert prepare(capsys, source, out)[0] == 0
    assert contents(out) == contents(tmp_path / "whole")


# -- wrong usage -------------------------------------------------------------------------------------------------------
def test_errors_have_hints_and_leave_nothing(tmp_path, rows, capsys):
    out = tmp_path / "out"
    for words in (
        ["--map", "question=qestion"],
        ["--map", "question"],
        ["--max-prompt-tokens", "9"],
        ["--threshold", "near=1"],
        ["--val", "0.7", "--test", "0.7"],
        ["--decontaminate"],
        ["--solve-rate", "m", "--keep", "0.9:0.1"],
        ["--mapping", str(tmp_path / "none.yaml")],
    ):
        code, shown = prepare(capsys, rows, out, *words)
        assert code == 2, words
        assert shown.err.count("error: ") == 1
        assert "hint: " in shown.err
        assert "Traceback" not in shown.err
    assert not (out / "train.jsonl").exists()


def test_without_a_network_and_benchmarks_it_goes_on_and_says_so(tmp_path, rows, capsys):
    out = tmp_path / "out"
    code = run_app(app, [str(rows), "--out", str(out), "--no-verify"])
    err = capsys.readouterr().err
    assert code == 0
    (line,) = (line for line in err.splitlines() if line.startswith("warning: "))
    assert line.startswith(
        "warning: not decontaminated against HumanEval+, MBPP+, BigCodeBench, ULT: HF_HUB_OFFLINE is set"
    )
    assert line.count("HF_HUB_OFFLINE") == 1
    card = json.loads((out / "card.json").read_text())
    assert card["benchmarks"] == {}
    assert card["notes"] == [
        "Not decontaminated against HumanEval+, MBPP+, BigCodeBench, ULT: no file of theirs was there."
    ]


def test_a_folder_with_other_files_is_left_alone(tmp_path, rows, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    code, shown = prepare(capsys, rows, tmp_path / "out")
    assert code == 2
    assert "thesis.txt" in shown.err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_nothing_left_is_a_failure_with_reasons(tmp_path, capsys):
    source = write(tmp_path / "s.jsonl", [{**row(1), "tests": []}, "{"])
    code, shown = prepare(capsys, source, tmp_path / "out")
    assert code == 2
    assert "too_few_tests 1" in shown.err
    assert f"the first: {source}:2: broken_row" in shown.err
    assert f"{source}:1: too_few_tests" in shown.err
    assert "hint: --min-tests 0 keeps" in shown.err
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_two_at_once_in_one_folder(tmp_path, rows, capsys):
    with WorkFolder(tmp_path / "out" / ".work").locked():
        code, shown = prepare(capsys, rows, tmp_path / "out")
    assert code == 2
    assert "prepares data in" in shown.err


def test_json_is_alone_on_stdout(tmp_path, rows, capsys):
    mapping = tmp_path / "m.yaml"
    mapping.write_text("question: question\n")
    code, shown = prepare(
        capsys, rows, tmp_path / "out", "--json", "--report", "--no-verify", "--format", "jsonl", "--mapping", mapping
    )
    assert code == 0
    data = json.loads(shown.out)
    assert data["kept"] == sum(data["splits"].values())
    assert {line["reason"] for line in data["report"]} >= {"broken_row", "same_id", "same_code"}
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_the_line_that_it_prints_names_the_files_that_it_wrote(tmp_path, rows, capsys):
    code, shown = prepare(capsys, rows, tmp_path / "out", "--no-verify", "--format", "parquet", "--val", 0.2)
    assert code == 0
    (line,) = (line for line in shown.err.splitlines() if line.startswith("next: "))
    named = dict(word.split("=", 1) for word in shlex.split(line) if word.startswith("data."))
    train, heldout = named["data.train"], named["data.heldout"]
    assert problems_file(train).name == "train.parquet"
    assert problems_file(heldout).name == "val.parquet"


KNOWN = (
    'def both(xs: list[int], ys: list[int]) -> list[int]:\n    """Which items of xs are also in ys?"""\n    return xs\n'
)
STRANGE = 'def fib(n: int) -> int:\n    """Evaluate the Fibonacci recurrence."""\n    return n\n'
FOREIGN = 'def mean(values: list[float]) -> float:\n    """Return the sum of the values."""\n    return sum(values)\n'


@pytest.mark.parametrize(
    ("sources", "recipe", "says"),
    [
        ([KNOWN], "tiny", []),
        ([KNOWN, STRANGE], "tiny", ["can read 1 of 2 problems", "has not seen words of the question: evaluate, fib"]),
        ([STRANGE, FOREIGN], "135m", ["can read 0 of 2 problems", "no function of the arguments: (list[float]) 1"]),
    ],
)
def test_the_embedded_model_is_offered_for_what_it_can_read(tmp_path, capsys, sources, recipe, says):
    """Arguments and words that it knows; what it does not is said, and where that is most, a model that does is offered."""
    for number, text in enumerate(sources):
        (tmp_path / f"m{number}.py").write_text(text)
    code, shown = prepare(capsys, tmp_path, tmp_path / "out", "--min-tests", 0, "--no-verify", "--val", 0)
    assert code == 0
    assert f"next: codea1 train --recipe {recipe} data.train=" in shown.err
    assert [text for text in says if text not in shown.err] == []
    assert says or "embedded model" not in shown.err


def test_text_that_no_file_can_hold_is_kept_out(tmp_path, capsys):
    source = write(tmp_path / "s.jsonl", [row(1), {**row(2), "question": "\ud800"}, row(3)])
    assert prepare(capsys, source, tmp_path / "out", "--no-verify")[0] == 0
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["removed"]["read"] == {"bad_field": 1}
