"""`codea1 eval-tests` as a user calls it."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.errors import UserError
from codea1_cli.evals.test_generation import evaluation, job
from codea1_cli.models.sampler import ModelRef
from codea1_cli.runs import policy_folders as model_reference
from tests.evals.test_generation.hand_made import ADD, NEG, SIGN

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


def written(folder):
    (folder / "ult.json").write_text(json.dumps(TASKS))
    (folder / "suites.jsonl").write_text("\n".join(map(json.dumps, SUITES)))
    return folder


@pytest.fixture
def files(tmp_path):
    return written(tmp_path)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """The results of these suites, in the folder `r`."""
    folder = written(tmp_path_factory.mktemp("scored"))
    assert run_app(app, ["eval-tests", *map(str, ult(folder, "--out", folder / "r", "--json"))]) == 0
    return folder / "r"


@pytest.fixture
def there(files, scored):
    """A copy of them beside the files."""
    return shutil.copytree(scored, files / "r")


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


def test_suites_are_scored_without_a_model(scored):
    found = json.loads((scored / "results.json").read_text())
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


def test_tables_say_their_protocol_and_the_conditional_figure_its_condition(files, there, call):
    code, out, err = call(*ult(files, "--out", there, "--table"))
    assert code == 0
    assert "published protocol (2 functions, 27 mutants)" in out
    assert "one-shot protocol (2 functions, 27 mutants)" in out
    assert "mut@2, conditional" in out
    assert "all 2 tests pass" in out
    assert "10/11" in out
    assert "does not load: 3" in err


def test_a_file_none_of_whose_functions_loads_is_an_error(files, call):
    (files / "mine.py").write_text("import nowhere_at_all\n\n\ndef f(x):\n    return x\n")
    (files / "s.jsonl").write_text('{"task_id": "f", "suite": "assert f(1) == 1"}\n')
    code, out, err = call(files / "mine.py", "--suites", files / "s.jsonl", "--out", files / "r")
    assert (code, out) == (2, "")
    assert "none of 1 function loads: f: load_error: ModuleNotFoundError" in err
    assert not (files / "r").exists()


def test_the_same_folder_goes_on_and_other_settings_are_refused(files, there, call, monkeypatch):
    first = json.loads((there / "results.json").read_text())
    rows = there / "rows.published.jsonl"
    rows.write_text(rows.read_text().splitlines()[0] + '\n{"cut of')  # as if stopped amid the second row
    scored = []
    plain = evaluation.Scorer.score

    def counted(self, protocol, function, suite):
        scored.append((protocol, function.id))
        return plain(self, protocol, function, suite)

    monkeypatch.setattr(evaluation.Scorer, "score", counted)
    again = json.loads(call(*ult(files, "--out", there, "--json"))[1])
    assert scored == [("published", "2")]
    assert again["protocols"] == first["protocols"]
    code, _, err = call(*ult(files, "--out", there, "--memory-mb", 256))
    assert code == 2
    assert "other settings: scoring" in err


def test_compare_two_results(files, scored, call):
    shutil.copytree(scored, files / "a")
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
    assert "not a folder of eval-tests results" in call("compare", files / "a", files)[2]


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
        (("ult", "x"), "too many arguments: x"),
        (("ult", "--protocol", "mine"), "no protocol is called 'mine'"),
        (("gone.py",), "cannot read gone.py"),
        (("ult", "--data", "/nowhere"), "no ULT below /nowhere"),
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


class Sampler:
    """Writes the same good and bad tests for any function of the files above."""

    def __init__(self):
        self.tokenizer, self.prompts, self.closed = self, 0, False
        self.tokens, self.seconds, self.spent = 0, 0.0, {}

    chat_template = "takes every role"

    def apply_chat_template(self, messages, tokenize=True, **_):
        if not tokenize:
            return "".join(message["content"] for message in messages)
        return [len(messages), *(ord(c) for c in messages[1]["content"])]

    def generate(self, prompts, settings):
        assert not self.closed
        self.prompts += len(prompts)
        self.tokens, self.seconds = self.tokens + 10 * len(prompts), self.seconds + 0.5
        return [[self.answer(prompt)] for prompt in prompts]

    def answer(self, prompt):
        text = "".join(map(chr, prompt[1:]))
        good = "assert add(2, 2) == 4" if "def add" in text else "assert sign(5) == 1"
        if "break this solution" in text:  # a whole suite
            return f"```python\n{good}\nassert nothing\n```"
        return good if prompt[0] == 2 else "Sorry."  # the first round, and the later ones

    def describe(self):
        return {"model": "fake", "engine": "fake"}

    def close(self):
        self.closed = True


@pytest.fixture
def sampler(monkeypatch):
    fake = Sampler()
    monkeypatch.setattr(job, "open_sampler", lambda model, engine, kept: fake)
    monkeypatch.setattr(model_reference, "find_model", lambda *_, **__: ModelRef("fake", label="fake"))
    monkeypatch.setattr(job, "context_of", lambda model: 16_384)
    monkeypatch.setattr(job, "reply_tokens", lambda model, usual: usual)
    return fake


def test_a_refused_job_leaves_no_folder_behind(files, call, sampler, monkeypatch):
    def refuse(self):
        raise UserError("the model takes 100 tokens", hint="lower --max-new-tokens")

    words = ("ult", "--data", files / "ult.json", "--k", 2, "--tests", 2, "--out", files / "r")
    with monkeypatch.context() as patch:
        patch.setattr(job.JobFolder, "_context", refuse)
        assert call(*words)[0] == 2
    assert not (files / "r").exists()
    assert call(*words, "--max-new-tokens", 50)[0] == 0


def test_what_can_be_told_before_sampling_is(files, call, sampler):
    """No coverage.py where the tests are to run, no folder to write."""
    python = files / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", files / "bare"], check=True)
    words = ("ult", "--data", files / "ult.json", "--k", 2, "--tests", 2, "--out")
    for more, said in (
        ((files / "r", "--python", python), "the interpreter that runs the tests has no coverage.py"),
        (("/sys",), "cannot write /sys"),
    ):
        code, _, err = call(*words, *more)
        assert (code, said in err, sampler.prompts) == (3, True, 0), err


def test_an_interrupt_is_answered_with_a_line(files, monkeypatch, capfd):
    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal came to nothing")

    monkeypatch.setattr(evaluation.Scorer, "faults", interrupted)
    assert run_app(app, ["eval-tests", *map(str, ult(files, "--out", files / "r"))]) == 130
    assert "interrupted; the same command goes on where it stopped" in capfd.readouterr().err


def test_a_model_is_sampled_once_and_its_suites_kept(files, call, sampler, monkeypatch):
    monkeypatch.chdir(files)
    closed, score = [], job.score_all
    monkeypatch.setattr(job, "score_all", lambda *a, **k: closed.append(sampler.closed) or score(*a, **k))
    words = ("ult", "--data", files / "ult.json", "--k", 2, "--tests", 2, "--json")
    code, out, _ = call(*words)
    found = json.loads(out)
    assert (code, sampler.prompts, closed) == (0, 2 * 2 + 2, [True, True])  # the GPU is free when scoring begins
    assert (found["tokens_sampled"], found["tokens_per_second"]) == (60, 40.0)
    assert found["folder"] == "eval-tests/fake-ult"
    assert found["model"] == {"model": "fake", "engine": "fake"}
    assert found["protocols"]["published"]["pass@2"] == 50.0
    assert found["protocols"]["one-shot"]["right_tests"] == 50.0
    assert found["protocols"]["one-shot"]["mutation"] == pytest.approx(100 * (9 / 11 + 6 / 16) / 2)
    assert json.loads(call(*words)[1])["protocols"] == found["protocols"]
    assert sampler.prompts == 6
    kept = files / "eval-tests/fake-ult/suites.published.jsonl"
    again = json.loads(call("ult", "--data", files / "ult.json", "--suites", kept, "--k", 2, "--json")[1])
    assert again["protocols"]["published"] == found["protocols"]["published"]


def test_a_model_writes_suites_for_an_own_file(files, call, sampler):
    (files / "own.py").write_text(SIGN)
    code, out, _ = call(files / "own.py", "--out", files / "r")
    assert code == 0
    assert "sign: 1 of 2 tests pass, 6 of 16 mutants killed, 10 survive" in out


def test_functions_without_a_suite_are_counted_and_said(files, call):
    (files / "suites.jsonl").write_text(json.dumps(SUITES[0]))
    out = call(*ult(files, "--out", files / "r", "--json"))[1]
    assert json.loads(out)["without_suite"] == ["2"]
    assert json.loads(out)["protocols"]["published"]["pass@2"] == 50.0
    assert "no suite" in call(*ult(files, "--out", files / "r"))[2]


def test_sampling_here_and_scoring_elsewhere(files, call, sampler, monkeypatch):
    monkeypatch.setattr(job, "Scorer", None)  # nothing is scored
    words = ("ult", "--data", files / "ult.json", "--k", 2, "--tests", 2, "--out", files / "r")
    code, _, err = call(*words, "--sample-only")
    assert (code, sampler.prompts) == (0, 3 * 2 + 3)
    assert "suites in" in err
    monkeypatch.undo()
    monkeypatch.setattr(model_reference, "find_model", lambda *_, **__: ModelRef("/elsewhere/fake", label="fake"))
    found = json.loads(call(*words, "--json")[1])
    assert found["protocols"]["published"]["pass@2"] == 50.0
    code, _, err = call(*ult(files), "--only-sample")
    assert code == 2
    assert "nothing is sampled with --sample-only" in err
