"""`codea1 eval-code` from end to end with the embedded model on three tasks."""

import json
import os
import platform
import signal
import weakref
from pathlib import Path

import pytest

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.evals import scoring
from codea1_cli.evals.results import result_file
from codea1_cli.models import sampler_engines
from codea1_cli.models.sampler_engines import TransformersSampler

OPTIONS = ("--model", "builtin:tiny", "--n", "2", "--max-new-tokens", "12", "--workers", "1")
RIGHT = {
    "HumanEval/0": "def add(a, b):\n    return a + b",
    "HumanEval/1": "def halves(xs):\n    return [x * 0.5 for x in xs]",
    "HumanEval/2": "def words(text):\n    return text.split()",
}
BASE_ONLY = {**RIGHT, "HumanEval/2": "def words(text):\n    return text.split(' ') if text else []"}


def write(path, solutions, copies=1):
    path.write_text(
        "".join(json.dumps({"task_id": t, "solution": s}) + "\n" for t, s in solutions.items() for _ in range(copies))
    )
    return path


@pytest.mark.e2e
def test_samples_are_made_scored_and_kept(command, release, tmp_path, monkeypatch):
    models, gone = [], []
    load, score_them = sampler_engines._load, scoring.score_samples

    def loaded(*arguments):
        model = load(*arguments)
        models.append(weakref.ref(model))
        return model

    monkeypatch.setattr(sampler_engines, "_load", loaded)
    monkeypatch.setattr(scoring, "score_samples", lambda *a: gone.append(models[0]() is None) or score_them(*a))
    code, out, _ = command("eval-code", "humaneval", *OPTIONS, "--data", release, "--json")
    assert code == 0
    result = json.loads(out)
    assert gone == [True]  # the GPU is free when scoring begins
    assert result["tokens_per_second"] > 0
    assert 6 <= result["tokens_sampled"] <= 6 * 12
    assert result["figures"]["plus"]["tasks"] == 3
    assert {"pass@1", "pass@2", "avg@2", "interval"} <= set(result["figures"]["plus"])
    assert [row["n"] for row in result["tasks"].values()] == [2, 2, 2]
    assert result["references"] == {"tasks": 3, "rate": 1.0, "failing": {}, "not_run": {}, "lacking": {}}
    assert result["model"]["engine"] == "transformers"
    assert len(result["data_hash"]) == len(result["model"]["chat_template_hash"]) == 16
    assert result["sampling"]["temperature"] == 0.7
    files = sorted(path.name for path in (tmp_path / "evals" / "humaneval").iterdir())
    stem = "builtin-tiny-evalplus-n2-t0.7-s0"
    assert files == [
        f"{stem}{end}" for end in (".jsonl", ".origin.json", ".raw.jsonl", ".results.json", ".settings.json")
    ]
    assert result["machine"]["python"] == platform.python_version()

    # Scored again, by the same command or as given samples, they are still known for what made them.
    again = json.loads(command("eval-code", "humaneval", *OPTIONS, "--data", release, "--json")[1])
    file = tmp_path / "evals" / "humaneval" / f"{stem}.jsonl"
    score = ("eval-code", "humaneval", "--samples", file, "--data", release, "--json", "--limit", "2")
    given = json.loads(command(*score)[1])
    for other in (again, given):
        assert {key: other[key] for key in ("model", "sampling", "style")} == {
            key: result[key] for key in ("model", "sampling", "style")
        }
    assert (given["limit"], given["figures"]["plus"]["tasks"]) == (2, 2)
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    assert "model" not in json.loads(command(*score)[1]), "another file: nobody knows what made it"


