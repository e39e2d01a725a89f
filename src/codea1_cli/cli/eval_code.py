"""`codea1 eval-code`: a Code LLM on HumanEval+, MBPP+ and BigCodeBench, with the verdicts of the official tools."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption
from codea1_cli.cli.judge import EndpointOption, RequireOption, SandboxOption, WorkersOption
from codea1_cli.cli.shell import benchmark_names, option_groups, panels, run_names
from codea1_cli.environment import cores
from codea1_cli.errors import UserError, counted, some
from codea1_cli.evals import registry
from codea1_cli.files import no_file
from codea1_cli.models import KEY, TEST_KEY, ServerOptions

_NAMES = registry.names("code")
_PARTED = [row for row in registry.ROWS.values() if len(row.subsets) > 1]
_SCORES_AGAIN = "the references' answers are kept, the same command scores the samples again"

app = typer.Typer(
    no_args_is_help=True,
    help="Evaluate a Code LLM. Sample, score with the official verdicts, compare.",
    rich_markup_mode=None,
)


@panels(
    {
        "Model and tasks": "model step runs samples sanitize data subset limit out",
        "Sampling": "n temperature top_p max_new_tokens seed prompt engine sample_only",
        "A server": "server concurrency max_requests omit patience",
        "Best of n": "select test_model test_step test_server suites each tests",
        "Scoring": "workers sandbox_python require sandbox endpoint cache fail_under per_task",
    }
)
@option_groups
def evaluate(
    context: typer.Context,
    served: ServerOptions,
    model: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="A run, a model or adapter folder, a hub id, a name at --server; the newest run when left out.",
            autocompletion=run_names,
        ),
    ] = None,
    step: Annotated[int | None, Option(min=0, help="Of the run; its newest checkpoint else.")] = None,
    runs: RunsOption = None,
    samples: Annotated[Path | None, Option(metavar="FILE", help="Score this sample file, and sample nothing.")] = None,
    sanitize: Annotated[bool, Option("--sanitise", help="Sanitise what --samples holds before scoring.")] = False,
    data: Annotated[
        Path | None, Option(metavar="PATH", help="Its file or folder; CODEA1_BENCHMARKS, or fetched once, else.")
    ] = None,
    subset: Annotated[str, Option(metavar="|".join(_PARTED[0].subsets), help=f"Of {_PARTED[0].title}.")] = "full",
    out: Annotated[
        Path | None,
        Option(metavar="FILE.jsonl", help="Sample file; below ./evals when left out. With --samples: the result."),
    ] = None,
    n: Annotated[int | None, Option(min=1, help="Samples per task; the protocol's when left out.")] = None,
    temperature: Annotated[
        float | None, Option(min=0.0, help="0 is greedy; the protocol's, 0.7 with several, else.")
    ] = None,
    top_p: Annotated[float, Option(min=0.01, max=1.0, help="Of the samples.")] = 0.95,
    max_new_tokens: Annotated[int | None, Option(min=1, help="Of a sample; the protocol's when left out.")] = None,
    seed: Annotated[int, Option(help="Of the samples.")] = 0,
    prompt: Annotated[
        str | None, Option(metavar="STYLE", help="Prompt style; the published one when left out.")
    ] = None,
    engine: Annotated[str, Option(metavar="auto|vllm|transformers", help="What samples.")] = "auto",
    limit: Annotated[int | None, Option(min=1, help="Only the first tasks.")] = None,
    sample_only: Annotated[bool, Option("--sample-only", help="Write samples, and score nothing.")] = False,
    select: Annotated[
        str | None,
        Option(metavar="tests|codet|consensus", help="Choose one of a task's samples by generated tests."),
    ] = None,
    test_model: Annotated[
        str | None, Option(metavar="MODEL", help="Writes the tests; that of --model else.", autocompletion=run_names)
    ] = None,
    test_step: Annotated[int | None, Option(min=0, help="Of its run; the newest checkpoint, or --step, else.")] = None,
    test_server: Annotated[
        str | None, Option(metavar="URL", help=f"Where --test-model is; its key: {TEST_KEY}, of the same host {KEY}.")
    ] = None,
    suites: Annotated[int, Option(min=1, help="Suites per task, or per sample with --each.")] = 8,
    each: Annotated[bool, Option("--each", help="Suites against each sample, not from the statement alone.")] = False,
    tests: Annotated[int, Option(min=1, help="Tests a suite is asked for.")] = 8,
    workers: WorkersOption = None,
    sandbox_python: Annotated[
        str | None, Option(metavar="PATH", help="The samples' interpreter; this one else.")
    ] = None,
    require: RequireOption = None,
    sandbox: SandboxOption = "local",
    endpoint: EndpointOption = None,
    cache: Annotated[
        Path | None, Option(metavar="DIR", help="Expected outputs; CODEA1_CACHE or ~/.cache/codea1 else.")
    ] = None,
    wait: WaitOption = False,
    fail_under: Annotated[float | None, Option(min=0.0, max=1.0, help="Exit with 4 when pass@1 is lower.")] = None,
    per_task: Annotated[bool, Option("--per-task", help="List every task.")] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Sample solutions and score them. Interrupted sampling goes on where it stopped."""
    from codea1_cli.cli import eval_code_view as view
    from codea1_cli.cli.streams import Bar, interruptible
    from codea1_cli.durable import only_writer, write_atomic
    from codea1_cli.evals.benchmark import ScoreOptions
    from codea1_cli.evals.best_of_n import Plan, candidates_of, choose_all
    from codea1_cli.evals.results import kept_result, read_origin, result_file, samples_hash, writable
    from codea1_cli.evals.samples import missing_tasks
    from codea1_cli.evals.scoring import record, sampled, score_samples
    from codea1_cli.evals.selection import SELECTORS
    from codea1_cli.models.sampler import SamplingSettings, reply_tokens
    from codea1_cli.runs.policy_folders import find_model
    from codea1_cli.sandbox.make import make_sandbox

    benchmark = registry.open_benchmark(context.info_name or "", subset)
    view.refuse_what_has_no_effect(context, getattr(benchmark, "n", 1))
    style = _one_of(prompt, benchmark.styles, "--prompt")
    here = select is not None and test_model is not None and test_server is None
    server, plan = served.find("auto" if here else engine, needed=test_server is None), None
    if select is not None:
        _one_of(select, tuple(SELECTORS), "--select")
        writer = None
        if samples is None or test_model is not None:
            at = step if test_model is None and test_step is None else test_step
            there = served.at(test_server, TEST_KEY) if test_server else server if test_model is None else None
            writer = find_model(test_model or model, role="test", step=at, runs_root=runs, server=there)
        longest = reply_tokens(writer, 1024) if writer is not None else 1024
        plan = Plan(writer, SamplingSettings(suites, 1.0, top_p, longest, seed), tests, each, engine)
    options = ScoreOptions(
        workers or cores(), sandbox_python, tuple(require or ()), view.usable_cache(cache), sandbox, endpoint
    )
    options.of_sandbox()  # which refuses what is wrong before anything is sampled
    if samples is not None and not (samples.is_file() or samples.is_dir()):
        raise UserError(f"cannot read {samples}: {no_file(samples)}", hint="without --samples the model is sampled")
    ref = find_model(model, role="code", step=step, runs_root=runs, server=server) if samples is None else None
    tasks = benchmark.load(data)[:limit]
    if not sample_only or plan is not None:
        view.warn_of_layers(options)
    if not sample_only:
        view.tell_missing(benchmark, tasks, options)
    said = _SCORES_AGAIN if samples is not None else "the same command goes on where it stopped"
    with interruptible(said), Bar() as bar, ExitStack() as stack:
        if samples is not None:
            file, target = samples, writable(result_file(samples, out))
            made = view.given_samples(samples, sanitize, benchmark, tasks)
            stack.enter_context(only_writer(target, target, wait))
            about = {**read_origin(samples), "label": samples.name, "sanitised": sanitize}
        else:
            assert ref is not None
            count: int = n if n is not None else getattr(benchmark, "n", 1)
            if temperature is None:
                temperature = getattr(benchmark, "temperature", 0.0 if count == 1 else 0.7)
            settings = SamplingSettings(count, temperature, top_p, max_new_tokens or benchmark.max_new_tokens, seed)
            file = out or view.default_file(benchmark, ref.label, style, settings)
            target = writable(result_file(file))
            stack.enter_context(only_writer(result_file(file.resolve()), file, wait))  # whichever link leads to it
            made, about = sampled(benchmark, tasks, ref, settings, style, engine, file, bar, console.note)
        choice = None
        if plan is not None and select is not None:
            candidates, before = candidates_of(tasks, made), served.spent.copy()
            choice = choose_all(candidates, plan, select, target, lambda: make_sandbox(options.of_sandbox()), bar)
            if choice.unscored:
                console.warn(f"nothing chosen, the sandbox failed on {some(choice.unscored)}; once more tries again")
        whole = console.EXIT_ENVIRONMENT if choice is not None and choice.unscored else console.EXIT_OK
        if sample_only:
            served.told(console.note)
            console.note(f"{counted(len(made), 'sample')} of {counted(len(tasks), 'task')}: {file}")
            if as_json:
                console.emit({"samples_file": file, "samples": len(made), **about, **(choice.files if choice else {})})
            return whole
        missing = len(missing_tasks(made, tasks))
        of = {"samples_hash": samples_hash(file), "data_hash": benchmark.data_hash(), "limit": limit}
        result = kept_result(target, sandbox_python, **of) if choice and not sanitize else None
        if result is None:
            try:
                outcome = score_samples(benchmark, made, options, bar)
            finally:
                benchmark.close()
            result = record(benchmark, outcome, options, {**about, **of, "tasks_without_sample": missing}, file)
        if choice is not None:
            result["selection"] = choice.record(result["verdicts"], result["columns"])
            if written := served.spent - before:
                result["selection"]["server"] = written
        write_atomic(target, json.dumps(console.jsonable(result), indent=1) + "\n")
    if as_json:
        console.emit(result)
    else:
        view.show_result(result, per_task, target)
    if result["unscored"]:
        console.warn(f"{counted(result['unscored'], 'sample')} unscored: the sandbox itself failed on them")
    if fail_under is not None:
        reached = result["figures"][benchmark.columns[-1]].get("pass@1")
        if reached is None or missing or reached < fail_under:
            shown = "nothing was scored" if reached is None else f"pass@1 is {reached:.4f}"
            if missing:  # a figure of some tasks is not the benchmark's
                shown = f"without a sample: {missing} of {counted(len(tasks), 'task')}"
            console.note(f"{shown}, below --fail-under {fail_under}", style="bad")
            return console.EXIT_BELOW
    return whole


