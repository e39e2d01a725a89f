"""`codea1 eval-tests`: how good a model's, or anybody's, tests are; and what it shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption
from codea1_cli.cli.judge import EndpointOption, PythonOption, RequireOption, SandboxOption, WorkersOption, open_sandbox
from codea1_cli.cli.shell import benchmark_names, option_groups, panels, run_names
from codea1_cli.environment import cores
from codea1_cli.errors import UserError, counted, some
from codea1_cli.evals import registry
from codea1_cli.models import ServerOptions, spent_text

if TYPE_CHECKING:
    from codea1_cli.evals.test_generation.results import Difference

BOTH = "both"
REPLY_TOKENS = 1024
_BENCHMARKS = registry.names("test")
_TARGET = "|".join((*_BENCHMARKS, "FILE.py", "compare"))
_LISTED, _SURVIVORS = 20, 30  # functions that do not load, and mutants of a function, that are shown
_OF_SAMPLING = "model step runs engine temperature top_p max_new_tokens context seed"
_OF_COMPARE = {"target", "results", "as_json", "verbose"}
_GOES_ON = "the same command goes on where it stopped"


@panels(
    {
        "Model and functions": "model step runs suites data sample limit out",
        "Sampling": "engine temperature top_p max_new_tokens context seed only_sample",
        "A server": "server concurrency max_requests omit patience",
        "Scoring": "protocol k tests test_seconds mutant_seconds memory_mb table",
        "Sandbox": "workers python require sandbox endpoint",
    }
)
@option_groups
def eval_tests(
    called: typer.Context,
    served: ServerOptions,
    target: Annotated[
        str,
        Argument(metavar=_TARGET, help="What to test, or `compare A B`.", autocompletion=benchmark_names),
    ],
    results: Annotated[list[Path] | None, Argument(metavar="[A B]", help="Two folders of results.")] = None,
    model: Annotated[
        str | None,
        Option(metavar="PATH|RUN", help="The newest run's Test policy when left out.", autocompletion=run_names),
    ] = None,
    step: Annotated[int | None, Option(min=0, help="A run's checkpoint; the newest.")] = None,
    suites: Annotated[Path | None, Option(metavar="FILE", help="Score these suites, sample nothing.")] = None,
    data: Annotated[
        Path | None, Option(metavar="PATH", help="The benchmark's; CODEA1_BENCHMARKS, or fetched, else.")
    ] = None,
    protocol: Annotated[str, Option(help="published, one-shot or both.")] = BOTH,
    k: Annotated[int, Option(min=1, help="Rounds of one test each (published).")] = 5,
    tests: Annotated[int, Option(min=1, help="Tests a suite is asked for (one-shot).")] = 8,
    sample: Annotated[Path | None, Option(metavar="FILE", help="JSON list: the functions that mut@k is about.")] = None,
    limit: Annotated[int | None, Option(min=1, help="Only the first functions.")] = None,
    engine: Annotated[str, Option(help="auto, vllm or transformers.")] = "auto",
    temperature: Annotated[float, Option(min=0.0, help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, Option(min=0.01, max=1.0, help="Nucleus of the sampling.")] = 0.95,
    max_new_tokens: Annotated[
        int | None, Option(min=1, help="Tokens of a reply; 1024, or half of what a small model takes.")
    ] = None,
    context: Annotated[int, Option(min=64, help="Tokens of a chat and its reply.")] = 16_384,
    seed: Annotated[int, Option(help="Seed of the sampling.")] = 0,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Results; the same folder goes on where it stopped.")
    ] = None,
    test_seconds: Annotated[float, Option(min=0.05, help="Limit of a test.")] = 4.0,
    mutant_seconds: Annotated[
        float, Option(min=0.05, help="A mutant's limit at most; 20 x the test's time, 1 s up.")
    ] = 10.0,
    memory_mb: Annotated[int, Option(min=64, help="Memory of a test, in MiB.")] = 1024,
    only_sample: Annotated[
        bool, Option("--sample-only", "--only-sample", help="Score nothing; the same command without this goes on.")
    ] = False,
    table: Annotated[bool, Option("--table", help="Show every function.")] = False,
    workers: WorkersOption = None,
    python: PythonOption = None,
    require: RequireOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    runs: RunsOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Score the tests that a model writes. Do they pass, what do they cover, which mutants do they kill.

    `ult` is UnLeakedTestBench, under the published protocol and an honest one beside it. FILE.py takes your own
    functions, and shows the mutants that survive. `compare A B` compares two folders of results.
    """
    from codea1_cli.cli.eval_code_view import OF_SERVER, refuse_idle
    from codea1_cli.cli.streams import Bar, interruptible
    from codea1_cli.durable import check_writable, only_writer
    from codea1_cli.evals.test_generation.figures import ONE_SHOT, PROTOCOLS, PUBLISHED, Scoring

    listed, file = target in _BENCHMARKS, target.endswith(".py")
    refuse_idle(
        called,
        (target == "compare", " ".join({*called.params} - _OF_COMPARE), "`compare` has no use for {}"),
        (
            suites,
            f"{_OF_SAMPLING} only_sample {OF_SERVER}",
            "--suites are there already, so nothing is sampled with {}",
        ),
        (suites and file, "tests", "--suites are there already, so no model is asked for {}"),
        (only_sample, "table", "--sample-only scores nothing, so {} would have no effect"),
        (file, "protocol k data sample table", f"{{}} is for a benchmark ({', '.join(_BENCHMARKS)}), not for FILE.py"),
        (protocol == ONE_SHOT, "k sample", f"{{}} is for the {PUBLISHED} protocol"),
        (protocol == PUBLISHED, "tests", f"{{}} is for the {ONE_SHOT} protocol"),
    )
    if target == "compare":
        _compare(results or [], as_json)
        return
    if results:
        raise UserError(f"too many arguments: {results[0]}", hint="only `compare` takes folders of results")
    if not listed and not file:
        hint = f"{', '.join(_BENCHMARKS)}, a Python file, or compare A B"
        raise UserError(f"nothing to test is called {target!r}", hint=hint)
    if protocol not in (*PROTOCOLS, BOTH):
        raise UserError(f"no protocol is called {protocol!r}", hint=f"one of {', '.join(PROTOCOLS)}, {BOTH}")

    from codea1_cli.evals.test_generation import functions_of_file
    from codea1_cli.evals.test_generation.evaluation import WARM
    from codea1_cli.evals.test_generation.job import EvalJob, run_benchmark, run_file, sample_only
    from codea1_cli.models.sampler import SamplingSettings
    from codea1_cli.runs.policy_folders import find_model
    from codea1_cli.sandbox.make import SandboxOptions

    goes_on, count = listed or only_sample, workers or cores()
    options = SandboxOptions(sandbox, endpoint, python=python, require=require or (), workers=count, warm=WARM)
    with interruptible(_GOES_ON if goes_on else "suites are kept, the same command scores again"), Bar() as bar:
        if listed:
            functions = registry.open_test_benchmark(target).load(data)
            protocols = PROTOCOLS if protocol == BOTH else (protocol,)
        else:
            functions, protocols = functions_of_file(Path(target)), (ONE_SHOT,)
        server = served.find(engine)
        named = None if suites else find_model(model, role="test", step=step, runs_root=runs, server=server)
        job = EvalJob(
            target=target,
            functions=functions,
            model=named,
            suites=suites,
            protocols=protocols,
            sample=sample,
            limit=limit,
            engine=engine,
            sampling=SamplingSettings(1, temperature, top_p, max_new_tokens or REPLY_TOKENS, seed),
            context=context,
            scoring=Scoring(k, tests, test_seconds, mutant_seconds, memory_mb),
            out=out,
            workers=count,
        )
        if max_new_tokens is None:
            job = job.fitted()
        check_writable(job.folder, "--out")
        with only_writer(job.folder, job.folder, wait):
            if only_sample:
                found = sample_only(job, bar)
            else:
                with open_sandbox(options) as opened:
                    job = replace(job, workers=opened.workers)
                    found = run_benchmark(job, opened, bar) if listed else run_file(job, opened, bar)
    if only_sample:
        if as_json:
            console.emit(found)
        console.note(f"suites in {found['folder']}")
        return
    if as_json:
        console.emit(found)
    else:
        show_ult(found, table) if listed else show_file(found)
    if found["unscored"]:
        failed = counted(found["unscored"], "function")
        console.warn(f"{failed} unscored: the sandbox failed on them; the same command tries again")
        raise typer.Exit(console.EXIT_ENVIRONMENT)


