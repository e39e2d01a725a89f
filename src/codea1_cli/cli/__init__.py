"""The command line. One file per command; each imports what is heavy inside its function, so that help is instant."""

import sys
from typing import Annotated

import typer
from typer import Option

from codea1_cli.cli import (
    compare,
    eval_code,
    eval_tests,
    judge,
    make_pairs,
    mistakes,
    plan,
    prepare_data,
    recipes,
    runs,
    train,
    write_tests,
)
from codea1_cli.cli.console import run_app
from codea1_cli.cli.shell import Command, CommandGroup, complete, completing
from codea1_cli.cli.streams import in_utf8
from codea1_cli.environment import settle, settle_umask

app = typer.Typer(
    name="codea1",
    cls=CommandGroup,
    no_args_is_help=True,
    help="Train a Code LLM and a Test LLM against each other.",
    rich_markup_mode=None,
)
_TRAIN, _DATA, _RUNS = "Train", "Data", "Runs: see, compare, export"
_EVALUATE, _HERE = "Evaluate", "Sandbox and machine"
app.command(rich_help_panel=_TRAIN)(train.train)
app.command(rich_help_panel=_TRAIN)(plan.plan)
app.command("prepare-data", rich_help_panel=_DATA)(prepare_data.prepare_data)
app.command("make-pairs", rich_help_panel=_DATA)(make_pairs.make_pairs)
app.command(rich_help_panel=_RUNS)(compare.compare)
app.command(rich_help_panel=_RUNS)(compare.report)
app.command(rich_help_panel=_RUNS)(runs.export)
app.command("write-tests", rich_help_panel=_DATA)(write_tests.write_tests)
app.command("eval-tests", rich_help_panel=_EVALUATE)(eval_tests.eval_tests)
app.command(rich_help_panel=_HERE)(judge.judge)
app.command(rich_help_panel=_HERE)(judge.doctor)
app.add_typer(recipes.app, name="recipes", cls=CommandGroup, rich_help_panel=_TRAIN)
app.add_typer(runs.app, name="runs", cls=CommandGroup, rich_help_panel=_RUNS)
app.add_typer(mistakes.app, name="mistakes", cls=CommandGroup, rich_help_panel=_RUNS)
app.add_typer(eval_code.app, name="eval-code", cls=CommandGroup, rich_help_panel=_EVALUATE)
app.add_typer(judge.sandbox_app, name="sandbox", cls=CommandGroup, rich_help_panel=_HERE)
for _group in (app, *(one.typer_instance for one in app.registered_groups)):
    for _command in _group.registered_commands if _group is not None else ():
        _command.cls = Command


def _version(show: bool) -> None:
    if show:
        from codea1_cli import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Train a Code LLM and a Test LLM against each other."""


def main() -> None:
    """The command `codea1`; ends the process with the exit code."""
    in_utf8()
    if completing():
        sys.exit(complete(app))
    settle()
    settle_umask()
    sys.exit(run_app(app, last=True))
