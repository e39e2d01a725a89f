"""An option that would change nothing is refused before anything is read, sampled or run."""

from typing import Any

import pytest
import typer

from codea1_cli.cli import app

SERVER = "http://127.0.0.1:9/v1"
VALUES = {
    "server": SERVER,
    "omit": "seed",
    "temperature": "0.5",
    "top_p": "0.5",
    "context": "100",
    "prompt": "base",
    "runs": ".",
}
GIVEN: dict[str, tuple[tuple[str, ...], str, str]] = {
    "eval-code": (("humaneval", "--samples", "s.jsonl"), "Sampling|A server", "runs model step"),
    "eval-tests": (("mine.py", "--suites", "s.jsonl"), "Sampling|A server", "runs model step tests"),
    "make-pairs": (("builtin:tiny/train", "--role", "code", "--out", "p"), "", "n temperature max_new_tokens"),
}


def command_of(name: str) -> Any:
    found: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return found.commands["humaneval"] if name == "eval-code" else found


def sampling_options() -> list[tuple[str, str]]:
    """Every option of sampling and of a server, by command: those of its panels, and those named above."""
    found = []
    for name, (_, headings, more) in GIVEN.items():
        panels = getattr(command_of(name).callback, "panels", {})
        names = {one for one, heading in panels.items() if heading in headings.split("|")} | set(more.split())
        found += [(name, one) for one in sorted(names)]
    return [*found, *(("make-pairs", one) for one in ("server", "concurrency", "max_requests", "omit", "patience"))]


@pytest.mark.parametrize(("name", "option"), sampling_options())
def test_options_of_sampling_are_refused_where_nothing_is_sampled(name, option, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    param = next(one for one in command_of(name).params if one.name == option)
    words = [max(param.opts, key=len), *([] if param.is_flag else [VALUES.get(option, "3")])]
    refused = call(app, name, *GIVEN[name][0], *words)
    assert (refused.code, refused.out) == (2, ""), refused.err
    assert words[0] in refused.err
    assert any(text in refused.err for text in ("nothing is sampled with", "no model is asked for", "is for --samples"))


SELECT = ("eval-code", "humaneval", "--samples", "s.jsonl", "--select", "tests")
PROBLEMS = ("write-tests", "--problems", "p.jsonl", "--out", "g.jsonl")
PAIRS = ("make-pairs", "builtin:tiny/train", "--role", "code", "--out", "p")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*SELECT, "--tests", "3"), "without --test-model the tests beside --samples are taken, so --tests would"),
        ((*SELECT, "--seed", "3", "--each"), "so --each, --seed would have no effect"),
        ((*SELECT, "--test-server", SERVER), "so --test-server would have no effect"),
        ((*SELECT, "--test-model", "m", "--omit", "seed"), "nothing is sampled with --omit"),
        (
            (*SELECT, "--test-model", "m", "--test-server", SERVER, "--engine", "vllm"),
            "--engine has no effect with --test-server",
        ),
        (("eval-code", "humaneval", "--sanitise"), "--sanitise is for --samples"),
        (("eval-code", "humaneval", "--select", "tests"), "none is chosen: --select needs --n 2 or more"),
        (
            ("eval-code", "mbpp", "--n", "1", "--select", "codet"),
            "none is chosen: --select needs --n 2 or more",
        ),
        (("eval-tests", "compare", "a", "b", "--model", "m"), "`compare` has no use for --model"),
        (("eval-tests", "compare", "a", "b", "--table"), "`compare` has no use for --table"),
        (("eval-tests", "mine.py", "--k", "2"), "--k is for a benchmark (ult), not for FILE.py"),
        (("eval-tests", "mine.py", "--protocol", "published", "--table"), "--protocol, --table is for a benchmark"),
        (("eval-tests", "ult", "--protocol", "one-shot", "--sample", "s"), "--sample is for the published protocol"),
        (("eval-tests", "ult", "--protocol", "published", "--tests", "3"), "--tests is for the one-shot protocol"),
        (("eval-tests", "ult", "--sample-only", "--table"), "--sample-only scores nothing, so --table would have"),
        ((*PROBLEMS, "--limit", "3"), "--limit is for Python files, not for --problems"),
        (("write-tests", "mine.py", "--min-exposed", "0"), "--min-exposed is for --problems"),
        ((*PAIRS, "--tests-per-suite", "3"), "--tests-per-suite is for --role test"),
        ((*PAIRS, "--no-white-box"), "--white-box is for --role test"),
        (
            ("prepare-data", "r.jsonl", "--out", "p", "--n", "3", "--keep", "0:1"),
            "without --solve-rate nothing is sampled, so --n, --keep would have no effect",
        ),
        (
            ("train", "--recipe", "135m", "data.source.temperature=0.5"),
            "without data.source.solve_rate nothing is sampled, so data.source.temperature would have no effect",
        ),
    ],
)
def test_what_changes_nothing_in_the_company_it_is_in_is_refused(words, said, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = call(app, *words)
    assert (refused.code, refused.out) == (2, ""), refused.err
    assert said in refused.err


def test_what_has_an_effect_is_taken(call, tmp_path, monkeypatch):
    """Each of these gets past the options: what is missing is a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def f(x):\n    return x\n")
    for words, said in (
        (
            ("eval-tests", "mine.py", "--suites", "s.jsonl", "--test-seconds", "2", "--limit", "3"),
            "s.jsonl: no such file",
        ),
        ((*SELECT, "--test-model", "builtin:tiny", "--tests", "3", "--seed", "2"), "s.jsonl: no such file"),
        (
            (*SELECT, "--test-model", "m", "--test-server", SERVER, "--omit", "seed", "--max-requests", "3"),
            "s.jsonl: no such file",
        ),
        (("make-pairs", "p.jsonl", *PAIRS[2:], "--samples", "builtin:tiny", "--n", "3"), "no problems at p.jsonl"),
    ):
        done = call(app, *words)
        assert (done.code, said in done.err) == (2, True), done.err
