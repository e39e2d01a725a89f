"""The whole command line: help without heavy imports, every command documented, and what a shell completes."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import typer

from codea1_cli import __version__
from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.cli.shell import complete
from codea1_cli.errors import UserError

HEAVY = ("torch", "ray", "trl", "transformers", "datasets", "numpy", "pyarrow", "peft", "vllm", "accelerate")

PROBE = """
import sys
sys.argv = ["codea1", *sys.argv[1:]]
import codea1_cli.engine.shutdown  # the first that every command imports
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


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("mistakes", "--help"), ("recipes", "list"), ("complete", "train --")]
)
def test_light_commands_import_nothing_heavy(words, tmp_path):
    environment, heavy = dict(os.environ), (*HEAVY, "pydantic") if len(words) == 1 else HEAVY
    if words[0] == "complete":
        heavy = (*HEAVY, "rich")
        environment |= {"_CODEA1_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"codea1 {words[1]}"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=heavy), *words],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
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


def test_an_empty_value_is_refused_wherever_one_is_taken(call):
    """By every option and argument of every command: as a path it would be the current folder."""
    root, taken = typer.main.get_command(app), 0
    for path in COMMANDS:
        command = root
        for name in path:
            command = command.commands[name]
        arguments = 0
        for param in command.params:
            if getattr(param, "is_flag", False):
                continue
            taken += 1
            if param.param_type_name == "option":
                name = max(param.opts, key=len)
                words = [f"{name}="]
            else:
                name, words = (param.metavar or param.name).strip("[]."), [*["x"] * arguments, " "]
                arguments += 1
            with pytest.raises(UserError, match=f"^{re.escape(name)} is empty$"):
                command.make_context(path[-1], words)
    assert taken > 200
    done = call(app, "prepare-data", "x.jsonl", "--out", "")
    assert (done.code, done.out, done.err.splitlines()[0]) == (2, "", "error: --out is empty")


@pytest.mark.parametrize("below", ["", "/new"])
def test_a_file_where_a_folder_is_wanted_is_refused_wherever_one_is(call, tmp_path, below):
    """By every option of every command that takes DIR, be the folder read or made."""
    (tmp_path / "file").touch()
    root, wanted = typer.main.get_command(app), set()
    for path in COMMANDS:
        command = root
        for name in path:
            command = command.commands[name]
        needed = [param for param in command.params if param.required]
        words = [[] if param.param_type_name == "argument" else [max(param.opts, key=len)] for param in needed]
        given = [word for param, option in zip(needed, words, strict=True)
                 for word in (*option, "code" if param.name == "role" else "x")]  # fmt: skip
        for param in command.params:
            if param.metavar == "DIR":
                name = max(param.opts, key=len)
                wanted.add(name)
                with pytest.raises(UserError, match=rf"^{name} \S*/file{below} .*is a file$") as failure:
                    command.make_context(path[-1], [*given, f"{name}={tmp_path / 'file'}{below}"])
                assert ("a new name" in failure.value.hint) == (name != "--benchmarks")
    assert wanted == {"--runs", "--out", "--to", "--cache", "--benchmarks"}
    done = call(app, "runs", "list", "--runs", tmp_path / "file")
    assert (done.code, "hint: a folder is wanted" in done.err) == (2, True)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_one_error_and_exit_2(path, call):
    done = call(app, *path, "--no-such-thing")
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("export", "--to", "x", "--role", "nosuch"), ("mistakes", "export", "--format", "nosuch"),
        ("prepare-data", "x", "--out", "y", "--format", "nosuch"),
        ("recipes", "check", "tiny", "seed=nosuch", "eval.best=nosuch", "game.kill=nosuch"),
        ("recipes", "check", "tiny", "data.source={name: mbpp, limit: nosuch}", "game.trust=[1, 0]"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_without_the_name_of_an_exception(words, call):
    done = call(app, *words)
    assert (done.code, "nosuch" in done.out + done.err) == (2, True)
    assert "Value error" not in done.out + done.err


@pytest.mark.parametrize("words", [[], ["runs"], ["recipes"]])
def test_a_command_that_lacks_its_word_shows_what_there_is(words, capsys):
    assert run_app(app, words) == 2
    assert "Usage: codea1" in capsys.readouterr().err


def at(path):
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return command


@pytest.mark.parametrize(
    "path", [path for path in COMMANDS if all(param.nargs != -1 for param in at(path).params)], ids=" ".join
)
def test_an_argument_too_many_is_named_with_what_the_command_takes(path, call):
    command = at(path)
    needed = [word for param in command.params if param.required and param.opts for word in (param.opts[-1], "code")]
    words = ["a", "b", "c", "d"]
    done = call(app, *path, *words, *(word for word in needed if needed and needed[0].startswith("-")))
    assert done.code == 2
    assert "unexpected" not in done.err
    if "too many" in done.err:
        assert f"hint: codea1 {' '.join(path)} takes " in done.err


@pytest.mark.parametrize("path", [(), *sorted({leaf[:1] for leaf in COMMANDS if len(leaf) > 1})], ids=" ".join)
def test_help_lists_commands_with_whole_summaries_of_one_line(path, call):
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    lines = call(app, *path, "--help").out.splitlines()
    for name, child in command.commands.items():
        (shown,) = [line for line in lines if line.split(maxsplit=1)[:1] == [name]]
        assert shown.endswith(child.get_short_help_str(1000))
        assert len(shown) <= 80
    assert not path or "Commands:" in lines
    assert path or {"Train:", "Data:", "Evaluate:"} <= set(lines)


def test_options_stand_under_headings(call):
    shown = call(app, "prepare-data", "--help").out
    places = [shown.index(text) for text in ("Source:", "--mapping", "Verification:", "--memory", "Options:", "--json")]
    assert places == sorted(places)


# -- completion --------------------------------------------------------------------------------------------------------
@pytest.fixture
def completed(run, monkeypatch, capfd):
    """What a shell is answered for a line, by the variables that its script sets."""
    other = run.path.with_name("second run")
    other.mkdir()
    shutil.copy(run.recipe_file, other)
    os.utime(other / "recipe.yaml", (1, 1))
    monkeypatch.setattr(sys, "argv", ["codea1"])

    def answer(line: str, shell: str = "bash") -> list[str]:
        words = re.split(r"(?<!\\) ", line)
        asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": len(words) - 1, "_TYPER_COMPLETE_ARGS": line}
        asked |= {"_CODEA1_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        for name, value in asked.items():
            monkeypatch.setenv(name, str(value))
        assert complete(app) == 0
        shown = capfd.readouterr()
        assert shown.err == ""
        return shown.out.splitlines()

    return answer


DOUBLE = "basic/double it:1"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("codea1 runs show f", ["first"]),
        ("codea1 compare first ", [r"second\ run"]),
        (r"codea1 runs show second\ r", [r"second\ run"]),
        ("codea1 runs show 'sec", ["second run"]),
        ("codea1 mistakes inspect basic/l", ["basic/letters"]),
        ("codea1 mistakes inspect --run first ", [r"basic/double\ it:1", "basic/letters", "basic/ratio"]),
        (r"codea1 mistakes inspect basic/double\ it : ", ["1"]),  # bash makes three words of it
        (r"codea1 mistakes inspect basic/double\ it :", ["1"]),
        ("codea1 mistakes inspect --run none ", [""]),
        ("codea1 train --recipe ti", ["tiny"]),
        ("codea1 recipes show 1", ["135m", "1.5b"]),
        ("codea1 eval-tests u", ["ult"]),
        ("codea1 eval-code setup b", ["bigcodebench"]),
        ("codea1 eval-code h", ["humaneval"]),
        ("codea1 sandbox check --sandbox f", ["fusion"]),
        ("codea1 train method=self", ["method=self-play"]),
        ("codea1 train method = self", ["self-play"]),
        ("codea1 doctor --no-such-option ", [""]),
    ],
)
def test_a_shell_completes_names(completed, line, found):
    assert sorted(completed(line)) == sorted(found)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_in_their_form(completed, shell):
    assert any(
        DOUBLE.replace(":", "\\\\:" if shell == "zsh" else ":") in line
        for line in completed("codea1 mistakes inspect ", shell)
    )
    assert any("[KEY=VALUE]" in line or "Stop after this step" in line for line in completed("codea1 train --", shell))


def test_a_book_that_cannot_be_read_is_no_word(completed, run):
    for file in run.path.parent.glob("*/mistakes.sqlite"):
        file.write_bytes(b"no database")
    assert completed("codea1 mistakes inspect ") == [""]


def test_the_script_of_a_shell_is_shown(call, monkeypatch):
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: "fish")
    done = call(app, "--show-completion")
    assert (done.code, "complete --command codea1" in done.out) == (0, True)
