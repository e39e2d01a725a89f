"""What `codea1 eval-code` takes from a user beside a model, and what it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from codea1_cli.cli import console
from codea1_cli.errors import EnvironmentFault, UserError, command, counted, some
from codea1_cli.evals import registry
from codea1_cli.evals.benchmark import CodeBenchmark, CodeTask, Sample, ScoreOptions
from codea1_cli.evals.samples import as_file_name, missing_tasks, read_samples
from codea1_cli.extract.source import parse
from codea1_cli.models import spent_text

if TYPE_CHECKING:
    from codea1_cli.evals.results import Compared
    from codea1_cli.models.sampler import SamplingSettings

_LOOKED_AT = 1_000  # samples parsed before scoring
_LISTED = 20  # task ids in a list


def show_result(result: Mapping[str, Any], per_task: bool, file: Path) -> None:
    """The figures by column, how the references fared, and where all of it lies."""
    figures = result["figures"]
    names = [key for key in next(iter(figures.values())) if key.startswith(("pass@", "avg@"))]
    rows: list[Sequence[object]] = []
    for column, told in figures.items():
        if not told["tasks"]:
            rows.append([column, *["-"] * (len(names) + 1), 0])
            continue
        low, high = told["interval"]
        cells = [percent(told.get(name)) for name in names]
        rows.append([column, *cells, f"{percent(low)} to {percent(high)}", told["tasks"]])
        if "valid" in told:
            valid = told["valid"]
            cells = [percent(valid["pass@1"]) if name == "pass@1" else "" for name in names]
            rows.append([f"{column}, references that pass", *cells, "", valid["tasks"]])
    columns = ["", *(f">{name}" for name in (*names, "95 % of pass@1", "tasks"))]
    console.show(console.table(f"{result['title']}: {result['label']}", columns, rows, framed=True))
    if "selection" in result:
        _selection(result["selection"])
    _references(result["references"], result["benchmark"])
    if per_task:
        _tasks(result)
    seconds = result["seconds"]
    sampling, rate = result.get("seconds_sampling") or 0.0, result.get("tokens_per_second")
    speed = f" at {rate:,.0f} tokens per second" if rate else ""
    spent = f"references {seconds['references']:.0f} s, scoring {seconds['scoring']:.0f} s"
    console.note(f"sampling {sampling:.0f} s{speed}, {spent}")
    if "server" in result:
        console.note(f"the server: {spent_text(result['server'])}")
    console.note(f"samples {result['samples_file']}, result {file}")


def _selection(told: Mapping[str, Any]) -> None:
    """What each selector's choice is worth, between a random one and one that knows the verdicts."""
    every = told["figures"]
    first = next(iter(every.values()))
    columns = [name for name, part in first.items() if part["tasks"]]

    def row(name: str, figures: Mapping[str, Any], key: str) -> list[str]:
        spreads = [figures[column][key] for column in columns]
        spreads += [figures[column]["gap_closed"] if key == "selected" else None for column in columns[-1:]]
        return [name, *(text for one in spreads for text in _spread(one))]

    rows = [row("random: pass@1", first, "pass@1")]
    rows += [row(f"by {name}", figures, "selected") for name, figures in every.items()]
    head = [text for column in (*columns, "gap closed") for text in (f">{column}", ">95 %")]
    title = f"one of the samples, by {counted(told['asserts'], 'assert')} of {told['tag']}"
    if columns:
        rows.append(row("oracle: pass@n", first, "oracle"))
        console.show(console.table(title, ["", *head], rows, framed=True))
    if "server" in told:
        console.note(f"the tests' server: {spent_text(told['server'])}")
    console.note(f"chosen by {told['selector']}: {told['chosen']}; of each sample what it passes: {told['matrix']}")


def _spread(one: Mapping[str, float] | None) -> tuple[str, str]:
    return (percent(one["mean"]), f"{percent(one['low'])} to {percent(one['high'])}") if one else ("", "")


def _references(told: Mapping[str, Any], benchmark: str) -> None:
    console.say(f"references that pass here: {percent(told['rate'])} of {told['tasks'] - len(told['not_run'])}")
    failing = sorted(told["failing"].items())
    for task, why in failing[:_LISTED]:
        console.say(f"  {task} fails: {why}", indent=4)
    if len(failing) > _LISTED:
        console.note(f"  and {len(failing) - _LISTED} more: --json lists all")
    if told["not_run"]:
        libraries = any(name.isidentifier() for name in told["lacking"])
        text = f"{counted(len(told['not_run']), 'task')} cannot run here, no failure: {_by_name(told['lacking'])}"
        console.warn(text + (_way_out(benchmark) if libraries else ""))


