"""`codea1 doctor`: whether this machine can train, and what is missing."""

import typer

from codea1_cli import __version__
from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption
from codea1_cli.cli.judge import EndpointOption, SandboxOption


def doctor(
    runs: RunsOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check versions, devices, sandbox and disk. Exit 3 when something that `codea1 train` needs is broken."""
    from codea1_cli.doctor import Status, diagnose
    from codea1_cli.runs.run_dir import runs_root
    from codea1_cli.sandbox.make import SandboxOptions

    options = SandboxOptions(sandbox, endpoint, workers=1)
    checks = diagnose(runs_root(runs), options if sandbox != "local" else None)
    healthy = all(check.status is not Status.BROKEN for check in checks)
    if as_json:
        console.emit({"codea1": __version__, "healthy": healthy, "checks": checks})
    else:
        styles = {Status.OK: "ok", Status.WARNING: "warn", Status.BROKEN: "bad", Status.INFO: "muted"}
        rows = []
        for check in checks:
            text = console.cell(check.detail)
            if check.hint:
                text.append(f" ({check.hint})", style="hint")
            rows.append((console.cell(check.status, styles[check.status]), check.name, text))
        console.out().print(console.table(f"codea1 {__version__}", ("<", "<", ""), rows))
        console.note("everything that train needs is there" if healthy else "train cannot work here yet")
    if not healthy:
        raise typer.Exit(console.EXIT_ENVIRONMENT)
