"""`codea1 judge`: verdicts on candidates from a file, against references, without any model."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import VerboseOption
from codea1_cli.environment import cores

if TYPE_CHECKING:
    from codea1_cli.sandbox.base import Sandbox
    from codea1_cli.sandbox.make import SandboxOptions

PythonOption = Annotated[
    str | None, Option(metavar="PATH", help="Interpreter for candidates (3.10 or newer); this one when left out.")
]
RequireOption = Annotated[
    list[str] | None, Option(metavar="LAYER", help="A layer whose absence is an error, or `all`; may be repeated.")
]
SandboxOption = Annotated[str, Option(metavar="NAME", help="Where programs run: local, or fusion, a service.")]
RunSandboxOption = Annotated[
    str | None, Option(metavar="NAME", help="Where programs run: local or fusion; as in the run when left out.")
]
EndpointOption = Annotated[
    str | None, Option(metavar="URL", help="The service's address; SANDBOX_FUSION_ENDPOINT when left out.")
]
WorkersOption = Annotated[
    int | None, Option(min=1, help="Programs (or requests to a service) at once; one a CPU core when left out.")
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
        bool, Option("--json", help="Put the data alone on stdout, one JSON object a row.", callback=console.begin)
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
        console.warn(f"{statuses['unscored']} rows unscored: {trouble(opened) or 'the sandbox itself failed on them'}")
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
    console.out().print(console.printable(line), markup=False, soft_wrap=True)
