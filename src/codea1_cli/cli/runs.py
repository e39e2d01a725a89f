"""`codea1 runs` and `codea1 export`: what runs there are, how far they came, their figures as a table, giving disk
space back, and taking a policy out of one.
"""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption
from codea1_cli.cli.shell import RunArgument, RunOption, run_names, run_of
from codea1_cli.cli.watch import track, watch
from codea1_cli.errors import UserError, command, counted, size_text
from codea1_cli.methods.registry import RoleName

if TYPE_CHECKING:
    from codea1_cli.runs.run_dir import RunDir


app = typer.Typer(no_args_is_help=True, help="List, show, watch, export and prune runs.")

app.command()(watch)
app.command()(track)


@app.command("list")
def list_(
    runs: RunsOption = None,
    limit: Annotated[int, Option(min=0, help="Runs to show; 0 shows all.")] = 30,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List the runs, newest first."""
    from codea1_cli.runs.run_dir import list_runs, runs_option, runs_root
    from codea1_cli.runs.summary import summarise

    root = runs_root(runs)
    found = list_runs(root)
    rows = [summarise(run) for run in found[: None if as_json else limit or None]]
    if as_json:
        console.emit(rows)
        return
    if not rows:
        console.note(f"no run in {root}; next: {command('train', '--recipe', 'tiny', *runs_option(root))}")
        return
    styles = {"running": "ok", "finished": "ok", "stopped": "ok", "failed": "bad"}
    cells = []
    for row in rows:
        step = f"{row.step}/{row.total}" if row.total else row.step
        state, started = console.cell(row.state, styles.get(row.state, "warn")), (row.started or "").replace("T", " ")
        cells.append((row.name, row.recipe, step, state, started[:16], size_text(row.bytes)))
    console.show(console.table(None, ("<run", "<recipe", ">step", "<state", "<started", ">size"), cells))
    if len(found) > len(rows):
        console.note(f"and {counted(len(found) - len(rows), 'run')} more: --limit 0 shows all")


@app.command()
def show(
    name: RunArgument = None,
    run: RunOption = None,
    runs: RunsOption = None,
    steps: Annotated[int, Option(min=0, help="Last steps to show; of evaluations at least 20.")] = 5,
    plot: Annotated[
        Path | None,
        Option(metavar="FILE", help="Draw its curves into a .png, .svg or .pdf too; one there is replaced."),
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show one run. Where it stands, its checkpoints, its last steps and evaluations."""
    from codea1_cli.runs import spent
    from codea1_cli.runs.checkpoints import checkpoints
    from codea1_cli.runs.run_dir import find_run, runs_root
    from codea1_cli.runs.summary import last_metrics, summarise

    chosen = find_run(run_of(name, run), runs_root(runs))
    if plot is not None:
        _draw(chosen, plot)
    row, info, kept = summarise(chosen), chosen.info(), checkpoints(chosen)
    (step_lines, eval_lines), cost = last_metrics(chosen, steps, console.warn), spent(chosen)
    if as_json:
        data, best = console.jsonable(row), chosen.best(console.warn)
        more = {"checkpoints": kept, "best": best, "last_steps": step_lines, "evals": eval_lines, "spent": cost}
        console.emit({**data, "run": info, **more})
        return
    from codea1_cli.cli.views import show_run

    show_run(chosen, row, info, kept, (step_lines, eval_lines[-max(steps, 20) :], len(eval_lines)), cost)


def _draw(run: "RunDir", file: Path) -> None:
    from codea1_cli.durable import check_target, write_atomic
    from codea1_cli.report.curves import picture, tables, with_intervals
    from codea1_cli.runs.summary import measured

    kind = file.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise UserError(f"{file} names no image format", hint="end it in .png, .svg or .pdf")
    check_target(file, force=True)
    found = tables(run.metrics())
    if not found:
        raise UserError(f"run {run.name} has no figures yet", hint="its first step writes some")
    if "heldout" in found:
        found["heldout"] = with_intervals(found["heldout"], measured(run, console.warn).get("heldout", {}))
    write_atomic(file, picture(run.name, found, kind))
    console.note(f"curves of {run.name} in {file}")


@app.command("export")
def export_figures(
    names: Annotated[
        list[str] | None,
        Argument(metavar="[RUN]...", help="Runs, by name or folder; the newest else.", autocompletion=run_names),
    ] = None,
    runs: RunsOption = None,
    as_csv: Annotated[bool, Option("--csv", help="As CSV, on stdout or in --out.")] = False,
    out: Annotated[Path | None, Option(metavar="FILE.csv", help="The file to write; stdout when left out.")] = None,
    force: Annotated[bool, Option("--force", help="Replace FILE when it exists.")] = False,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write the figures of runs as one table. A row per line of metrics.jsonl, a column per name in it, `arena.exposed`
    for `exposed` in `arena`; lists are JSON. --json without --out has the rows as objects."""
    from codea1_cli.durable import check_target, only_writer, write_atomic
    from codea1_cli.recipe import flat
    from codea1_cli.runs.run_dir import find_run, runs_root

    if as_csv == as_json and out is None:
        raise UserError("stdout takes the table in one format", hint="--csv or --json; or --out FILE.csv")
    check_target(out, force)
    wanted: list[str | None] = [*names] if names else [None]
    chosen = [find_run(name, runs_root(runs)) for name in wanted]
    short = len({run.name for run in chosen}) == len(chosen)
    rows = [
        {"run": run.name if short else str(run.path), **flat(line)}
        for run in chosen
        for line in run.metrics(console.warn)
    ]
    if not rows:
        raise UserError("these runs have no figures yet", hint="a run's first step writes some")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if out is None and as_json:
        console.emit(rows)
    elif out is None:
        console.write(_csv(columns, rows))
    else:
        with only_writer(out, out, wait):
            write_atomic(out, _csv(columns, rows))
        if as_json:
            console.emit({"file": out, "runs": [run.path for run in chosen], "rows": len(rows), "columns": columns})
        else:
            console.note(f"{counted(len(rows), 'row')} of {counted(len(columns), 'column')} in {out}")


def _csv(columns: list[str], rows: list[dict[str, Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = (row.get(column) for column in columns)
        writer.writerow("" if one is None else one if isinstance(one, str) else json.dumps(one) for one in values)
    return file.getvalue()


@app.command()
def prune(
    name: Annotated[
        str | None, Argument(metavar="RUN", help="Only this run; all runs when left out.", autocompletion=run_names)
    ] = None,
    run: RunOption = None,
    runs: RunsOption = None,
    keep: Annotated[int, Option(min=1, help="Newest checkpoints to keep in each run.")] = 1,
    whole: Annotated[bool, Option("--whole", help="Delete the whole run that is named.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be freed.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Delete old checkpoints, never a run's newest. With --whole, a whole run; runs in progress are left alone."""
    from codea1_cli.runs.checkpoints import delete, deletions
    from codea1_cli.runs.run_dir import find_run, list_runs, runs_root

    named, root = run_of(name, run), runs_root(runs)
    if whole and named is None:
        raise UserError("--whole deletes one run, and none is named", hint="name one that `codea1 runs list` shows")
    chosen = [find_run(named, root)] if named is not None else list_runs(root)
    busy = [item for item in chosen if item.locked_by() is not None]
    if busy and named is not None:
        raise UserError(
            f"run {busy[0].name} is in progress: process {busy[0].locked_by()}", hint="wait for it, or stop it first"
        )
    plan = deletions([item for item in chosen if item not in busy], keep, whole)
    freed = sum(entry["bytes"] for entry in plan)
    if not as_json:
        for item in busy:
            console.note(f"{item.name} is in progress and left alone")
        for entry in plan:
            what = "the whole run" if entry["step"] is None else f"checkpoint {entry['step']}"
            console.say(f"{entry['run']}: {what}, {size_text(entry['bytes'])}", indent=2)
    if plan and not dry_run:
        if not console.confirm(f"delete {len(plan)} of these, {size_text(freed)}?", yes):
            console.note("nothing deleted")
            return
        delete(chosen, plan)
    if as_json:
        console.emit({"deleted": [] if dry_run else plan, "would_delete": plan if dry_run else [], "bytes": freed})
    elif not plan:
        console.note("nothing to delete")
    else:
        console.note(f"{'would free' if dry_run else 'freed'} {size_text(freed)}")


def export(
    role: Annotated[RoleName, Option(help="Whose policy; one of self-play is both.")],
    to: Annotated[Path, Option(metavar="DIR", help="A new or empty folder.")],
    name: RunArgument = None,
    run: RunOption = None,
    step: Annotated[int | None, Option(min=1, help="A checkpoint's step; the newest when left out.")] = None,
    push: Annotated[str | None, Option(metavar="OWNER/NAME", help="Send it to this repository of the hub too.")] = None,
    private: Annotated[bool, Option("--private", help="Make that repository a private one, where it is new.")] = False,
    runs: RunsOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write one policy of a checkpoint as a folder. `from_pretrained` loads it; LoRA adapters are merged."""
    from codea1_cli.durable import only_writer
    from codea1_cli.runs.policy_folders import export_policy
    from codea1_cli.runs.run_dir import find_run, runs_root

    chosen = find_run(run_of(name, run), runs_root(runs))
    if within := next((one for one in to.resolve().parents if (one / "run.json").is_file()), None):
        raise UserError(f"{to} lies in the run {within.name}, which holds what training leaves", hint="another --to")
    with only_writer(to, to, wait, "--to"):
        done = export_policy(chosen, role, to, step, push, private)
    if as_json:
        console.emit(asdict(done))
        return
    what = "merged adapter" if done.merged_adapter else f"{counted(len(done.files), 'file')}"
    console.note(f"{role} policy of {done.run} at step {done.step}: {what}, {done.bytes / 1e6:.1f} MB")
    console.say(console.cell(done.pushed or done.to, whole=True))
