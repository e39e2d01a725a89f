"""A run on disk, and a way to call commands as the shell would."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
import typer

from codea1_cli.cli.console import run_app
from codea1_cli.runs.run_dir import RunDir
from tests.cli.fake_run import make_run


@dataclass(frozen=True)
class Called:
    """What a command did: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def call(capsys):
    """Calls a Typer app, or a bare command function, with words of a command line."""

    def invoke(app, *words: object) -> Called:
        if not isinstance(app, typer.Typer):
            single = typer.Typer()
            single.command()(app)
            app = single
        capsys.readouterr()
        code = run_app(app, [str(word) for word in words])
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunDir:
    """The run `first` in a folder of runs that CODEA1_RUNS names."""
    root = tmp_path / "runs"
    root.mkdir()
    monkeypatch.setenv("CODEA1_RUNS", str(root))
    return make_run(root)
