"""The whole command line: help without heavy imports, and every command documented."""

import subprocess
import sys

import pytest
import typer

from codea1_cli import __version__
from codea1_cli.cli import app
from codea1_cli.cli.console import run_app

HEAVY = ("torch", "ray", "trl", "transformers", "datasets", "numpy", "pyarrow", "peft", "vllm", "accelerate")

PROBE = """
import sys
sys.argv = ["codea1", *sys.argv[1:]]
from codea1_cli.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = sorted(set({heavy!r}) & set(sys.modules))
print("HEAVY", *heavy, file=sys.stderr)
"""


def leaves(command, path=()):
    children = getattr(command, "commands", None)
    if children is None:
        return [path]
    return [leaf for name, child in children.items() for leaf in leaves(child, (*path, name))]


COMMANDS = leaves(typer.main.get_command(app))


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("mistakes", "--help"), ("recipes", "list")])
def test_light_commands_import_nothing_heavy(words):
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=HEAVY), *words], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "HEAVY"


def test_version(call):
    assert call(app, "--version").out == f"{__version__}\n"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_helps_speaks_json_and_hides_tracebacks(path, call):
    shown = call(app, *path, "--help")
    assert shown.code == 0
    for option in ("--json", "--verbose"):
        assert option in shown.out
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    assert command.help
    assert all(param.help for param in command.params if param.name != "help"), "an option without a help text"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_one_error_and_exit_2(path, call):
    done = call(app, *path, "--no-such-thing")
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [[], ["runs"], ["recipes"]])
def test_a_command_that_lacks_its_word_shows_what_there_is(words, capsys):
    assert run_app(app, words) == 2
    assert "Usage: codea1" in capsys.readouterr().err