def _compare(folders: list[Path], as_json: bool) -> None:
    from codea1_cli.evals.test_generation.results import compare

    if len(folders) != 2:
        raise UserError("compare takes two folders of results", hint="`codea1 eval-tests compare --help` shows how")
    found = compare(*folders)
    if as_json:
        console.emit([{**asdict(one), "difference": one.difference} for one in found])
    else:
        show_comparison(found, *folders)


def show_ult(found: dict[str, Any], table: bool) -> None:
    """The figures of each protocol, and every function where asked."""
    for protocol, figures in found["protocols"].items():
        _figures(protocol, figures, found)
        if table:
            _functions(protocol, found["functions"][protocol])
    _left_out(found)
    if found["unknown_suites"]:
        console.note(f"suites for functions that are not here: {len(found['unknown_suites'])}")
    if found["without_suite"]:
        console.warn(f"no suite, and counted as failing: {counted(len(found['without_suite']), 'function')}")
    spent = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in found["seconds"].items())
    console.note(f"{spent}{_speed(found)}; results in {found['folder']}")


def _left_out(found: dict[str, Any]) -> None:
    if broken := [f"{name} ({fault})" for name, fault in found["not_loading"].items()]:
        console.note(f"left out, does not load: {some(broken, _LISTED)}")


def _speed(found: dict[str, Any]) -> str:
    rate, spent = found["tokens_per_second"], found.get("server")
    speed = f"; {rate:,.0f} tokens sampled per second" if rate else ""
    return f"{speed}; the server: {spent_text(spent)}" if spent else speed


