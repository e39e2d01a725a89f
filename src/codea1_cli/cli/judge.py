"""`codea1 judge`, `codea1 sandbox` and `codea1 doctor`: verdicts on programs from a file, whether the sandbox holds and
how fast it is, and whether this machine can train at all.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption
from codea1_cli.cli.shell import backend_names
from codea1_cli.environment import cores
from codea1_cli.errors import counted

if TYPE_CHECKING:
    from codea1_cli.judging.canaries import Canary
    from codea1_cli.judging.speed import Timing
    from codea1_cli.problems.problem import Problem
    from codea1_cli.sandbox.base import Sandbox
    from codea1_cli.sandbox.make import SandboxOptions

PythonOption = Annotated[
    str | None, Option(metavar="PATH", help="Interpreter for candidates (3.10 or newer); this one when left out.")
]
RequireOption = Annotated[
    list[str] | None, Option(metavar="LAYER", help="A layer whose absence is an error, or `all`; may be repeated.")
]
SandboxOption = Annotated[
    str,
    Option(metavar="NAME", help="Where programs run: local, or fusion, a service.", autocompletion=backend_names),
]
RunSandboxOption = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Where programs run: local or fusion; as in the run when left out.",
        autocompletion=backend_names,
    ),
]
EndpointOption = Annotated[
    str | None, Option(metavar="URL", help="The service's address; SANDBOX_FUSION_ENDPOINT when left out.")
]
WorkersOption = Annotated[
    int | None, Option(min=1, help="Programs (or requests to a service) at once; one per CPU core when left out.")
]


def judge(
    file: Annotated[Path, Argument(metavar="FILE.jsonl", help="Rows to judge; see the docs for their fields.")],
    workers: WorkersOption = None,
    python: PythonOption = None,
    require: RequireOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    time_limit: Annotated[float, Option(min=0.01, help="Seconds for one call at most.")] = 4.0,
    memory_mb: Annotated[int, Option(min=64, help="Memory of a candidate, in MiB.")] = 1024,
    tolerance: Annotated[float, Option(min=0.0, help="Float tolerance.")] = 1e-6,
    as_json: Annotated[
        bool, Option("--json", help="Put the data alone on stdout, one JSON object per row.", callback=console.begin)
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Judge candidates against references. Each row holds `id`, `reference`, `candidate`, `entry_point`, and `tests`
    (a list of asserts) or `suite` (a reply's text); it may set `tolerance`, `time_limit_s` and `memory_mb`."""
    from codea1_cli.judging.judge_rows import RowJudge, read_rows
    from codea1_cli.sandbox.base import Limits
    from codea1_cli.sandbox.make import SandboxOptions

    limits = Limits(time_s=time_limit, memory_mb=memory_mb)
    statuses: dict[str, int] = {}
    options = SandboxOptions(sandbox, endpoint, python=python, require=require or (), workers=workers or cores())
    with open_sandbox(options) as opened:
        for report in RowJudge(opened, limits, tolerance).stream(read_rows(file), opened.workers):
            statuses[report["status"]] = statuses.get(report["status"], 0) + 1
            _write(report, as_json)
    console.note(", ".join(f"{count} {status}" for status, count in sorted(statuses.items())) or "no rows")
    if statuses.get("unscored"):
        why = trouble(opened) or "the sandbox itself failed on them"
        console.warn(f"{counted(statuses['unscored'], 'row')} unscored: {why}")
        raise typer.Exit(console.EXIT_ENVIRONMENT)


@contextmanager
def open_sandbox(options: "SandboxOptions") -> "Iterator[Sandbox]":
    """The sandbox for one block; layers that are missing are named on stderr."""
    from codea1_cli.sandbox.base import layer_warning
    from codea1_cli.sandbox.make import make_sandbox

    with closing(make_sandbox(options)) as sandbox:
        if text := layer_warning(sandbox.layers):
            console.warn(text)
        yield sandbox


def trouble(sandbox: "Sandbox") -> str:
    """What a service last failed with, and which; empty for a sandbox of this machine."""
    return str(getattr(sandbox, "trouble", ""))


