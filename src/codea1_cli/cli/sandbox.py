"""`codea1 sandbox`: whether the sandbox holds, on this machine or on a service's, and how fast it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, VerboseOption
from codea1_cli.cli.judge import EndpointOption, PythonOption, RequireOption, SandboxOption, open_sandbox
from codea1_cli.environment import cores

if TYPE_CHECKING:
    from codea1_cli.judging.canaries import Canary
    from codea1_cli.judging.speed import Arm
    from codea1_cli.problems.problem import Problem

app = typer.Typer(no_args_is_help=True, help="Check the sandbox and measure it.")


@app.command()
def check(
    python: PythonOption = None,
    require: RequireOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Probe every layer and run canary programs that try to cheat, hang or break out. Exit 3 when one succeeds."""
    from codea1_cli.judging.canaries import canaries_of
    from codea1_cli.sandbox.make import SandboxOptions

    options = SandboxOptions(sandbox, endpoint, python=python, require=require or (), workers=1)
    with open_sandbox(options) as opened:
        canaries = canaries_of(opened)
        layers, version = opened.layers, getattr(opened, "hello", {}).get("python", "?")
    holds = all(canary.held for canary in canaries)
    if as_json:
        works = {name: fault or "works" for name, fault in layers.items()}
        console.emit({"python": version, "holds": holds, "layers": works, "canaries": canaries})
    else:
        _show_check(layers, canaries, version)
        console.note("the sandbox holds" if holds else "the sandbox does not hold: do not run untrusted programs here")
    if not holds:
        raise typer.Exit(console.EXIT_ENVIRONMENT)


def _show_check(layers: dict[str, str], canaries: Sequence[Canary], version: str) -> None:
    works, missing = console.cell("works", "ok"), console.cell("missing", "warn")
    held, broken = console.cell("held", "ok"), console.cell("BROKEN", "bad")
    rows = [
        *((missing if fault else works, name, fault) for name, fault in layers.items()),
        *((held if canary.held else broken, canary.name, canary.detail) for canary in canaries),
    ]
    console.out().print(console.table(f"candidates run under Python {version}", ("", "", ""), rows))


@app.command()
def bench(
    problems: Annotated[
        Path | None, Option(metavar="FILE", help="Problems to judge; the built-in ones when left out.")
    ] = None,
    jobs: Annotated[int, Option(min=8, help="Suites of 8 tests to judge.")] = 480,
    workers: Annotated[int, Option(min=1, help="Jobs (or requests to a service) at once.")] = 2,
    python: PythonOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    evalplus: Annotated[bool, Option("--evalplus/--no-evalplus", help="Compare with EvalPlus (needs uv).")] = True,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Judge the same jobs by plain Python processes, by EvalPlus' checker and by this sandbox, and compare; with
    `--sandbox fusion` by a service too."""
    from codea1_cli.judging.speed import compare
    from codea1_cli.sandbox.make import SandboxOptions

    options = SandboxOptions(sandbox, endpoint, python=python, workers=workers)
    show_arms(list(compare(_problems(problems), jobs, options, evalplus, console.note)), as_json)


def _problems(path: Path | None) -> list[Problem]:
    from codea1_cli.problems.problem import read_problems

    if path is not None:
        return read_problems(path)
    from codea1_cli.tiny import problems_path

    return [problem for split in ("train", "heldout") for problem in read_problems(problems_path(split))]


def show_arms(arms: Sequence[Arm], as_json: bool) -> None:
    """The arms as a table, or as JSON."""
    from codea1_cli.judging.speed import table

    rows = table(arms)
    if as_json:
        console.emit({"cores": cores(), "arms": rows})
        return
    names = ("jobs", "wall s", "ms a job", "latency ms", "CPU ms a job", "x script", "x EvalPlus", "passed")
    cells = []
    for row in rows:
        ratios = [f"{row[key]:.1f}" if row[key] else "-" for key in ("times_script", "times_evalplus")]
        numbers = [f"{row[key]:.2f}" for key in ("wall_s", "ms_per_job", "latency_ms", "cpu_ms_per_job")]
        cells.append((row["name"], row["jobs"], *numbers, *ratios, row["passed"]))
    console.out().print(console.table(None, ("<arm", *(f">{name}" for name in names)), cells))
    console.note(f"{cores()} cores; ratios by wall time a job")
    if not any(row["name"] == "EvalPlus" for row in rows):
        console.note("EvalPlus was not measured: it needs uv and the package index, or was left out")
