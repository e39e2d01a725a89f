"""The way out of a real process: what its terminal cannot show, a stdout that is closed, full or left, noisy libraries."""

import json
import os
import shlex
import subprocess
import sys
import textwrap

import pytest

from codea1_cli.cli.console import EXIT_ENVIRONMENT, EXIT_NO_READER
from codea1_cli.runs.run_dir import RunDir

ENCODINGS = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "POSIX": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "UTF-8": {"PYTHONIOENCODING": "utf-8"},
}
NOISY = r"""
    import atexit, os, sys, typer
    from codea1_cli.cli import console, streams
    app = typer.Typer()

    @app.command()
    def noise(as_json: console.JsonOption = False, rows: int = 1, bad: bool = False):
        print("a library prints")
        os.system("echo a child says")  # to descriptor 1, as libraries in C do
        atexit.register(lambda: (print("at the end"), os.system("echo at the very end")))
        console.note("a message: \u2588 \u0436 \U0001f600")
        if bad:
            raise ValueError("\u0436")
        for _ in range(rows):
            console.emit({"text": "\u0436 \u2588 \udc80", "rows": list(range(100))}) if as_json else console.out().print(
                console.table("\u0436", ("a",), [["\u2588\u2588 \u0436"]], framed=True)
            )

    sys.exit(console.run_app(app, last=True))
"""


@pytest.fixture
def encoding(request: pytest.FixtureRequest) -> str:
    """The name of an encoding; one in which Python finds the project."""
    if request.param == "POSIX" and not sys.prefix.isascii():
        pytest.skip("in this locale Python finds no package in a folder whose name is not ASCII")
    return str(request.param)


def noisy(words: str, *, env: dict[str, str] | None = None, shell: str = "{}") -> subprocess.CompletedProcess[bytes]:
    """A noisy command in a process of its own; `shell` says where its output goes."""
    command = f"{shlex.join([sys.executable, '-c', textwrap.dedent(NOISY)])} {words}"
    return subprocess.run(
        ["bash", "-c", "set -o pipefail; " + shell.replace("{}", command)],
        env={**os.environ, **(env or {})},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("encoding", ENCODINGS, indirect=True)
def test_every_text_is_shown_somehow(encoding: str) -> None:
    for words in ("", "--json", "--bad"):
        done = noisy(words, env=ENCODINGS[encoding])
        assert done.returncode == (1 if words == "--bad" else 0), done.stderr
        text = (done.stdout + done.stderr).decode("utf-8" if encoding == "UTF-8" else "ascii")
        assert "Traceback" not in text
        assert ("\u0436" if encoding == "UTF-8" else "\\u0436") in text
        if words == "--json":
            assert json.loads(done.stdout)["text"] == "\u0436 \u2588 \udc80"


def test_stdout_holds_the_document_alone_whatever_prints() -> None:
    done = noisy("--json")
    assert json.loads(done.stdout)["rows"][-1] == 99
    for said in (b"a library prints", b"a child says", b"at the end", b"at the very end"):
        assert said in done.stderr
    assert b"a library" not in noisy("").stdout


@pytest.mark.parametrize("words", ["--json --rows 5000", "--rows 5000"])
@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        ("{} | head -1", EXIT_NO_READER, b""),
        ("{} | true", EXIT_NO_READER, b""),
        ("{} > /dev/full", EXIT_ENVIRONMENT, b"error: stdout cannot be written: No space left on device\n"),
        ("{} >&-", EXIT_ENVIRONMENT, b"error: stdout is closed: the data has nowhere to go\n"),
        ("{} 2>&1 | head -1", EXIT_NO_READER, b""),
    ],
)
def test_a_stdout_that_takes_no_more_ends_the_command_quietly(shell: str, code: int, said: bytes, words: str) -> None:
    done = noisy(words, shell=shell)
    errors = [line for line in done.stderr.splitlines(True) if line.startswith((b"error", b"Exception", b"Traceback"))]
    assert b"".join(errors) == said
    assert done.returncode == code


@pytest.mark.parametrize("shell", ["{} 2>/dev/full", "{} 2>&-", "{} 2> >(true)", "{} 2>&- 0<&-"])
def test_messages_that_nobody_reads_stop_no_command(shell: str) -> None:
    done = noisy("--json", shell=shell)
    assert done.returncode == 0
    assert json.loads(done.stdout)["rows"]


def test_help_may_be_cut_short() -> None:
    done = noisy("--help", shell="for i in 1 2 3; do {} | true; done; {} > /dev/full")
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
    assert done.returncode == EXIT_ENVIRONMENT
    assert done.stderr == b"error: stdout cannot be written: No space left on device\n"


def test_a_width_of_no_columns_is_none() -> None:
    done = noisy("--rows 1", env={"COLUMNS": "0"})
    assert done.stdout == noisy("--rows 1").stdout != b""


@pytest.mark.parametrize("encoding", ENCODINGS, indirect=True)
def test_a_run_of_any_name_is_shown_and_its_commands_can_be_pasted(run: RunDir, encoding: str) -> None:
    named = run.path.rename(run.path.with_name("run \u00e9 1"))
    words = ["list"], ["inspect", "basic/double it:1"], ["export"]
    for word in words:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from codea1_cli.cli import main; main()",
                "mistakes",
                *word,
                "--runs",
                str(named.parent),
            ],
            env={**os.environ, **ENCODINGS[encoding], "COLUMNS": "80"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if word == ["list"] and encoding == "UTF-8":
            next_command = done.stderr.decode().partition("next: ")[2].strip()
            assert shlex.split(next_command)[3:5] == ["--run", "run \u00e9 1"]
