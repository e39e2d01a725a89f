"""`eval-code --select`: one of n samples by a Test LLM's tests; what the Test LLM would write is given."""

import gzip
import json

import pytest

from codea1_cli.evals import best_of_n
from codea1_cli.evals.benchmark import statement
from codea1_cli.evals.best_of_n import Candidates, matrix_of
from codea1_cli.models.loading import load_tokenizer
from codea1_cli.tiny import model_path
from tests.evals.evalplus.conftest import TASKS

ADD = [
    "def add(a, b):\n    return a - b",
    "def add(a, b):\n    return a + b",
    "def add(a, b):\n    return b + a",
    "def add(",
]
HALVES = ["def halves(xs):\n    return xs", "def halves(xs):\n    return [x / 2 for x in xs]"]
SOLUTIONS = [("HumanEval/0", one) for one in ADD] + [("HumanEval/1", one) for one in HALVES]
REPLIES = {
    "add": ["assert add(1, 2) == 3\nassert add(1, 2) == 4\nassert add(5, 5) == 0", "assert add(1, 2) == 3", "no test"],
    "halves": ["assert halves([1, 2]) == [0.5, 1.0]", "assert halves([3]) == [1.5]"],
}


class Writer:
    """A Test LLM that says what is written above, and keeps what it was asked."""

    def __init__(self):
        self.tokenizer, self.asked = load_tokenizer(str(model_path())), []

    def generate(self, prompts, settings):
        texts = [self.tokenizer.decode(ids) for ids in prompts]
        self.asked += texts
        names = ["halves" if "halves" in text or "Half" in text else "add" for text in texts]
        return [(REPLIES[name] * settings.n)[: settings.n] for name in names]

    def close(self):
        pass


@pytest.fixture
def writer(monkeypatch):
    made = Writer()
    monkeypatch.setattr(best_of_n, "open_sampler", lambda *_: made)
    return made


@pytest.fixture
def samples(tmp_path):
    rows = [{"task_id": task, "solution": solution} for task, solution in SOLUTIONS]
    file = tmp_path / "s.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


BY = ("--test-model", "builtin:tiny", "--suites", 3)


def rows_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_solution_is_chosen_scored_and_chosen_again_from_what_is_kept(
    command, release, samples, writer, tmp_path, monkeypatch
):
    ask = ("eval-code", "humaneval", "--samples", samples, "--data", release)
    code, out, err = command(*ask, "--select", "tests", *BY)
    assert code == 0
    chosen = tmp_path / "s.builtin-tiny-m3-s0.tests.jsonl"
    assert [(row["task_id"], row["solution"]) for row in rows_of(chosen)] == [
        ("HumanEval/0", ADD[1]), ("HumanEval/1", HALVES[1]),
    ]  # fmt: skip
    assert f"chosen by tests: {chosen}" in err
    assert len(writer.asked) == 2
    told = json.loads((tmp_path / "s.results.json").read_text())["selection"]
    plus = told["figures"]["tests"]["plus"]
    means = [plus[key]["mean"] for key in ("pass@1", "selected", "oracle", "gap_closed")]
    assert means == [0.5, 1.0, 1.0, 1.0]
    assert "by tests" in out
    assert "gap closed" in out
    first, second = rows_of(tmp_path / "s.builtin-tiny-m3-s0.matrix.jsonl")
    assert first["asserts"] == [
        {"assert": "assert add(1, 2) == 3", "suites": 2, "passed": [0, 1, 1, 0]},
        {"assert": "assert add(5, 5) == 0", "suites": 1, "passed": [1, 0, 0, 0]},
    ]
    assert first["answers"] == {"add(1, 2)": [0, 1, 1, None], "add(5, 5)": [0, 1, 1, None]}
    assert second["asserts"][0]["passed"] == [0, 1]

    # Another selector: nothing is sampled or run, not even scored.
    def never(*_):
        raise AssertionError("something was sampled or run")

    monkeypatch.setattr(best_of_n, "open_sampler", never)
    monkeypatch.setattr("codea1_cli.sandbox.local.LocalSandbox.run", never)
    code, out, _ = command(*ask, "--select", "codet", "--json")
    again = json.loads(out)["selection"]
    assert (code, again["figures"]) == (0, told["figures"])
    assert rows_of(tmp_path / "s.builtin-tiny-m3-s0.codet.jsonl") == rows_of(chosen)


