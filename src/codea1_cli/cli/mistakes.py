"""`codea1 mistakes`: the tests that a run's candidates keep failing."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption
from codea1_cli.cli.judge import EndpointOption, RunSandboxOption
from codea1_cli.cli.shell import RunArgument, RunOption, problem_ids, run_of
from codea1_cli.errors import UserError, command, counted, did_you_mean

if TYPE_CHECKING:
    from codea1_cli.mistakes import MistakeStore
    from codea1_cli.mistakes.inspect import ProblemView
    from codea1_cli.mistakes.replay import Replayed
    from codea1_cli.problems.problem import Problem
    from codea1_cli.recipe.schema import Recipe
    from codea1_cli.runs.run_dir import RunDir

app = typer.Typer(no_args_is_help=True, help="Show, inspect and export the Mistake Book of a run.")


@app.command("list")
def list_(
    name: RunArgument = None,
    run: RunOption = None,
    runs: RunsOption = None,
    limit: Annotated[int, Option(min=0, help="Rows of the table; 0 shows all.")] = 30,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List the problems with tests in the book, most mistakes first."""
    from codea1_cli.mistakes.inspect import summaries

    run_dir, store = _open(run_of(name, run), runs)
    with store:
        rows = summaries(store)
    if as_json:
        console.emit({"run": run_dir.name, "problems": rows})
        return
    if not rows:
        console.note(_empty(run_dir))
        return
    columns = ("<problem", ">tests", ">mistakes", ">last step", "<most frequent test")
    cells = [
        (console.cell(row.problem_id, "name"), row.tests, row.mistakes, row.last_step, row.worst)
        for row in rows[: limit or None]
    ]
    console.show(console.table(f"Mistake Book of {run_dir.name}", columns, cells))
    if limit and len(rows) > limit:
        console.note(f"and {counted(len(rows) - limit, 'problem')} more: --limit 0 shows all")
    console.note(f"next: {command('mistakes', 'inspect', *run_dir.options, rows[0].problem_id)}")


