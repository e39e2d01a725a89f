"""`codea1 doctor`: whether this machine can train, and what is missing."""

import typer

from codea1_cli import __version__
from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption


def doctor(runs: RunsOption = None, as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """Check versions, devices, sandbox and disk. Exit 3 when something that `codea1 train` needs is broken."""
    from codea1_cli.doctor import Status, diagnose
    from codea1_cli.runs.run_dir import runs_root

    checks = diagnose(runs_root(runs))
    healthy = all(check.status is not Status.BROKEN for check in checks)
    if as_json:
        console.emit({"codea1": __version__, "healthy": healthy, "checks": checks})
    else:
        from rich.table import Table
        from rich.text import Text

        styles = {Status.OK: "ok", Status.WARNING: "warn", Status.BROKEN: "bad", Status.INFO: "muted"}
        table = Table(
            title=f"codea1 {__version__}", title_style="title", title_justify="left", box=None, show_header=False
        )
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for check in checks:
            text = Text(console.printable(check.detail))
            if check.hint:
                text.append(f" ({check.hint})", style="hint")
            table.add_row(Text(check.status, style=styles[check.status]), Text(check.name), text)
        console.out().print(table)
        console.note("everything that train needs is there" if healthy else "train cannot work here yet")
    if not healthy:
        raise typer.Exit(console.EXIT_ENVIRONMENT)
