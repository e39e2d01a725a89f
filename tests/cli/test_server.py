"""Commands that sample from a server: nothing heavy is loaded, what came is kept, what is missing is asked for."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codea1_cli import network
from codea1_cli.cli import app
from codea1_cli.models import KEY
from tests.cli.test_help import HEAVY, PROBE
from tests.evals.evalplus.conftest import TASKS
from tests.models.stand_in_server import StandIn, completion, stand_in_server

SOLUTIONS = {
    "Add two": "def add(a, b):\n    return a + b",
    "Half of": "def halves(xs):\n    return [x / 3 for x in xs]",
    "The words": "def words(text):\n    return text.split()",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(KEY, "sk-secret")
    monkeypatch.setattr(network, "_FIRST_PAUSE_S", 0.001)
    with stand_in_server() as found:

        def solved(body, number):
            asked = json.dumps(body["messages"])
            text = next(text for words, text in SOLUTIONS.items() if words in asked)
            return completion(*[f"Here:\n```python\n{text}\n```\n"] * body.get("n", 1))

        found.answer = solved
        yield found


@pytest.fixture
def release(tmp_path: Path) -> Path:
    path = tmp_path / "humaneval_plus.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(task) + "\n" for task in TASKS).encode()))
    return path


def test_eval_code_needs_neither_torch_nor_a_model_here(server: StandIn, release: Path, tmp_path: Path) -> None:
    words = (
        "eval-code",
        "humaneval",
        "--server",
        server.url,
        "--model",
        "org/m",
        "--data",
        release,
        "--n",
        "2",
        "--json",
    )
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=tuple(name for name in HEAVY if name != "numpy")), *map(str, words)],
        capture_output=True, text=True, check=True, env={**os.environ, "CODEA1_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "HEAVY"
    result = json.loads(done.stdout)
    assert result["figures"]["plus"]["pass@1"] == pytest.approx(2 / 3)
    assert result["server"] == {"requests": 3, "sampled": 3, "prompt_tokens": 21, "completion_tokens": 9}
    assert (result["model"]["engine"], result["model"]["server"]) == ("server", server.url)
    assert [list(message) for message in server.bodies[0]["messages"]] == [["role", "content"]], "the user's turn alone"
    assert "stop" not in server.bodies[0], "a reply begins with its own fence"
    folder = tmp_path / "evals" / "humaneval"
    assert not list(folder.glob("*.replies.jsonl"))
    assert "sk-secret" not in done.stderr + done.stdout + "".join(file.read_text() for file in folder.iterdir())


def test_what_stops_a_command_costs_no_answer(server: StandIn, release: Path, call, monkeypatch) -> None:
    solved = server.answer
    words = ("eval-code", "humaneval", "--server", server.url, "--model", "m", "--data", release, "--concurrency", "1")
    words = tuple(map(str, (*words, "--n", "2", "--sample-only", "--prompt", "codea1", "--out", "s.jsonl")))
    stopped = call(app, *words, "--max-requests", "2")
    assert (stopped.code, len(server.bodies)) == (3, 2)
    assert "--max-requests 2" in stopped.err
    assert "the same command goes on" in stopped.err
    monkeypatch.setattr(network, "_FIRST_PAUSE_S", 1e9)  # longer than any patience
    server.answer = lambda *_: (503, {}, b"busy")
    assert (call(app, *words).code, len(server.bodies)) == (3, 3)
    server.answer = solved
    done = call(app, *words, "--json")
    assert (done.code, len(server.bodies)) == (0, 4)
    told = json.loads(done.out)
    assert told["server"] == {"kept": 2, "requests": 1, "sampled": 1, "prompt_tokens": 21, "completion_tokens": 9}
    assert (call(app, *words).code, len(server.bodies)) == (0, 4), "all of it is there"
    other = call(app, *(word.replace("127.0.0.1", "localhost") for word in words))
    assert (other.code, len(server.bodies)) == (2, 4)
    assert "server 'http://127.0.0.1" in other.err, "samples of two servers are not mixed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eval-code", "humaneval", "--server", "http://127.0.0.1:9/v1"), "which model of http://127.0.0.1:9/v1?"),
        (("eval-code", "humaneval", "--server", "http://a/v1", "--model", "m", "--step", "3"), "has no step"),
        (("eval-code", "humaneval", "--max-requests", "3"), "without --server there is no use for --max-requests"),
        (("eval-code", "humaneval", "--server", "http://a/v1", "--engine", "vllm"), "--engine vllm has no effect"),
        (("eval-code", "humaneval", "--test-server", "http://a/v1"), "without --select"),
    ],
)
def test_what_would_have_no_effect_is_refused(words: tuple[str, ...], said: str, call) -> None:
    refused = call(app, *words)
    assert refused.code == 2
    assert said in refused.err