def _tasks(result: Mapping[str, Any]) -> None:
    columns = ["<task", *(f">{name}" for name in ("samples", *result["columns"], "timeouts"))]
    rows = [
        (task, row["n"], *(row[name] for name in result["columns"]), row.get("timeouts", ""))
        for task, row in result["tasks"].items()
    ]
    console.show(console.table(None, columns, rows))


def show_comparison(first: Mapping[str, Any], second: Mapping[str, Any], found: Sequence[Compared]) -> None:
    """pass@1 of both, the paired difference, and the tasks that changed."""
    rows = []
    for one in found:
        interval = one.difference
        mean, low, high = (f"{100 * part:+.1f}" for part in (interval.mean, interval.low, interval.high))
        rates = percent(one.a), percent(one.b)
        row = (one.column, one.tasks, *rates, mean, f"{low} to {high}", len(one.won), len(one.lost))
        rows.append([console.cell(item, "bold" if interval.excludes_zero else "") for item in row])
    columns = ("", ">tasks", ">A", ">B", ">B - A", ">95 %", ">won", ">lost")
    title = f"A {first['label']}, B {second['label']}"
    console.show(console.table(title, columns, rows, framed=True))
    last = found[-1]
    for name, tasks in (("won by B", last.won), ("lost by B", last.lost)):
        if tasks:
            rest = ": --json lists all" if len(tasks) > _LISTED else ""
            console.say(f"{name} ({last.column}): {some(tasks, _LISTED)}{rest}", indent=2)


def percent(value: float | None) -> str:
    """A share as text; `-` for none."""
    return "-" if value is None else f"{100 * value:.1f}%"


OF_SERVER = "server concurrency max_requests omit patience"
_OF_SAMPLING = "model step n temperature top_p max_new_tokens seed prompt engine sample_only runs server"
_OF_TESTS = "test_model test_step test_server suites each tests"
_UNASKED = "--samples are there already, so nothing is sampled with {}"


def refuse_idle(context: typer.Context, *rules: tuple[object, str, str]) -> None:
    """Refuses options that were typed and would change nothing. A rule: whether it holds, the parameters that have no
    effect then, and what is said of them, `{}` in their place.

    Raises:
        UserError: names the options.
    """
    given = {
        str(param.name): max(param.opts, key=len)
        for param in context.command.params
        # Typer's own enum, not click's
        if getattr(context.get_parameter_source(str(param.name)), "name", "") == "COMMANDLINE"
    }
    for holds, names, text in rules:
        if idle := [given[name] for name in names.split() if holds and name in given]:
            raise UserError(text.format(", ".join(idle)))


def refuse_what_has_no_effect(context: typer.Context, usual: int) -> None:
    """Options of eval-code that a user gave and that would change nothing; usual: samples of a task without `--n`.

    Raises:
        UserError: names them.
    """
    name, params, n = context.info_name or "", context.params, context.params["n"] or usual
    samples, select = params["samples"] is not None, params["select"] is not None
    writes, there = params["test_model"] is not None, params["test_server"] is not None
    of_tests = {"top_p", "seed", "engine", "sample_only", "runs"} if select else set[str]()
    refuse_idle(
        context,
        (not samples, "sanitize", "{} is for --samples: what is sampled here is sanitised anyway"),
        (
            select and registry.ROWS[name].setup is not None,
            "select",
            f"{{}} is not for {name}: an assert can state few of its functions' results",
        ),
        (not samples and n == 1, "select", "of one sample for a task none is chosen: {} needs --n 2 or more"),
        (samples, " ".join(one for one in _OF_SAMPLING.split() if one not in of_tests), _UNASKED),
        (samples and not (select and there), OF_SERVER, _UNASKED),
        # what a user would wait for in vain
        (params["sample_only"], "fail_under per_task", "--sample-only scores nothing, so {} would have no effect"),
        (not select, _OF_TESTS, "without --select no tests are written, so {} would have no effect"),
        (
            samples and select and not writes,
            f"{_OF_TESTS} top_p seed engine runs",
            "without --test-model the tests beside --samples are taken, so {} would have no effect",
        ),
        (samples and there, "engine", "{} has no effect with --test-server: the server has its own"),
    )


def usable_cache(given: Path | None) -> Path | None:
    """Where the references' answers are kept; None, with a warning, where the usual place takes no file.

    Raises:
        EnvironmentFault: the folder that the user gave takes none.
    """
    from codea1_cli.environment import cache_folder
    from codea1_cli.evals.results import writable

    folder = given or cache_folder()
    try:
        return writable(folder / "any").parent
    except EnvironmentFault as fault:
        why = f"the cache {folder} cannot be written: {fault.what.rpartition(': ')[2]}"
        if given is not None:
            raise EnvironmentFault(why, hint="choose another --cache") from None
        console.warn(f"{why}; the references run each time")
        return None


