"""`codea1 runs` and `codea1 export`: what runs there are, how far they came, giving their disk space back, and taking a
policy out of one.
"""

import shlex
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption
from codea1_cli.cli.watch import RunArgument, track, watch
from codea1_cli.errors import UserError, command, size_text
from codea1_cli.methods.registry import method_of

if TYPE_CHECKING:
    from codea1_cli.runs.run_dir import RunDir


app = typer.Typer(no_args_is_help=True, help="List, show and prune runs.")

app.command()(watch)
app.command()(track)


@app.command("list")
def list_(runs: RunsOption = None, as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """List the runs, newest first."""
    from codea1_cli.runs.run_dir import list_runs, runs_option, runs_root
    from codea1_cli.runs.summary import summarise

    root = runs_root(runs)
    rows = [summarise(run) for run in list_runs(root)]
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
    console.out().print(console.table(None, ("run", "<recipe", ">step", "<state", "<started", ">size"), cells))


@app.command()
def show(
    name: RunArgument = None,
    runs: RunsOption = None,
    steps: Annotated[int, Option(min=0, help="Last steps to show.")] = 5,
    plot: Annotated[
        Path | None,
        Option(metavar="FILE", help="Draw its curves into a .png, .svg or .pdf too; one there is replaced."),
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show one run: where it stands, its checkpoints, its last steps and evaluations."""
    from codea1_cli.cli.compare import gpu_hours
    from codea1_cli.recipe.files import flat
    from codea1_cli.runs.checkpoints import checkpoints
    from codea1_cli.runs.run_dir import find_run, runs_root
    from codea1_cli.runs.summary import last_metrics, spent, summarise
    from codea1_cli.runs.tracking import places

    run = find_run(name, runs_root(runs))
    if plot is not None:
        _draw(run, plot)
    row, info, kept, best = summarise(run), run.info(), checkpoints(run), run.best()
    (step_lines, eval_lines), cost = last_metrics(run, steps), spent(run)
    if as_json:
        data = console.jsonable(row)
        more = {"checkpoints": kept, "best": best, "last_steps": step_lines, "evals": eval_lines, "spent": cost}
        console.emit({**data, "run": info, **more})
        return
    out = console.out()
    total = f" of {row.total}" if row.total else ""
    where = f" at step {row.step}{total}" if row.state != "stopped before step 1" else total
    out.print(f"{row.name}: {row.state}{where}", style="title", markup=False, soft_wrap=True)
    facts = {"folder": row.path, "recipe": row.recipe, "started": row.started}
    if data := info.get("data"):
        facts["problems"] = f"{data.get('problems')} of {data.get('train')}, held out: {data.get('heldout') or 'none'}"
    facts["size"] = size_text(row.bytes)
    facts["checkpoints"] = ", ".join(f"{item['step']} ({size_text(item['bytes'])})" for item in kept) or "none"
    if best:
        facts["best"] = f"step {best['step']}, {best['figure']} {best['value']:.4g}"
    if (warmup := summarise(run.warmup)).recipe != "?":
        facts["warm-up"] = f"{warmup.state} at step {warmup.step} of {warmup.total or '?'}, {run.warmup.path}"
    if hours := gpu_hours(cost):
        facts["GPU hours"] = "; ".join(hours)
    facts |= {f"in {name}": where for name, where in places(run).items()}
    if row.error:
        facts["error"] = row.error
    if isinstance(info.get("command"), list):
        facts["command"] = shlex.join(map(str, info["command"]))
    if info.get("resumed"):
        facts["resumed"] = "; ".join(map(_resumed, info["resumed"]))
    known = {*facts, "name", "problem_ids", "pair_ids", "environment", "stop", "error"}
    for told in (facts, flat({key: value for key, value in info.items() if key not in known})):
        for key, value in told.items():
            out.print(f"  {key:<14} {console.printable(str(value))}", markup=False, soft_wrap=True)
        if told is facts:
            _print_lines("last steps", step_lines, _STEP_COLUMNS)
            _print_lines("evaluations", eval_lines, _EVAL_COLUMNS)
            out.print("made with", style="title")


def _draw(run: "RunDir", file: Path) -> None:
    from codea1_cli.durable import write_atomic
    from codea1_cli.report.curves import picture, tables, with_intervals
    from codea1_cli.runs.summary import measured

    kind = file.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise UserError(f"{file} names no image format", hint="end it in .png, .svg or .pdf")
    found = tables(run.metrics())
    if not found:
        raise UserError(f"run {run.name} has no figures yet", hint="its first step writes some")
    if "heldout" in found:
        found["heldout"] = with_intervals(found["heldout"], measured(run, console.warn).get("heldout", {}))
    write_atomic(file, picture(run.name, found, kind))
    console.note(f"curves of {run.name} in {file}")


def _resumed(entry: dict[str, Any]) -> str:
    changed = ", ".join(f"{key} {before} -> {now}" for key, (before, now) in entry["changed"].items())
    return f"after step {entry['step']}" + (f" with {changed}" if changed else "")


# What a person looks for first; --json and metrics.jsonl hold the rest.
_STEP_COLUMNS = {
    "step": "step",
    "code.reward": "code reward",
    "test.reward": "test reward",
    "code.token_accuracy": "code accuracy",
    "test.token_accuracy": "test accuracy",
    "arena.code_signal_share": "code signal",
    "arena.test_signal_share": "test signal",
    "arena.exposed_share": "exposed",
    "arena.false_alarm_share": "false alarm",
    "arena.suite_validity": "validity",
    "arena.stated_correctly_share": "rightly",
    "arena.asserts_per_suite": "asserts",
    "arena.group_calls": "calls",
    "arena.wrong_share": "wrong",
    "arena.book_tests": "book",
    "arena.unscored": "unscored",
    "timing.step_s": "seconds",
}
_EVAL_COLUMNS = {
    "step": "step",
    "eval.set": "set",
    "eval.code.pass@1": "pass@1",
    "eval.base/pass@1": "base pass@1",
    "eval.plus/pass@1": "plus pass@1",
    "eval.tests/pass@1": "tests pass@1",
    "eval.test.exposed": "exposed",
    "eval.near_miss.exposed": "near-miss",
    "eval.test.false_alarm": "false alarm",
    "eval.test.validity": "validity",
    "eval.test.stated_correctly": "rightly",
    "eval.test.asserts": "asserts",
    "eval.validity": "validity %",
    "eval.mutation": "mutation %",
}


def _print_lines(title: str, lines: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """A table of the columns that any of the lines fills."""
    from codea1_cli.recipe.files import flat

    rows = [flat(line) for line in lines]
    used = {key: heading for key, heading in columns.items() if any(row.get(key) is not None for row in rows)}
    if not used:
        return
    cells = [["" if row.get(key) is None else _number(row[key]) for key in used] for row in rows]
    console.out().print(console.table(title, [f">{heading}" for heading in used.values()], cells))


@app.command()
def prune(
    run: Annotated[str | None, Option(metavar="RUN", help="Only this run; all runs when left out.")] = None,
    runs: RunsOption = None,
    keep: Annotated[int, Option(min=1, help="Newest checkpoints to keep in each run.")] = 1,
    whole: Annotated[bool, Option("--whole", help="Delete the whole run named by --run.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be freed.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Delete old checkpoints, never a run's newest; with --whole, a whole run. Runs in progress are left alone."""
    from codea1_cli.runs.run_dir import find_run, list_runs, runs_root

    if whole and run is None:
        raise UserError("--whole deletes the run that --run names, and none is named", hint="add --run NAME")
    root = runs_root(runs)
    chosen = [find_run(run, root)] if run is not None else list_runs(root)
    busy = [item for item in chosen if item.locked_by() is not None]
    if busy and run is not None:
        raise UserError(
            f"run {busy[0].name} is in progress: process {busy[0].locked_by()}", hint="wait for it, or stop it first"
        )
    plan = _plan([item for item in chosen if item not in busy], keep, whole)
    freed = sum(entry["bytes"] for entry in plan)
    if not as_json:
        for item in busy:
            console.note(f"{item.name} is in progress and left alone")
        for entry in plan:
            what = "the whole run" if entry["step"] is None else f"checkpoint {entry['step']}"
            console.out().print(f"{entry['run']}: {what}, {size_text(entry['bytes'])}", markup=False, soft_wrap=True)
    if plan and not dry_run:
        if not console.confirm(f"delete {len(plan)} of these, {size_text(freed)}?", yes):
            console.note("nothing deleted")
            return
        _delete(chosen, plan)
    if as_json:
        console.emit({"deleted": [] if dry_run else plan, "would_delete": plan if dry_run else [], "bytes": freed})
    elif not plan:
        console.note("nothing to delete")
    else:
        console.note(f"{'would free' if dry_run else 'freed'} {size_text(freed)}")


def _plan(chosen: "list[RunDir]", keep: int, whole: bool) -> list[dict[str, Any]]:
    from codea1_cli.runs.checkpoints import folder_bytes

    if whole:
        return [{"run": item.name, "step": None, "bytes": folder_bytes(item.path)} for item in chosen]
    return [
        {"run": item.name, "step": step, "bytes": folder_bytes(item.checkpoint(step))}
        for item in chosen
        for step in item.prunable(keep, steps=_whole_steps(item))
    ]


def _whole_steps(run: "RunDir") -> list[int]:
    """A damaged checkpoint is neither deleted nor counted: those before it are what the run can go on from."""
    from codea1_cli.runs.checkpoints import damage

    try:
        policies = method_of(run.recipe()).policies
    except UserError:
        policies = ()
    return [step for step in run.committed_steps() if damage(run.checkpoint(step), step, policies) is None]


def _delete(chosen: "list[RunDir]", plan: list[dict[str, Any]]) -> None:
    by_name = {item.name: item for item in chosen}
    for entry in plan:
        item = by_name[entry["run"]]
        with item.locked():
            if entry["step"] is not None:
                item.delete_checkpoint(entry["step"])
                continue
            # Out of the list at once: a crash in the middle leaves a hidden leftover, not half a run.
            doomed = item.path.with_name(f".{item.name}.deleted")
            shutil.rmtree(doomed, ignore_errors=True)
            item.path.rename(doomed)
        shutil.rmtree(doomed)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else console.printable(str(value))


def export(
    role: Annotated[Literal["code", "test"], Option(help="Whose policy; one of self-play is both.")],
    to: Annotated[Path, Option(metavar="DIR", help="A new or empty folder.")],
    run: RunArgument = None,
    step: Annotated[int | None, Option(min=1, help="A checkpoint's step; the newest when left out.")] = None,
    push: Annotated[str | None, Option(metavar="OWNER/NAME", help="Send it to this repository of the hub too.")] = None,
    private: Annotated[bool, Option("--private", help="Make that repository a private one, where it is new.")] = False,
    runs: RunsOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write one policy of a checkpoint as a folder that `from_pretrained` loads; LoRA adapters are merged."""
    from codea1_cli.durable import only_writer
    from codea1_cli.runs.policy_folders import export_policy
    from codea1_cli.runs.run_dir import find_run, runs_root

    chosen = find_run(run, runs_root(runs))
    with only_writer(to, to, wait, "--to"):
        done = export_policy(chosen, role, to, step, push, private)
    if as_json:
        console.emit(asdict(done))
        return
    what = "merged adapter" if done.merged_adapter else f"{len(done.files)} files"
    console.note(f"{role} policy of {done.run} at step {done.step}: {what}, {done.bytes / 1e6:.1f} MB")
    console.out().print(done.pushed or done.to, markup=False, soft_wrap=True)
