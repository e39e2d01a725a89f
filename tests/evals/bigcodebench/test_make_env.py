"""Which Python 3.10 the environment of BigCodeBench's libraries is made with."""

import shlex
import subprocess

import pytest

from codea1_cli.evals.bigcodebench.environment import _interpreter, main


def uv_that(tmp_path, status):
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\nexit {status}\n")
    uv.chmod(0o755)
    return str(uv)


@pytest.fixture
def pyenv(tmp_path, monkeypatch):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    python = tmp_path / "pyenv" / "versions" / "3.10.13" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def test_pyenvs_is_taken_where_uv_finds_none(tmp_path, pyenv):
    assert _interpreter(uv_that(tmp_path, 1), "3.10") == str(pyenv)


def test_uv_comes_first(tmp_path, pyenv):
    assert _interpreter(uv_that(tmp_path, 0), "3.10") == "3.10"


def test_without_either_uv_is_asked_to_bring_one(tmp_path, pyenv):
    assert _interpreter(uv_that(tmp_path, 1), "3.9") == "3.9"


def test_the_command_to_type_next_is_quoted(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("shutil.which", lambda _: uv_that(tmp_path, 0))
    monkeypatch.setattr("subprocess.run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    folder = tmp_path / "an environment"
    assert main([str(folder)]) == 0
    said = capsys.readouterr().out.strip().removeprefix("ready: ")
    assert shlex.split(said)[-1] == str(folder / "bin" / "python")


def test_a_failure_to_make_it_names_the_way_out(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("shutil.which", lambda _: uv_that(tmp_path, 2))
    monkeypatch.setattr("codea1_cli.evals.bigcodebench.environment._interpreter", lambda *_: "3.10")
    assert main(["/nowhere/env"]) == 2
    assert "--python PATH" in capsys.readouterr().err