def given_samples(file: Path, sanitize: bool, benchmark: CodeBenchmark, tasks: list[CodeTask]) -> list[Sample]:
    """The samples of a file, sanitised where asked, with warnings of what is in no figure."""
    strangers: list[str] = []
    made = read_samples(file, benchmark, tasks, strangers)
    if strangers:
        console.warn(f"in no figure, of other tasks: {counted(len(strangers), 'row')}: {some(strangers)}")
    if missing := missing_tasks(made, tasks):
        console.warn(f"no sample, in no figure: {len(missing)} of {counted(len(tasks), 'task')}: {some(missing)}")
    counts = Counter(one.task_id for one in made).values()
    if min(counts) < max(counts):
        console.warn(f"tasks have {min(counts)} to {max(counts)} samples: pass@k is given up to k = {min(counts)}")
    if not sanitize:
        _warn_of_replies(made)
        return made
    by_id = {task.id: task for task in tasks}
    return [
        replace(one, raw=one.solution, solution=benchmark.sanitize(by_id[one.task_id], one.solution)) for one in made
    ]


def _warn_of_replies(samples: Sequence[Sample]) -> None:
    """A word where samples look like replies that still hold their program."""
    looked = samples[:_LOOKED_AT]
    broken = [one for one in looked if parse(one.solution) is None]
    if 2 * len(broken) >= len(looked) or any("```" in one.solution for one in broken):
        console.warn(
            f"no Python: {len(broken)} of {counted(len(looked), 'sample')}; --sanitise takes programs out of replies"
        )


def default_file(benchmark: CodeBenchmark, label: str, style: str, settings: SamplingSettings) -> Path:
    """The sample file of a job that names none."""
    tail = f"{style}-n{settings.n}-t{settings.temperature:g}-s{settings.seed}"
    return Path("evals") / benchmark.name / f"{as_file_name(label)}-{tail}.jsonl"


def warn_of_layers(options: ScoreOptions) -> None:
    """Names the layers of the sandbox that are missing here."""
    from codea1_cli.cli.judge import open_sandbox

    with open_sandbox(options.of_sandbox(workers=1, warm=())):
        pass  # it warns when it opens


def tell_missing(benchmark: CodeBenchmark, tasks: Sequence[CodeTask], options: ScoreOptions) -> None:
    """Says before anything is sampled which libraries are missing here, for how many tasks, and what brings them."""
    if missing := benchmark.missing(tasks, options):
        text = f"libraries missing here, with the tasks that name them: {_by_name(missing)}; those tasks will not count"
        console.warn(text + _way_out(benchmark.name))


def _by_name(counts: Mapping[str, int]) -> str:
    return some([f"{name} {count}" for name, count in counts.items()], 8)


def _way_out(benchmark: str) -> str:
    name = benchmark.partition("-")[0]
    if registry.ROWS[name].setup is None:
        return ""
    return f"; `{command('eval-code', 'setup', name)}` makes an interpreter that has the libraries"


def set_up(benchmark: str, to: Path | None, python: str, dry_run: bool, as_json: bool) -> None:
    """Makes the interpreter that a benchmark's tasks need, after a word of where and how large it will be.

    Raises:
        UserError: there is no such benchmark, or it needs none.
        EnvironmentFault: it cannot be made.
    """
    from codea1_cli.durable import only_writer

    row = registry.benchmark_row(benchmark)
    if row.setup is None:
        others = ", ".join(name for name, other in registry.ROWS.items() if other.setup is not None)
        raise UserError(f"{benchmark} needs no interpreter of its own", hint=f"one of {others} does")
    plan = row.setup(to, python)
    console.note(
        f"{plan.libraries} libraries, 3 GB, from the package index that {Path(plan.tool).name} is set to, "
        f"into {plan.folder}; Python: {plan.base}"
    )
    words = ["eval-code", benchmark, *([] if plan.is_found else ["--sandbox-python", str(plan.python)])]
    if dry_run:
        words = ["eval-code", "setup", benchmark, *(["--to", str(to)] if to else []), "--python", python]
    else:
        with only_writer(plan.folder, option="--to"):
            plan.make()
    console.note(f"next: {command(*words)}")
    if as_json:
        console.emit({"python": plan.python, "base": plan.base, "libraries": plan.libraries, "made": not dry_run})
