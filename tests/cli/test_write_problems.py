"""`codea1 write-tests --problems`: what a model would write is given."""

import json
from types import SimpleNamespace

import pytest

from codea1_cli.cli import app
from codea1_cli.data import golden
from codea1_cli.evals import best_of_n
from codea1_cli.problems.problem import read_problems
from tests.data.test_golden import DOUBLE, SUITES


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The command on a file of one problem in an empty folder; what the Test LLM would write is given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.jsonl").mkdir()
    for foreign in ("mine.jsonl", "notes.md"):
        (tmp_path / foreign).write_text("my own")
    (tmp_path / "bare.jsonl").write_text(DOUBLE.model_copy(update={"reference": ""}).model_dump_json() + "\n")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "train.jsonl").write_text(DOUBLE.model_dump_json() + "\n")
    sampled = []
    writer = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(best_of_n, "open_sampler", lambda *_: writer)
    monkeypatch.setattr(best_of_n, "context_of", lambda _: 512)
    monkeypatch.setattr(best_of_n, "sample_replies", lambda _, shown, *__: sampled.extend(shown) or iter([SUITES]))
    return sampled


ASK = (
    "write-tests",
    "--problems",
    "train.jsonl",
    "--model",
    "builtin:tiny",
    "--max-new-tokens",
    "64",
    "--out",
    "golden.jsonl",
)


def test_the_command_writes_a_set_with_its_card_and_keeps_what_was_sampled(asked, call, tmp_path):
    done = call(app, *ASK, "--tests", 3)
    assert done.code == 0
    [problem] = read_problems(tmp_path / "golden.jsonl", references=False)
    assert problem.tests == ["assert double(2) == 4", "assert double(3) == 7", "assert double('a') == 'aa'"]
    assert "8 asserts read, 3 duplicates" in done.err
    assert "next: codea1 train --recipe tiny method=golden-tests data.train=golden.jsonl" in done.err
    assert "33.3% of the tests state another answer than the reference" in done.err
    card = json.loads((tmp_path / "golden.card.json").read_text())
    assert card["stated_rightly"] == 0.5
    page = (tmp_path / "golden.md").read_text()
    assert page.startswith("# 1 problem with 3 tests by builtin:tiny")
    assert "| stated_rightly | 50.0 % |" in page
    assert [(problem.reference, shown) for problem, shown in asked] == [("# kept by the arena", None)]

    assert "another answer" not in call(app, *ASK, "--tests", 3, "--validate").err
    again = call(app, *ASK, "--tests", 3, "--validate", "--min-exposed", 1, "--json")
    assert again.code == 0, again.err
    assert (again.code, again.data["tests"], len(asked)) == (0, 2, 1), "nothing is sampled again"


def test_a_call_that_ended_while_it_wrote_goes_on(asked, call, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(golden, "table", lambda *_: 1 / 0)  # between the set and its page
        assert call(app, *ASK).code != 0
    assert (tmp_path / "golden.jsonl").exists()
    assert not (tmp_path / "golden.md").exists()
    assert call(app, *ASK).code == 0
    assert (tmp_path / "golden.md").exists()


def test_it_may_show_the_reference(asked, call):
    assert call(app, *ASK, "--white-box").code == 0
    assert [shown for _, shown in asked] == [DOUBLE.reference]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("write-tests",), "nothing to write tests for"),
        ((*ASK, "mine.py"), "two things to write tests for"),
        (("write-tests", "mine.py", "--validate"), "--validate is for --problems"),
        ((*ASK, "--find-bugs"), "--find-bugs is for Python files"),
        (ASK[:-2], "--problems needs a file to write"),
        ((*ASK[:-1], "golden.txt"), "cannot tell the format of golden.txt"),
        ((*ASK[:-1], "folder.jsonl"), "folder.jsonl is a folder"),
        ((*ASK[:-1], "train.jsonl"), "--out train.jsonl is the problem set itself"),
        ((*ASK[:-1], "mine.jsonl"), "mine.jsonl is there already, and this command did not write it"),
        ((*ASK[:-1], "notes.jsonl"), "notes.md is there already, and this command did not write it"),
        (
            ("write-tests", "--problems", "bare.jsonl", *ASK[3:], "--validate"),
            "no problem of bare.jsonl has a reference",
        ),
        (("write-tests", "--problems", "bare.jsonl", *ASK[3:], "--white-box"), "which --white-box needs"),
        (
            ("write-tests", "--problems", "empty.jsonl", *ASK[3:]),
            "empty.jsonl holds no problem\nhint: a row for each problem",
        ),
        ((*ASK, "--min-exposed", "1000"), "none of 1 problem has a test in the end: its tests expose fewer"),
    ],
)
def test_wrong_usage(asked, call, words, said, tmp_path):
    done = call(app, *words)
    assert (done.code, said in done.err) == (2, True), done.err
    assert not asked or "none of 1 problem" in said, "before anything is sampled"
    assert (tmp_path / "train.jsonl").read_text() == DOUBLE.model_dump_json() + "\n"
    assert {(tmp_path / foreign).read_text() for foreign in ("mine.jsonl", "notes.md")} == {"my own"}
