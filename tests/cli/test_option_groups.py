"""A command's options in dataclasses: as flags in the order of the fields, and back in their groups."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from codea1_cli.cli.shell import option_groups


@dataclass(frozen=True)
class Numbers:
    size: Annotated[int, typer.Option(min=1, help="How big.")] = 3
    limit_s: Annotated[float | None, typer.Option("--limit", help="How long.")] = None


def test_fields_are_options_and_come_back_as_their_dataclass():
    seen = []
    app = typer.Typer()

    @app.command()
    @option_groups
    def command(name: Annotated[str, typer.Argument()], numbers: Numbers, last: bool = False) -> int:
        """Do it."""
        seen.append((name, numbers, last))
        return 0

    run = CliRunner()
    assert run.invoke(app, ["a", "--size", "4", "--limit", "0.5", "--last"]).exit_code == 0
    assert run.invoke(app, ["b"]).exit_code == 0
    assert seen == [("a", Numbers(4, 0.5), True), ("b", Numbers(), False)]
    assert run.invoke(app, ["c", "--size", "0"]).exit_code == 2
    shown = run.invoke(app, ["--help"]).output
    assert shown.index("--size") < shown.index("--limit") < shown.index("--last")
    assert "Do it." in shown
