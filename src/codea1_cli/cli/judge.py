"""`codea1 judge`: verdicts on candidates from a file, against references, without any model."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codea1_cli.cli import console
from codea1_cli.cli.console import VerboseOption
from codea1_cli.environment import cores

if TYPE_CHECKING:
    from codea1_cli.sandbox.local import LocalSandbox

PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python", metavar="PATH", help="Interpreter for candidates (3.10 or newer); this one when left out."
    ),
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option("--require", metavar="LAYER", help="A layer whose absence is an error, or `all`; may be repeated."),
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="Programs judged at once; one a CPU core when left out.")
]


def judge(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Rows to judge; see the docs for their fields.")],
    workers: WorkersOption = None,
    python: PythonOption = None,
    require: RequireOption = None,
    time_limit: Annotated[float, typer.Option("--time-limit", min=0.01, help="Seconds for one call.")] = 4.0,
    memory_mb: Annotated[int, typer.Option("--memory-mb", min=64, help="Memory of a candidate, in MiB.")] = 1024,
    tolerance: Annotated[float, typer.Option("--tolerance", min=0.0, help="Float tolerance.")] = 1e-6,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Put the data alone on stdout, one JSON object a row.", callback=console.begin),
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Judge candidates against references. Each row holds `id`, `reference`, `candidate`, `entry_point`, and `tests`
    (a list of asserts) or `suite` (a reply's text); it may set `tolerance`, `time_limit_s` and `memory_mb`."""
    from codea1_cli.judging.judge_rows import RowJudge, read_rows
    from codea1_cli.sandbox.base import Limits

    count = workers or cores()
    limits = Limits(time_s=time_limit, memory_mb=memory_mb)
    statuses: dict[str, int] = {}
    with open_sandbox(count, python, require) as sandbox:
        for report in RowJudge(sandbox, limits, tolerance).stream(read_rows(file), count):
            statuses[report["status"]] = statuses.get(report["status"], 0) + 1
            _write(report, as_json)
    console.note(", ".join(f"{count} {status}" for status, count in sorted(statuses.items())) or "no rows")
    if statuses.get("unscored"):
        console.warn(f"{statuses['unscored']} rows unscored: the sandbox itself failed on them")
        raise typer.Exit(console.EXIT_ENVIRONMENT)


def open_sandbox(workers: int, python: str | None, require: list[str] | None) -> "LocalSandbox":
    """The local sandbox; layers that are missing here are named on stderr."""
    from codea1_cli.sandbox.base import layer_warning
    from codea1_cli.sandbox.make import SandboxOptions, make_local

    sandbox = make_local(SandboxOptions(python=python, require=require or (), workers=workers))
    if text := layer_warning(sandbox.layers):
        console.warn(text)
    return sandbox


def _write(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        console.write(json.dumps(report) + "\n")
        return
    valid = [test for test in report["tests"] if test["valid"]]
    passed = sum(test["verdict"] == "passed" for test in valid)
    line = f"{report['id']}  {report['status']}  {passed}/{len(valid)} passed"
    if len(valid) < len(report["tests"]):
        line += f", {len(report['tests']) - len(valid)} invalid"
    if report["load_detail"]:
        line += f"  ({report['load_detail']})"
    console.out().print(console.printable(line), markup=False, soft_wrap=True)