for _row in registry.ROWS.values():
    if _row.role == "code":
        app.command(_row.name, help=f"{_row.title}: {_row.about}. {evaluate.__doc__}")(evaluate)


@app.command()
def setup(
    benchmark: Annotated[
        str,
        Argument(
            metavar="BENCHMARK",
            help="The one whose tasks need libraries: bigcodebench.",
            autocompletion=benchmark_names,
        ),
    ],
    to: Annotated[
        Path | None, Option(metavar="DIR", help="Where; codea1's cache else, where eval-code finds it by itself.")
    ] = None,
    python: Annotated[
        str, Option(metavar="PYTHON", help="Version or path of the interpreter to make it with.")
    ] = "3.10",
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be made, and do nothing.")] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Make the interpreter that a benchmark's tasks need. It has their libraries; called again, it goes on."""
    from codea1_cli.cli.eval_code_view import set_up

    set_up(benchmark, to, python, dry_run, as_json)


@app.command()
def compare(
    a: Annotated[Path, Argument(metavar="A", help="A result file, or the sample file that it lies beside.")],
    b: Annotated[Path, Argument(metavar="B", help="The other one.")],
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Compare two results task by task. The paired difference of pass@1 with its interval, tasks won and lost by B."""
    from codea1_cli.cli.eval_code_view import show_comparison
    from codea1_cli.evals.results import compare as compared
    from codea1_cli.evals.results import read_result, unshared

    first, second = read_result(a), read_result(b)
    found, alone = compared(first, second), unshared(first, second)
    if as_json:
        sides = {"a": str(a), "b": str(b), "only_a": alone[0], "only_b": alone[1]}
        console.emit({"benchmark": first["benchmark"], **sides, "columns": found})
    else:
        show_comparison(first, second, found)
    if any(alone):
        console.warn(f"tasks in no figure, because the other result lacks them: {alone[0]} of A, {alone[1]} of B")


@app.command("sanitise")
def sanitize_file(
    benchmark: Annotated[
        str,
        Argument(
            metavar="BENCHMARK",
            help=f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}.",
            autocompletion=benchmark_names,
        ),
    ],
    samples: Annotated[Path, Argument(metavar="SAMPLES", help="A raw sample file.")],
    out: Annotated[Path | None, Option(metavar="FILE.jsonl", help="SAMPLES-sanitized.jsonl when left out.")] = None,
    data: Annotated[Path | None, Option(metavar="PATH", help="The benchmark's release file.")] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write samples as the benchmark's own sanitiser would."""
    from codea1_cli.cli.eval_code_view import given_samples
    from codea1_cli.durable import only_writer, write_rows

    if out is not None and out.exists():
        raise UserError(f"{out} exists", hint="choose another --out")
    target = out or samples.with_name(samples.name.removesuffix(".jsonl") + "-sanitized.jsonl")
    chosen = registry.open_benchmark(benchmark)
    made = given_samples(samples, True, chosen, chosen.load(data))
    with only_writer(target):
        write_rows(target, ({"task_id": one.task_id, "solution": one.solution} for one in made))
    console.note(f"{counted(len(made), 'solution')}: {target}")
    if as_json:
        console.emit({"samples": len(made), "file": target})


def _one_of(value: str | None, known: tuple[str, ...], option: str) -> str:
    if value is not None and value not in known:
        raise UserError(f"{option} {value} is unknown", hint=f"one of {', '.join(known)}")
    return value or known[0]
