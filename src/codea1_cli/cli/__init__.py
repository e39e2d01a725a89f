"""The command line. One file per command; each imports what is heavy inside its function, so that help is instant."""

import sys
from typing import Annotated

import typer
from typer import Option

from codea1_cli.cli import (
    compare,
    doctor,
    eval_code,
    eval_tests,
    judge,
    make_pairs,
    mistakes,
    plan,
    prepare_data,
    recipes,
    runs,
    sandbox,
    train,
)
from codea1_cli.cli.console import run_app
from codea1_cli.cli.streams import in_utf8
from codea1_cli.environment import settle, settle_umask

app = typer.Typer(
    name="codea1",
    no_args_is_help=True,
    add_completion=False,
    help="Train a Code LLM and a Test LLM against each other.",
    rich_markup_mode=None,
)
app.command()(train.train)
app.command()(plan.plan)
app.command("prepare-data")(prepare_data.prepare_data)
app.command("make-pairs")(make_pairs.make_pairs)
app.command()(runs.export)
app.command()(compare.compare)
app.command()(compare.report)
app.command("eval-tests")(eval_tests.eval_tests)
app.command()(judge.judge)
app.command()(doctor.doctor)
app.add_typer(eval_code.app, name="eval-code")
app.add_typer(mistakes.app, name="mistakes")
app.add_typer(runs.app, name="runs")
app.add_typer(recipes.app, name="recipes")
app.add_typer(sandbox.app, name="sandbox")


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
    settle()
    settle_umask()
    sys.exit(run_app(app, last=True))