@pytest.mark.e2e
def test_interrupted_sampling_goes_on_and_gives_the_same_texts(command, release, tmp_path, monkeypatch):
    arguments = ("eval-code", "humaneval", *OPTIONS, "--data", release, "--sample-only", "--out", "a/s.jsonl")
    assert command(*arguments)[0] == 0
    path, raw = tmp_path / "a/s.jsonl", tmp_path / "a/s.raw.jsonl"
    whole, raws = path.read_bytes(), raw.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:20])  # a task and a half, and a torn line
    asked = []
    generate = TransformersSampler.generate

    def counted(self, prompts, settings):
        asked.append(len(prompts))
        return generate(self, prompts, settings)

    monkeypatch.setattr(TransformersSampler, "generate", counted)
    assert command(*arguments)[0] == 0
    assert asked == [2]
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())
    assert sorted(raw.read_bytes().splitlines()) == sorted(raws.splitlines())
    code, _, err = command(*arguments)
    assert (code, asked) == (0, [2])
    assert "all samples are there" in err
    code, _, err = command(*arguments, "--temperature", "0.5")
    assert code == 2
    assert "other settings: temperature 0.7 there, 0.5 now" in err


def test_a_sample_file_is_scored(command, release, tmp_path):
    file = write(tmp_path / "s.jsonl", BASE_ONLY, copies=2)
    code, out, err = command("eval-code", "humaneval", "--samples", file, "--data", release, "--per-task")
    assert code == 0
    assert "100.0%" in out
    assert "66.7%" in out
    assert "references that pass here: 100.0% of 3" in out
    result = json.loads((tmp_path / "s.results.json").read_text())
    assert result["tasks"]["HumanEval/2"] == {
        "n": 2, "unscored": 0, "not_run": 0, "timeouts": 0, "base": 2, "plus": 0
    }  # fmt: skip
    assert "s.results.json" in err


def test_below_the_threshold_is_exit_4(command, release, tmp_path):
    file = write(tmp_path / "s.jsonl", BASE_ONLY)
    ask = ("eval-code", "humaneval", "--samples", file, "--data", release)
    assert command(*ask, "--fail-under", "0.6")[0] == 0
    code, _, err = command(*ask, "--fail-under", "0.7")
    assert code == 4
    assert "pass@1 is 0.6667, below --fail-under 0.7" in err


def test_two_results_are_compared_while_their_samples_stay(command, release, tmp_path):
    for name, solutions in (("a", BASE_ONLY), ("b", RIGHT)):
        command("eval-code", "humaneval", "--samples", write(tmp_path / f"{name}.jsonl", solutions), "--data", release)
    code, out, _ = command("eval-code", "compare", "a.jsonl", "b.results.json", "--json")
    assert code == 0
    base, plus = json.loads(out)["columns"]
    assert (base["won"], base["lost"], plus["won"], plus["lost"]) == ([], [], ["HumanEval/2"], [])
    assert plus["difference"]["mean"] == pytest.approx(1 / 3)
    assert (plus["a"], plus["b"]) == (pytest.approx(2 / 3), 1.0)
    code, out, _ = command("eval-code", "compare", "a.jsonl", "b.jsonl")
    assert "won by B (plus): HumanEval/2" in out
    assert command("eval-code", "compare", "a.jsonl", "none.jsonl")[0] == 2

    # Changed samples are not compared by their old scores.
    write(tmp_path / "b.jsonl", BASE_ONLY)
    code, _, err = command("eval-code", "compare", "a.jsonl", "b.jsonl")
    assert code == 2
    assert "b.jsonl was changed after it was scored" in err
    assert "`codea1 eval-code humaneval --samples b.jsonl` scores it again" in err
    assert command("eval-code", "compare", "a.jsonl", "b.results.json")[0] == 0  # the result that is named is taken


def test_a_comparison_says_which_tasks_it_leaves_out(command, release, tmp_path):
    few = {task: RIGHT[task] for task in ("HumanEval/1", "HumanEval/2")}
    for name, solutions in (("a", RIGHT), ("b", few)):
        command("eval-code", "humaneval", "--samples", write(tmp_path / f"{name}.jsonl", solutions), "--data", release)
    code, out, err = command("eval-code", "compare", "a.jsonl", "b.jsonl", "--json")
    assert code == 0
    assert (json.loads(out)["only_a"], json.loads(out)["only_b"]) == (1, 0)
    assert "the other result lacks them: 1 of A, 0 of B" in err