def _write(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        console.write(json.dumps(report) + "\n")
        return
    valid = [test for test in report["tests"] if test["valid"]]
    passed = sum(test["verdict"] == "passed" for test in valid)
    line = f"{report['id']}  {report['status']}  {passed}/{len(valid)} passed"
    if wrong := sum(test["stated_correctly"] is False for test in valid):
        line += f", {wrong} of {len(valid)} state another answer than the reference's"
    invalid = [test["reason"] or "no test" for test in report["tests"] if not test["valid"]]
    if invalid:
        line += f", {len(invalid)} invalid: {invalid[0]}"
    if report["load_detail"]:
        line += f"  ({report['load_detail']})"
    console.say(line, indent=2)


# -- codea1 sandbox ----------------------------------------------------------------------------------------------------
sandbox_app = typer.Typer(no_args_is_help=True, help="Check the sandbox and measure it.")


@sandbox_app.command()
def check(
    python: PythonOption = None,
    require: RequireOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Probe every layer and run canary programs. They try to cheat, hang or break out; exit 3 when one succeeds."""
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


def _show_check(layers: dict[str, str], canaries: "Sequence[Canary]", version: str) -> None:
    works, missing = console.cell("works", "ok"), console.cell("missing", "warn")
    held, broken = console.cell("held", "ok"), console.cell("BROKEN", "bad")
    rows = [
        *((missing if fault else works, name, fault) for name, fault in layers.items()),
        *((held if canary.held else broken, canary.name, canary.detail) for canary in canaries),
    ]
    console.show(console.table(f"candidates run under Python {version}", ("<", "<", ""), rows))


@sandbox_app.command()
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
    """Judge the same jobs in several ways, and compare. By plain Python processes, by EvalPlus' checker and by this
    sandbox; with `--sandbox fusion` by a service too."""
    from codea1_cli.judging.speed import compare
    from codea1_cli.sandbox.make import SandboxOptions

    options = SandboxOptions(sandbox, endpoint, python=python, workers=workers)
    show_arms(list(compare(_problems(problems), jobs, options, evalplus, console.note)), as_json)


def _problems(path: Path | None) -> "list[Problem]":
    from codea1_cli.problems.problem import read_problems

    if path is not None:
        return read_problems(path)
    from codea1_cli.tiny import problems_path

    return [problem for split in ("train", "heldout") for problem in read_problems(problems_path(split))]


def show_arms(arms: "Sequence[Timing]", as_json: bool) -> None:
    """The arms as a table, or as JSON."""
    from codea1_cli.judging.speed import table

    rows = table(arms)
    if as_json:
        console.emit({"cores": cores(), "arms": rows})
        return
    names = ("jobs", "wall s", "ms per job", "latency ms", "CPU ms per job", "x script", "x EvalPlus", "passed")
    cells = []
    for row in rows:
        ratios = [f"{row[key]:.1f}" if row[key] else "-" for key in ("times_script", "times_evalplus")]
        numbers = [f"{row[key]:.2f}" for key in ("wall_s", "ms_per_job", "latency_ms", "cpu_ms_per_job")]
        cells.append((row["name"], row["jobs"], *numbers, *ratios, row["passed"]))
    console.show(console.table(None, ("<arm", *(f">{name}" for name in names)), cells))
    console.note(f"{counted(cores(), 'core')}; ratios by wall time a job")
    if not any(row["name"] == "EvalPlus" for row in rows):
        console.note("EvalPlus was not measured: it needs uv and the package index, or was left out")


# -- codea1 doctor -----------------------------------------------------------------------------------------------------
def doctor(
    runs: RunsOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check versions, devices, sandbox and disk. Exit 3 when something that `codea1 train` needs is broken."""
    from codea1_cli import __version__
    from codea1_cli.doctor import Health, diagnose
    from codea1_cli.runs.run_dir import runs_root
    from codea1_cli.sandbox.make import SandboxOptions

    options = SandboxOptions(sandbox, endpoint, workers=1)
    checks = diagnose(runs_root(runs), options)
    healthy = all(check.status is not Health.BROKEN for check in checks)
    if as_json:
        console.emit({"codea1": __version__, "healthy": healthy, "checks": checks})
    else:
        styles = {
            Health.OK: "ok",
            Health.WARNING: "warn",
            Health.BROKEN: "bad",
            Health.INFO: "muted",
        }
        rows = []
        for check in checks:
            text = console.cell(check.detail)
            if check.hint:
                text.append(f" ({check.hint})", style="hint")
            rows.append((console.cell(check.status, styles[check.status]), check.name, text))
        console.show(console.table(f"codea1 {__version__}", ("<", "<", ""), rows))
        console.note("everything that train needs is there" if healthy else "train cannot work here yet")
    if not healthy:
        raise typer.Exit(console.EXIT_ENVIRONMENT)
