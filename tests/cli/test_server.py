"""Commands that sample from a server: nothing heavy is loaded, what came is kept, what is missing is asked for."""

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest

from codea1_cli import network
from codea1_cli.cli import app, write_tests
from codea1_cli.models import KEY, TEST_KEY
from codea1_cli.tiny import model_path
from tests.cli.test_help import HEAVY, PROBE
from tests.evals.evalplus.conftest import TASKS
from tests.models.stand_in_server import StandIn, completion, stand_in_server
from tests.sandbox.shared import soon

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


def test_nothing_heavy_is_loaded_and_the_key_goes_nowhere(server: StandIn, release: Path, tmp_path: Path) -> None:
    words = ("eval-code", "humaneval", "--server", server.url, "--model", "org/m", "--data", str(release), "--n", "2")
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=HEAVY), *words, "--sample-only", "--json"],
        capture_output=True, text=True, check=True, env={**os.environ, "CODEA1_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "HEAVY"
    told = json.loads(done.stdout)
    assert told["server"] == {"requests": 3, "sampled": 3, "prompt_tokens": 21, "completion_tokens": 9}
    assert (told["model"]["engine"], told["model"]["server"]) == ("server", server.url)
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
    scored = call(app, *(word for word in words if word != "--sample-only"), "--json")
    assert (scored.code, len(server.bodies)) == (0, 4), "all of it is there"
    assert json.loads(scored.out)["figures"]["plus"]["pass@1"] == pytest.approx(2 / 3)
    assert json.loads(scored.out)["server"] == told["server"]
    other = call(app, *(word.replace("127.0.0.1", "localhost") for word in words))
    assert (other.code, len(server.bodies)) == (2, 4)
    assert "server 'http://127.0.0.1" in other.err, "samples of two servers are not mixed"


def test_another_server_may_write_the_tests_that_choose(server: StandIn, release: Path, call, monkeypatch) -> None:
    monkeypatch.setenv(TEST_KEY, "sk-other")
    words = ("eval-code", "humaneval", "--server", server.url, "--model", "m", "--data", str(release), "--limit", "1")
    words = (*words, "--n", "2", "--select", "tests", "--suites", "2", "--sample-only", "--max-requests", "2")
    with stand_in_server() as other:
        other.answer = lambda body, _: completion(*["```python\nassert add(1, 2) == 3\n```"] * body["n"])
        chosen = call(app, *words, "--test-model", "t", "--test-server", other.url)
        assert chosen.code == 0
        assert "the server: 2 requests; 14 prompt tokens, 6 sampled" in chosen.err
        assert [(one.bodies[0]["model"], one.headers["Authorization"]) for one in (server, other)] == [
            ("m", "Bearer sk-secret"), ("t", "Bearer sk-other"),
        ]  # fmt: skip
        assert (len(server.bodies), len(other.bodies)) == (1, 1)
    assert call(app, *words).code == 0, "the same model writes them where no other is named"
    assert (len(server.bodies), "write tests" in str(server.bodies[1]["messages"])) == (2, True)


def test_tests_for_a_file_go_on_from_the_answers_that_were_kept(
    server: StandIn, tmp_path: Path, call, monkeypatch
) -> None:
    (tmp_path / "mine.py").write_text("".join(f"def {name}(a: int) -> int:\n    return a + 1\n\n\n" for name in "fg"))

    def suite(body, number):
        name = "f" if "def f" in body["messages"][1]["content"] else "g"
        return completion(*[f"```python\nassert {name}(1) == 3\n```"] * body["n"])

    server.answer = suite
    words = (
        "write-tests",
        "mine.py",
        "--server",
        server.url,
        "--model",
        "m",
        "--n",
        "2",
        "--find-bugs",
        "--json",
    )
    with monkeypatch.context() as patch:  # nothing runs before all is sampled
        patch.setattr(write_tests, "open_sandbox", lambda _: contextlib.nullcontext(SimpleNamespace(workers=1)))
        patch.setattr(write_tests, "_leave_broken", lambda *_: None)
        patch.setattr("codea1_cli.evals.test_generation.evaluation.Scorer", lambda *_: None)
        stopped = call(app, *words, "--concurrency", "1", "--max-requests", "1")
    assert (stopped.code, len(server.bodies)) == (3, 1)
    assert "1 answer kept: the same command goes on" in stopped.err
    done = call(app, *words)
    assert (done.code, len(server.bodies)) == (0, 2)
    assert [one["votes"] for one in done.data["alarms"]] == [1, 1]  # equal samples are one vote
    assert done.data["server"]["requests"] == 1
    assert "1 request, 1 answer of earlier calls; 14 prompt tokens, 6 sampled" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_problems_are_solved_and_tested_by_a_server(server: StandIn, tmp_path: Path, call) -> None:
    rows = [
        {
            "prompt": f"Add {n}.",
            "answer": f"def add_{n}(x):\n    return x + {n}",
            "checks": [f"assert add_{n}(1) == {n + 1}"],
        }
        for n in range(3)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def solved(body, number):
        n = next(n for n in range(3) if f"Add {n}." in json.dumps(body["messages"]))
        tests = "assert" in json.dumps(body["messages"])
        code = f"assert add_{n}(4) == {n + 4}" if tests else f"def add_{n}(x):\n    return x + {n}"
        return completion(*[f"```python\n{code}\n```", "nothing"][: body.get("n", 1)])

    server.answer = solved
    at = ("--server", server.url)
    maps = ("--map", "question=prompt", "--map", "reference=answer", "--map", "tests=checks")
    words = ("prepare-data", "rows.jsonl", "--out", "data", *maps, "--no-decontaminate", "--no-verify", "--val", "0")
    done = call(app, *words, "--no-dedup", "--format", "jsonl", "--solve-rate", "m", "--n", "2", "--json", *at)
    assert done.code == 0
    assert (json.loads(done.out)["solve_rates"], json.loads(done.out)["server"]["requests"]) == ({"0.5": 3}, 3)
    assert not list(tmp_path.rglob("*.replies.jsonl"))
    made = call(
        app,
        "make-pairs",
        "data/train.jsonl",
        "--role",
        "code",
        *at,
        "--samples",
        "m",
        "--n",
        "2",
        "--out",
        "p",
        "--json",
    )
    assert made.code == 0
    assert (json.loads(made.out)["pairs"], json.loads(made.out)["server"]["requests"]) == (3, 3)
    golden = call(
        app,
        "write-tests",
        "--problems",
        "data/train.jsonl",
        "--model",
        "m",
        *at,
        "--n",
        "1",
        "--out",
        "g.jsonl",
        "--json",
    )
    assert golden.code == 0
    assert (json.loads(golden.out)["tests"], json.loads(golden.out)["server"]["requests"]) == (3, 3)
    assert f"--server {server.url}" in (tmp_path / "g.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eval-code", "humaneval", "--server", "http://127.0.0.1:9/v1"), "which model of http://127.0.0.1:9/v1?"),
        (("eval-code", "humaneval", "--server", "http://a/v1", "--model", "m", "--step", "3"), "has no step"),
        (("eval-code", "humaneval", "--max-requests", "3"), "without --server there is no use for --max-requests"),
        (("eval-code", "humaneval", "--server", "http://a/v1", "--engine", "vllm"), "--engine vllm has no effect"),
        (("eval-code", "humaneval", "--test-server", "http://a/v1"), "without --select"),
        (("eval-code", "humaneval", "--samples", "s", "--server", "http://a/v1"), "nothing is sampled with --server"),
        (("write-tests", __file__, "--patience", "3"), "without --server there is no use for --patience"),
        (("make-pairs", "builtin:tiny/train", "--role", "code", "--out", "p", "--server", "http://a/v1"), "--samples"),
        (("prepare-data", "r.jsonl", "--out", "p", "--server", "http://a/v1"), "--server samples for --solve-rate"),
    ],
)
def test_what_would_have_no_effect_is_refused(words: tuple[str, ...], said: str, call) -> None:
    refused = call(app, *words)
    assert refused.code == 2
    assert said in refused.err