def test_uneven_sample_counts_are_told(command, release, tmp_path):
    file = write(tmp_path / "s.jsonl", RIGHT, copies=2)
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    _, _, err = command("eval-code", "humaneval", "--samples", file, "--data", release)
    assert "tasks have 1 to 2 samples: pass@k is given up to k = 1" in err


def test_out_says_where_the_result_of_given_samples_goes(command, release, tmp_path):
    (tmp_path / "in").mkdir()
    file = write(tmp_path / "in" / "s.jsonl", RIGHT)
    places = {out: result_file(file, Path(out)) for out in ("r/mine.json", ".", "r/t.jsonl")}
    assert list(map(str, places.values())) == ["r/mine.json", "s.results.json", "r/t.results.json"]
    code, _, err = command("eval-code", "humaneval", "--samples", file, "--data", release, "--out", "r/t.jsonl")
    assert code == 0
    assert json.loads((tmp_path / "r/t.results.json").read_text())["figures"]["plus"]["pass@1"] == 1.0
    assert [path.name for path in file.parent.iterdir()] == ["s.jsonl"]
    assert "scoring: 3 of 3" in err  # no terminal: plain lines of progress


def test_a_result_that_cannot_be_written_is_refused_before_scoring(command, release, tmp_path):
    file = write(tmp_path / "s.jsonl", RIGHT)
    (tmp_path / "wall").write_text("")
    code, _, err = command("eval-code", "humaneval", "--samples", file, "--data", release, "--out", "wall/r.json")
    assert code == 3
    assert "the result wall/r.json cannot be written" in err
    assert "choose another place with --out" in err
    assert "scoring" not in err
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_answered_with_a_line(release, tmp_path, monkeypatch, capfd, number):
    def interrupted(*_):
        os.kill(os.getpid(), number)
        raise AssertionError("the signal came to nothing")

    monkeypatch.setattr("codea1_cli.evals.scoring.score_samples", interrupted)
    file = write(tmp_path / "s.jsonl", RIGHT)
    code = run_app(app, ["eval-code", "humaneval", "--samples", str(file), "--data", str(release)])
    assert code == 130
    assert "interrupted; the references' answers are kept, the same command scores" in capfd.readouterr().err


def test_raw_samples_are_sanitised(command, release, tmp_path):
    raw = {task: f"Sure:\n```python\n{source}\n```\nDone." for task, source in RIGHT.items()}
    file = write(tmp_path / "s.jsonl", raw)
    ask = ("eval-code", "humaneval", "--samples", file, "--data", release, "--json")
    assert json.loads(command(*ask)[1])["figures"]["plus"]["pass@1"] == 0.0
    assert json.loads(command(*ask, "--sanitise")[1])["figures"]["plus"]["pass@1"] == 1.0
    assert command("eval-code", "sanitise", "humaneval", file, "--data", release)[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "s-sanitized.jsonl").read_text().splitlines()]
    assert {row["task_id"]: row["solution"] for row in rows} == RIGHT
    before = file.read_text()
    code, _, err = command("eval-code", "sanitise", "humaneval", file, "--data", release, "--out", file)
    assert (code, file.read_text()) == (2, before)
    assert "s.jsonl exists\nhint: choose another --out" in err


@pytest.mark.parametrize(("made", "said"), [("mkdir", "is a folder"), ("touch", "no out.settings.json says how")])
def test_samples_go_to_a_file_of_their_own(command, release, tmp_path, made, said):
    getattr(tmp_path / "out.jsonl", made)()
    ask = ("eval-code", "humaneval", "--model", "builtin:tiny", "--data", release, "--out", tmp_path / "out.jsonl")
    code, _, err = command(*ask)
    assert code == 2
    assert said in err


