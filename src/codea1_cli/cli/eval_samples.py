"""Samples that a user gives to `codea1 eval-code`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import typer

from codea1_cli.cli import console
from codea1_cli.errors import EnvironmentFault, UserError, some
from codea1_cli.evals.benchmark import CodeBenchmark, CodeTask, Sample
from codea1_cli.evals.samples import missing_tasks, read_samples

_OF_SAMPLING = (
    "model",
    "step",
    "n",
    "temperature",
    "top_p",
    "max_new_tokens",
    "seed",
    "prompt",
    "engine",
    "sample_only",
)

_OF_SCORING = ("fail_under", "per_task")  # what a user would wait for in vain


def refuse_what_has_no_effect(context: typer.Context) -> None:
    """Options that a user gave and that would change nothing.

    Raises:
        UserError: names them.
    """
    given = {
        name: f"--{name.replace('_', '-')}"
        for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"  # Typer's own enum, not click's
    }
    if "samples" not in given and "sanitize" in given:
        raise UserError("--sanitise is for --samples: what is sampled here is sanitised anyway")
    if "samples" in given and (idle := [given[name] for name in _OF_SAMPLING if name in given]):
        raise UserError(f"--samples are there already, so nothing is sampled with {', '.join(idle)}")
    if "sample_only" in given and (idle := [given[name] for name in _OF_SCORING if name in given]):
        raise UserError(f"--sample-only scores nothing, so {', '.join(idle)} would have no effect")


def usable_cache(given: Path | None) -> Path | None:
    """Where the references' answers are kept; None, with a warning, where the usual place takes no file.

    Raises:
        EnvironmentFault: the folder that the user gave takes none.
    """
    from codea1_cli.evals.benchmark import default_cache
    from codea1_cli.evals.results import writable

    folder = given or default_cache()
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
        console.warn(f"{len(strangers)} rows are of other tasks and in no figure: {some(strangers)}")
    if missing := missing_tasks(made, tasks):
        console.warn(f"{len(missing)} of {len(tasks)} tasks have no sample and are in no figure: {some(missing)}")
    counts = Counter(one.task_id for one in made).values()
    if min(counts) < max(counts):
        console.warn(f"tasks have {min(counts)} to {max(counts)} samples: pass@k is given up to k = {min(counts)}")
    if not sanitize:
        return made
    by_id = {task.id: task for task in tasks}
    return [
        replace(one, raw=one.solution, solution=benchmark.sanitize(by_id[one.task_id], one.solution)) for one in made
    ]
