"""`codea1 eval-tests` as a user calls it."""

import json

import pytest
from hand_made import ADD, NEG, SIGN

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.evals.tests import evaluation

TASKS = [
    {"task_id": "1", "code": ADD, "func_name": "add", "prompt": "Adds.", "test_list": ["assert add(1, 0) == 5"]},
    {"task_id": "2", "code": SIGN, "func_name": "sign", "prompt": "Sign.", "test_list": []},
    {"task_id": "3", "code": "import nowhere\n" + NEG, "func_name": "neg", "prompt": "Negates.", "test_list": []},
]
SUITES = [
    {"task_id": "1", "asserts": ["assert add(2, 2) == 4", "assert add(1, 0) == 1"]},
    {"task_id": "2", "suite": "assert sign(5) == 1\nassert sign(-3) == 1"},
    {"task_id": "77", "suite": "assert f(1) == 1"},
]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "ult.json").write_text(json.dumps(TASKS))
    (tmp_path / "suites.jsonl").write_text("\n".join(map(json.dumps, SUITES)))
    return tmp_path


@pytest.fixture
def call(capsys):
    def invoke(*words):
        capsys.readouterr()
        code = run_app(app, ["eval-tests", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


def ult(files, *more):
    return ("ult", "--data", files / "ult.json", "--suites", files / "suites.jsonl", "--k", 2, "--tests", 4, *more)


def test_suites_are_scored_without_a_model(files, call):
    code, out, _ = call(*ult(files, "--out", files / "r", "--json"))
    found = json.loads(out)
    assert code == 0
    assert list(found["not_loading"]) == ["3"]
    assert found["unknown_suites"] == ["77"]
    figures = found["protocols"]["published"]
    assert (figures["protocol"], figures["functions"], figures["pass@2"]) == ("published", 2, 75.0)
    assert figures["mut@2_all"] == pytest.approx(100 * 10 / 11)
    assert figures["mutation_unconditional"] == pytest.approx(100 * (10 / 11 + 6 / 16) / 2)
    honest = found["protocols"]["one-shot"]
    assert honest["mutation"] == pytest.approx(100 * (10 / 11 + 6 / 16) / 2)
    assert honest["mutation_by_calls"] == pytest.approx(100 * (10 / 11 + 13 / 16) / 2)
    assert honest["intervals"]["mutation"]["functions"] == 2
    assert json.loads((files / "r/results.json").read_text())["protocols"] == found["protocols"]


def test_tables_say_their_protocol_and_the_conditional_figure_its_condition(files, call):
    code, out, err = call(*ult(files, "--out", files / "r", "--table"))
    assert code == 0
    assert "published protocol (2 functions, 27 mutants)" in out
    assert "one-shot protocol (2 functions, 27 mutants)" in out
    assert "mut@2, conditional" in out
    assert "all 2 tests pass" in out
    assert "10/11" in out
    assert "does not load: 3" in err


def test_the_same_folder_goes_on_and_other_settings_are_refused(files, call, monkeypatch):
    first = json.loads(call(*ult(files, "--out", files / "r", "--json"))[1])
    rows = files / "r/rows.published.jsonl"
    rows.write_text(rows.read_text().splitlines()[0] + '\n{"cut of')  # as if stopped amid the second row
    scored = []
    plain = evaluation.Scorer.score

    def counted(self, protocol, function, suite):
        scored.append((protocol, function.id))
        return plain(self, protocol, function, suite)

    monkeypatch.setattr(evaluation.Scorer, "score", counted)
    again = json.loads(call(*ult(files, "--out", files / "r", "--json"))[1])
    assert scored == [("published", "2")]
    assert again["protocols"] == first["protocols"]
    code, _, err = call(*ult(files, "--out", files / "r", "--memory-mb", 256))
    assert code == 2
    assert "other settings: scoring" in err


def test_compare_two_results(files, call):
    call(*ult(files, "--out", files / "a"))
    better = [{"task_id": "2", "asserts": ["assert sign(5) == 1", "assert sign(-3) == -1"]}, *SUITES[:1]]
    (files / "suites.jsonl").write_text("\n".join(map(json.dumps, better)))
    call(*ult(files, "--out", files / "b"))
    code, out, _ = call("compare", files / "a", files / "b", "--json")
    found = {(one["protocol"], one["figure"]): one for one in json.loads(out)}
    passed = found["published", "pass"]
    assert code == 0
    assert (passed["a"], passed["b"], passed["difference"]) == (75.0, 100.0, 25.0)
    assert (passed["won"], passed["lost"], passed["functions"]) == (["2"], [], 2)
    mutation = found["one-shot", "mutation"]
    assert mutation["difference"] == pytest.approx(100 * (13 - 6) / 16 / 2)
    assert "B - A" in call("compare", files / "a", files / "b")[1]
    assert call("compare", files / "a")[0] == 2
    assert "no folder of eval-tests results" in call("compare", files / "a", files)[2]


def test_own_files_show_the_survivors(files, call):
    own = files / "own.py"
    own.write_text(f'"""Mine."""\nLIMIT = 1 + 1\n\n\n{SIGN}\n\n{ADD}')
    suites = files / "mine.jsonl"
    suites.write_text(
        '{"task_id": "sign", "suite": "assert sign(5) == 1\\nassert sign(-3) == -1\\nassert sign(0) == 0"}'
    )
    code, out, _ = call(own, "--suites", suites, "--out", files / "own-results")
    assert code == 0
    assert "sign: 2 of 3 tests pass, 13 of 16 mutants killed, 3 survive" in out
    assert "failed: assert sign(0) == 0" in out
    assert "-    if x > 0:" in out
    assert "+    if x >= 0:" in out
    assert "LIMIT" not in out
    assert "add:" not in out
    found = json.loads(call(own, "--suites", suites, "--out", files / "own-results", "--json")[1])
    assert [len(row["survivors"]) for row in found["functions"]] == [3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "nothing to test is called 'nothing'"),
        (("ult", "x"), "unexpected argument x"),
        (("ult", "--protocol", "mine"), "no protocol is called 'mine'"),
        (("gone.py",), "cannot read gone.py"),
        (("ult", "--data", "/nowhere"), "no UnLeakedTestBench below /nowhere"),
    ],
)
def test_wrong_usage(call, words, said):
    code, out, err = call(*words)
    assert code == 2
    assert said in err
    assert out == ""


def test_suites_for_nobody(files, call):
    (files / "suites.jsonl").write_text('{"task_id": "x", "suite": ""}')
    code, _, err = call(*ult(files))
    assert code == 2
    assert "no suite of" in err