@app.command()
def inspect(
    problem_id: Annotated[
        str,
        Argument(metavar="PROBLEM_ID", help="As `codea1 mistakes list` shows it.", autocompletion=problem_ids),
    ],
    name: RunArgument = None,
    run: RunOption = None,
    runs: RunsOption = None,
    replay: Annotated[
        bool, Option("--replay", help="Run the live tests again on the candidates that failed them, and find the line.")
    ] = False,
    limit: Annotated[int, Option(min=0, help="Tests of a table; 0 shows all.")] = 20,
    sandbox: RunSandboxOption = None,
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show one problem. Its live tests, who fails them and where, the trend, and what has been learned."""
    from codea1_cli.mistakes.inspect import view
    from codea1_cli.mistakes.replay import replay as run_again
    from codea1_cli.recipe.resources import judge_of

    run_dir, store = _open(run_of(name, run), runs)
    problems = _problems(run_dir)
    with store:
        known = store.problems()
        if problem_id not in known and problem_id not in problems:
            raise _unknown(problem_id, [*known, *problems], run_dir)
        problem = problems.get(problem_id)
        question, entry_point = (problem.question, problem.entry_point) if problem else ("", "")
        shown = view(store, run_dir.path / "rollouts", problem_id, question, entry_point)
    replayed: list[Replayed] | None = None
    if replay:
        if problem is None:
            raise UserError(f"cannot replay {problem_id!r}: its problem is not in the run's data any more")
        with judge_of(_elsewhere(run_dir.recipe(), sandbox, endpoint)) as judge:
            replayed = run_again(judge, problem, shown.live)
        shown = _with_line(shown, replayed)
    if as_json:
        data = console.jsonable(shown)
        console.emit({"run": run_dir.name, **data, "replay": replayed})
        return
    from codea1_cli.cli.views import show_problem

    show_problem(shown, replayed, limit, _keeps(run_dir.recipe()))


@app.command()
def export(
    name: RunArgument = None,
    to: Annotated[Path | None, Option(metavar="FILE", help="Where to write; stdout when left out.")] = None,
    format_: Annotated[
        Literal["jsonl", "pytest"] | None, Option("--format", help="jsonl, or pytest; by FILE's suffix when left out.")
    ] = None,
    problem: Annotated[
        list[str] | None,
        Option(metavar="ID", help="Only this problem; may be repeated.", autocompletion=problem_ids),
    ] = None,
    force: Annotated[bool, Option("--force", help="Replace FILE when it exists.")] = False,
    run: RunOption = None,
    runs: RunsOption = None,
    sandbox: RunSandboxOption = None,
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write the live tests as jsonl or as a pytest file. The latter passes on the references."""
    from codea1_cli.durable import check_target

    if as_json and to is None:
        raise UserError("--json needs --to: the exported file itself would go to stdout", hint="add --to FILE.jsonl")
    check_target(to, force)
    kind = format_ or ("pytest" if to is not None and to.suffix == ".py" else "jsonl")
    run_dir, store = _open(run_of(name, run), runs)
    with store:
        for wanted in problem or ():
            if wanted not in (known := store.problems()):
                raise _unknown(wanted, known, run_dir, "the book of ")
        recipe = _elsewhere(run_dir.recipe(), sandbox, endpoint)
        text, tests, skipped = _exported(kind, run_dir, recipe, store, problem)
    if to is None:
        console.write(text)
    else:
        from codea1_cli.durable import only_writer, write_atomic

        if not to.absolute().parent.is_dir():
            raise UserError(f"no folder {to.parent}", hint=f"`{shlex.join(['mkdir', '-p', str(to.parent)])}` makes it")
        with only_writer(to, to, option="--to"):
            write_atomic(to, text)
    if as_json:
        console.emit({"run": run_dir.name, "file": to, "format": kind, "tests": tests, "skipped": skipped})
        return
    if skipped:
        first = skipped[0]
        console.warn(f"{counted(len(skipped), 'test')} left out, the first: {first['test']}: {first['reason']}")
    if to is not None:
        console.note(f"{counted(tests, 'test')} of {run_dir.name} in {to}")
    elif not tests:
        console.note(_empty(run_dir))


def _unknown(problem_id: str, known: list[str], run: "RunDir", place: str = "") -> UserError:
    listed = f"`{command('mistakes', 'list', *run.options)}` shows what there is"
    return UserError(f"no problem {problem_id!r} in {place}{run.name}", hint=did_you_mean(problem_id, known) or listed)


def _empty(run: "RunDir") -> str:
    """What is said of a book without a test."""
    recipe = run.recipe()
    none = "" if _keeps(recipe) else f": its recipe ({recipe.method}) keeps none"
    return f"no test is in the Mistake Book of {run.name}{none}"


def _keeps(recipe: "Recipe") -> bool:
    """Whether a run of the recipe keeps a Mistake Book."""
    from codea1_cli.methods.registry import method_of

    method = method_of(recipe)
    return "test" in method.roles and not method.pairs and recipe.game.book


def _with_line(shown: "ProblemView", replayed: "list[Replayed]") -> "ProblemView":
    """The view with the failing candidate's line as the replay found it."""
    failing = shown.failing
    if failing is None:
        return shown
    at = (failing.step, failing.candidate_index)
    found = (
        row.line for row in replayed if (row.step, row.candidate_index) == at and _same_call(row.test, failing.test)
    )
    line = next(found, None)
    return replace(shown, failing=replace(failing, lines=[line])) if line else shown


def _same_call(one: str, other: str) -> bool:
    from codea1_cli.runs.rollout_files import call_of

    return call_of(one) == call_of(other)


def _exported(
    kind: str, run_dir: "RunDir", recipe: "Recipe", store: "MistakeStore", wanted: list[str] | None
) -> tuple[str, int, list[dict[str, str]]]:
    """The exported text, the number of its tests, and what was left out."""
    from codea1_cli.mistakes.export import jsonl, pytest_file
    from codea1_cli.mistakes.replay import answered_cases
    from codea1_cli.recipe.resources import judge_of

    rows = [row for row in store.live() if not wanted or row.problem_id in wanted]
    problems = _problems(run_dir)
    if kind == "jsonl":
        return jsonl(rows, problems), len(rows), []
    by_problem: dict[str, list] = {}
    for row in rows:
        by_problem.setdefault(row.problem_id, []).append(row)
    with judge_of(recipe) as judge:
        cases, left_out = answered_cases(judge, by_problem, problems)
    tolerance = recipe.judge.float_tolerance
    text = pytest_file(run_dir.name, store.last_step() or 0, cases, problems, tolerance)
    skipped = [{"problem_id": row.problem_id, "test": row.test, "reason": reason} for row, reason in left_out]
    return text, sum(map(len, cases.values())), skipped


def _elsewhere(recipe: "Recipe", sandbox: str | None, endpoint: str | None) -> "Recipe":
    """A run's recipe with the sandbox that was asked for in place of its own."""
    from codea1_cli.sandbox.make import backend_endpoint

    if sandbox is None and endpoint is None:
        return recipe
    backend = sandbox or recipe.sandbox.backend
    changed = {"backend": backend, "endpoint": backend_endpoint(backend, endpoint)}
    return recipe.model_copy(update={"sandbox": recipe.sandbox.model_copy(update=changed)})


def _open(run: str | None, runs: Path | None) -> "tuple[RunDir, MistakeStore]":
    from codea1_cli.mistakes import MistakeStore
    from codea1_cli.runs.run_dir import find_run, list_runs, runs_root

    root = runs_root(runs)
    chosen = find_run(run, root)
    if not _has_book(chosen):
        other = next((item for item in list_runs(root) if _has_book(item)), None)
        if run is None and other is not None:
            console.note(f"{chosen.name} has no book yet: this is {other.name}, the newest run with one")
            chosen = other
        elif not chosen.mistakes_file.is_file() and other is not None:
            from codea1_cli.methods.registry import method_of

            why = "mistakes.sqlite is gone" if chosen.begun() else "it has not come to its first step"
            why = "it learns from pairs" if method_of(chosen.recipe()).pairs else why
            raise UserError(
                f"run {chosen.name} has no Mistake Book: {why}",
                hint=f"the newest run with one: {shlex.join(other.options)}",
            )
    return chosen, MistakeStore(chosen.mistakes_file, read_only=True)


def _has_book(run: "RunDir") -> bool:
    """A book is made before the first step: one that nobody writes any more counts from a finished step on."""
    stepped = any("eval" not in line for line in run.metrics())
    return run.mistakes_file.is_file() and (stepped or run.locked_by() is not None)


def _problems(run_dir: "RunDir") -> "dict[str, Problem]":
    """The run's problems; without them (the data moved away) the book alone still serves."""
    try:
        return run_dir.problems()
    except UserError as error:
        console.warn(f"the run's problems cannot be read: {error.what}")
        return {}