def _figures(protocol: str, figures: dict[str, Any], found: dict[str, Any]) -> None:
    from codea1_cli.evals.test_generation.figures import lines_of

    rows = []
    for name, key, interval, of in lines_of(protocol, figures, found["settings"]["scoring"]):
        value = figures.get(key)
        bounds = figures["intervals"].get(interval)
        shown = "n/a" if value is None else f"{value:.2f}"
        between = f"{bounds['low']:.1f} to {bounds['high']:.1f}" if bounds else ""
        rows.append((name, shown, between, console.cell(of, "muted")))
    of = f"{counted(figures['functions'], 'function')}, {counted(figures['mutants'], 'mutant')}"
    title = f"{found['label']}: {protocol} protocol ({of})"
    console.show(console.table(title, ("figure", ">%", ">95 % interval", "of"), rows, framed=True))


_COUNTS = (("lines", "all_lines"), ("branches", "all_branches"), ("killed", "mutants"))


def _functions(protocol: str, rows: Sequence[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        if protocol == "one-shot":
            tests = f"{row['right']} right, {row['valid']} valid of {row['asserts']}"
            remarks = ", ".join(f"{count} {reason}" for reason, count in row["invalid"].items())
        else:
            tests = f"{row['outcomes'].count('passed')} of {len(row['outcomes'])} pass"
            other = [outcome for outcome in row["outcomes"] if outcome not in ("passed", "failed")]
            remarks = ", ".join(dict.fromkeys(other))
        counts = [f"{row[part]}/{row[whole]}" for part, whole in _COUNTS]
        cells.append((row["id"], tests, *counts, "unscored" if row["unscored"] else remarks))
    columns = ("<function", "tests", ">lines", ">branches", ">mutants killed", "remarks")
    console.show(console.table(f"functions, {protocol} protocol", columns, cells, framed=True))


def show_file(found: dict[str, Any]) -> None:
    """Each function with its tests and, as diffs, the mutants that survive them."""
    for row in found["functions"]:
        tests, mutants = counted(len(row["tests"]), "test"), counted(row["mutants"], "mutant")
        killed = f"{row['killed']} of {mutants} killed, {row['mutants'] - row['killed']} survive"
        console.say(f"{row['id']}: {row['passing']} of {tests} pass, {killed}", "title", indent=2)
        for test in row["tests"]:
            if test["outcome"] != "passed":
                detail = f"  ({test['detail']})" if test["detail"] else ""
                console.say(f"  {test['outcome']}: {test['test']}{detail}", "bad", indent=4)
        for survivor in row["survivors"][:_SURVIVORS]:
            console.say(f"\n  line {survivor['line']}, {survivor['operator']}", "muted")
            for line in survivor["diff"].splitlines()[2:]:
                style = {"+": "ok", "-": "bad"}.get(line[:1], "muted")
                console.say(console.cell(f"  {line}", style, whole=True))
        if (more := len(row["survivors"]) - _SURVIVORS) > 0:
            console.note(f"\n  and {counted(more, 'mutant')} more alive: --json has all")
    _left_out(found)
    if found["unknown_suites"]:
        console.note(f"suites for functions that are not here: {', '.join(found['unknown_suites'][:5])}")
    console.note(f"results in {found['folder']}{_speed(found)}")


def show_comparison(found: Sequence[Difference], first: Path, second: Path) -> None:
    """One line per figure that both results have, in bold where its interval leaves out zero."""
    rows = []
    for one in found:
        row = (
            f"{one.protocol}: {one.figure}", one.functions, f"{one.a:.2f}", f"{one.b:.2f}",
            f"{one.difference:+.2f}", f"{one.low:+.2f} to {one.high:+.2f}", len(one.won), len(one.lost),
        )  # fmt: skip
        rows.append([console.cell(item, "title" if one.low > 0 or one.high < 0 else "") for item in row])
    columns = ("figure", ">functions", ">A", ">B", ">B - A", ">95 % interval", ">won", ">lost")
    console.show(console.table(f"B ({second}) less A ({first}), in points", columns, rows, framed=True))