def test_suites_against_each_sample_show_it_and_never_a_reference(command, release, samples, writer, tmp_path):
    ask = ("eval-code", "humaneval", "--samples", samples, "--data", release, "--sample-only", "--select", "codet")
    assert command(*ask, *BY, "--each")[0] == 0
    assert (tmp_path / "s.builtin-tiny-m3-each-s0.codet.jsonl").is_file()
    assert not (tmp_path / "s.results.json").exists()
    assert len(writer.asked) == len(SOLUTIONS)
    assert "return b + a" in writer.asked[2]
    code, _, err = command(*ask, *BY, "--each", "--tests", 3)
    assert code == 2
    assert "was sampled with other settings: tests 8 there, 3 now" in err


def test_a_poisoned_reference_changes_no_choice(command, samples, writer, tmp_path):
    """Every byte that is kept of choosing is the same whatever references and tests say."""
    kept = []
    for poison in ({}, {"canonical_solution": "    raise SystemExit\n", "base_input": [[7]], "test": "assert 0"}):
        data = tmp_path / "humaneval_plus.jsonl.gz"
        data.write_bytes(gzip.compress("".join(json.dumps(task | poison) + "\n" for task in TASKS).encode()))
        ask = ("eval-code", "humaneval", "--samples", samples, "--data", data, "--sample-only", "--select", "tests")
        assert command(*ask, *BY)[0] == 0
        files = sorted(tmp_path.glob("s.builtin-tiny*"))
        kept.append([(file.name, file.read_bytes()) for file in files] + writer.asked)
        writer.asked.clear()
        for file in files:
            file.unlink()
    assert len(kept[0]) == 6
    assert kept[0] == kept[1]


def test_what_the_test_llm_is_asked_is_the_prompts_statement():
    asked = statement("HumanEval/0", "add", TASKS[0]["prompt"])
    assert (asked.declaration, asked.question) == ("def add(a: int, b: int) -> int:", "Add two numbers.")
    mbpp = statement("Mbpp/2", "shared", '"""\nWhat two lists share.\nassert set(shared([1], [2])) == set()\n"""\n')
    assert mbpp.declaration == "def shared(a, b):"
    assert mbpp.question.startswith("What two lists share.\nassert set(")
    assert mbpp.meta == {"argument_types": ["list", "list"]}
    assert statement("x", "f", "Write f.").declaration == "def f(*args):"
    assert not any((one.tests, one.extra_tests, one.test_code) != ([], [], None) for one in (asked, mbpp))


class Broken:
    workers, layers = 1, {}

    def run(self, program, entry_point, calls, limits, hash_seed=0):
        from codea1_cli.sandbox.base import ProgramRun

        return ProgramRun.unscored(len(calls), "gone")

    def close(self):
        pass


def test_a_sandbox_that_fails_chooses_nothing(command, release, samples, writer, tmp_path, monkeypatch):
    one = Candidates(statement("HumanEval/0", "add", TASKS[0]["prompt"]), tuple(ADD))
    assert matrix_of(Broken(), one, REPLIES["add"]) is None
    monkeypatch.setattr("codea1_cli.sandbox.make.make_sandbox", lambda *_: Broken())
    ask = ("eval-code", "humaneval", "--samples", samples, "--data", release, "--select", "tests", "--sample-only")
    code, _, err = command(*ask, *BY)
    assert code == 3
    assert "nothing chosen, the sandbox failed on HumanEval/0, HumanEval/1" in err
    assert rows_of(tmp_path / "s.builtin-tiny-m3-s0.tests.jsonl") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("humaneval", "--select", "luck"), "--select luck is unknown"),
        (("humaneval", "--suites", "4"), "without --select no tests are written, so --suites would have no effect"),
        (("humaneval", "--select", "tests"), "no tests are kept beside"),
        (("bigcodebench", "--select", "tests"), "--select is not for bigcodebench"),
    ],
)
def test_wrong_usage(command, release, samples, words, said):
    code, _, err = command("eval-code", *words, "--samples", samples, "--data", release)
    assert code == 2
    assert said in err