@pytest.mark.slow
@pytest.mark.skipif(not all(map(find_spec, ("fastapi", "openai", "uvicorn"))), reason="its packages are not here")
def test_the_embedded_model_behind_transformers_serve(tmp_path: Path, call) -> None:
    """A real server, whose packages codea1 does not need: `uv run --with fastapi --with openai pytest -m slow` has them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    serve = "from transformers.cli.transformers import main; main()"
    words = (sys.executable, "-c", serve, "serve", str(model_path()), "--port", port, "--host", "127.0.0.1")
    with open(tmp_path / "log", "w") as log:
        running = subprocess.Popen(
            [*words, "--device", "cpu"], stdout=log, stderr=log, env={**os.environ, "HF_HUB_OFFLINE": "1"}
        )

    def well() -> bool:
        assert running.poll() is None, (tmp_path / "log").read_text()
        try:
            return bool(urlopen(f"http://127.0.0.1:{port}/health", timeout=10).status == 200)
        except OSError:
            return False

    try:
        assert soon(well, 600)
        at = ("--server", f"http://127.0.0.1:{port}/v1", "--samples", str(model_path()))
        words = ("make-pairs", "builtin:tiny/train", "--role", "code", *at, "--limit", "10", "--n", "2", "--json")
        stopped = call(app, *words, "--out", tmp_path / "p", "--max-requests", "5")
        assert stopped.code == 3
        assert "5 answers kept" in stopped.err
        made = call(app, *words, "--out", tmp_path / "p")
        assert made.code == 0
        told = json.loads(made.out)
        assert told["pairs"] >= 5
        assert (told["server"]["kept"], told["server"]["requests"]) == (5, 15), (
            "it ignores n: a request for each sample"
        )
        assert told["server"]["prompt_tokens"] > 100 < told["server"]["completion_tokens"]
    finally:
        running.terminate()
        running.wait(60)