def test_samples_of_few_tasks(command, release, tmp_path):
    file = write(tmp_path / "s.jsonl", {"HumanEval/0": RIGHT["HumanEval/0"], "HumanEval/99": "x"})
    code, out, err = command("eval-code", "humaneval", "--samples", file, "--data", release, "--json")
    assert code == 0
    assert "no sample, in no figure: 2 of 3 tasks" in err
    assert json.loads(out)["references"]["tasks"] == 1
    completion = tmp_path / "c.jsonl"
    completion.write_text(json.dumps({"task_id": "HumanEval/0", "completion": "    return a + b\n"}) + "\n")
    _, out, _ = command("eval-code", "humaneval", "--samples", completion, "--data", release, "--json")
    assert json.loads(out)["figures"]["plus"]["pass@1"] == 1.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "builtin:tiny", "--data", "nowhere"), "no HumanEval+ below nowhere"),
        (("--data", "nowhere"), "there is no run in runs"),  # the model is looked for before anything is fetched
        (("--prompt", "poem", "--data", "DATA"), "--prompt poem is unknown"),
        (("--model", "nothing", "--data", "DATA"), "no run and no model is named 'nothing'"),
        (("--samples", "no.jsonl", "--data", "DATA"), "cannot read no.jsonl"),
        (("--subset", "hard", "--data", "DATA"), "humaneval has no subset"),
    ],
)
def test_wrong_usage(command, release, words, said):
    code, _, err = command("eval-code", "humaneval", *(release if word == "DATA" else word for word in words))
    assert code == 2
    assert said in err
    assert "hint: " in err
    assert "Traceback" not in err


def test_offline_without_data(command):
    code, _, err = command("eval-code", "mbpp", "--model", "builtin:tiny")
    assert code == 3
    assert "no file of MBPP+ is here" in err
    assert "--data FILE" in err
    assert "CODEA1_BENCHMARKS" in err


def test_a_cache_that_takes_no_file(command, release, tmp_path, monkeypatch):
    samples, taken = write(tmp_path / "s.jsonl", RIGHT), tmp_path / "taken"
    taken.touch()
    score = ("eval-code", "humaneval", "--samples", samples, "--data", release)
    code, _, err = command(*score, "--cache", taken / "below")
    assert code == 2
    assert f"error: --cache {taken}/below lies below {taken}, which is a file" in err
    monkeypatch.setenv("CODEA1_CACHE", str(taken / "below"))
    code, _, err = command(*score)
    assert code == 0
    assert "the references run each time" in err


@pytest.mark.parametrize("given", [("--n", "3"), ("--model", "builtin:tiny"), ("--sample-only",), ("--engine", "vllm")])
def test_options_of_sampling_beside_samples_are_refused(command, release, tmp_path, given):
    samples = write(tmp_path / "s.jsonl", RIGHT)
    code, _, err = command("eval-code", "humaneval", "--samples", samples, "--data", release, *given)
    assert code == 2
    assert f"nothing is sampled with {given[0]}" in err


@pytest.mark.parametrize("given", [("--fail-under", "0.5"), ("--per-task",)])
def test_options_of_scoring_beside_sample_only_are_refused(command, release, given):
    code, _, err = command(
        "eval-code", "humaneval", "--model", "builtin:tiny", "--data", release, "--sample-only", *given
    )
    assert code == 2
    assert f"so {given[0]} would have no effect" in err


def test_some_tasks_do_not_pass_a_threshold_for_all(command, release, tmp_path):
    samples = write(tmp_path / "s.jsonl", {"HumanEval/0": RIGHT["HumanEval/0"]})
    score = ("eval-code", "humaneval", "--samples", samples, "--data", release, "--fail-under", "0.5")
    code, out, err = command(*score, "--json")
    assert code == 4
    assert "without a sample: 2 of 3 tasks, below --fail-under 0.5" in err
    assert json.loads(out)["tasks_without_sample"] == 2
    assert command(*score, "--limit", "1")[0] == 0


def test_sanitising_without_given_samples_is_refused(command, release):
    code, _, err = command("eval-code", "humaneval", *OPTIONS, "--data", release, "--sanitise")
    assert code == 2
    assert "--sanitise is for --samples" in err
