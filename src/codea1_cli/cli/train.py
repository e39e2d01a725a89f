"""`codea1 train`: the main job."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption
from codea1_cli.cli.shell import RecipeOption, override_values, run_names
from codea1_cli.cli.watch import TrackerOption
from codea1_cli.durable import check_writable, write_atomic
from codea1_cli.environment import cores, demand_linux
from codea1_cli.errors import UserError, command, counted

if TYPE_CHECKING:
    from codea1_cli.engine.ranks import Node
    from codea1_cli.planning.gpu_assignment import GpuAssignment
    from codea1_cli.problems.problem import Problem
    from codea1_cli.recipe.schema import Recipe
    from codea1_cli.runs.run_dir import RunDir

Changes = dict[str, list[object]]


def train(
    overrides: Annotated[
        list[str] | None,
        Argument(
            metavar="[KEY=VALUE]...",
            help="Recipe keys to override, such as train.max_steps=20; with --resume only the length of the run, "
            "tracker, checkpoint.*, eval.*, faults.*, preflight.*, sandbox.endpoint and sandbox.patience_s.",
            autocompletion=override_values,
        ),
    ] = None,
    recipe: RecipeOption = None,
    run: Annotated[
        str | None, Option(metavar="NAME", help="The run's name; else recipe and time.", autocompletion=run_names)
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with a run: --run, or the newest one.")] = False,
    start_over: Annotated[
        bool, Option("--start-over", help="With --resume: begin at the first step again, whatever is saved.")
    ] = False,
    max_steps: Annotated[
        int | None, Option(min=1, help="Stop after this step and save; the schedule stays that of the whole run.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan and start nothing.")] = False,
    no_preflight: Annotated[
        bool, Option("--no-preflight", help="Begin without trying a few samples of both sides first.")
    ] = False,
    address: Annotated[
        str | None, Option(help="A running Ray cluster, of one node or several; left out, the run starts its own.")
    ] = None,
    tracker: TrackerOption = None,
    runs: RunsOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Train both policies. A run directory holds everything that it leaves."""
    from codea1_cli.cli.plan import estimate_here, first_use, free_disk, told_first
    from codea1_cli.cli.plan_view import headline, run_data, show_run
    from codea1_cli.cli.recipes import fetched
    from codea1_cli.data.pairs import row_counts
    from codea1_cli.engine.ranks import survey
    from codea1_cli.engine.resume import begin_anew
    from codea1_cli.engine.run_setup import run_length, stated_outside
    from codea1_cli.engine.shutdown import stoppable
    from codea1_cli.planning.estimate import check_disk
    from codea1_cli.planning.gpu_assignment import assign_gpus, settle_precision, visible_gpus
    from codea1_cli.recipe.batching import fitted
    from codea1_cli.recipe.files import resumed_recipe
    from codea1_cli.recipe.resources import check_benchmarks, heldout_problems, split_notes, unread_problems
    from codea1_cli.runs.run_dir import runs_root
    from codea1_cli.trackers import check_trackers

    root = runs_root(runs)
    given, options = list(overrides or []), ["--no-preflight"] * no_preflight
    options += [word for name in tracker or () for word in ("--tracker", name)]
    overrides = given + ["preflight.enabled=false"] * no_preflight + [f"tracker={json.dumps(tracker)}"] * bool(tracker)
    source, changes, nodes, notes = "", Changes(), list["Node"](), list[str]()
    if resume:
        if recipe is not None:
            raise UserError("--resume takes no recipe: a run keeps its own", hint="leave it out, or start a new run")
        directory = _directory("", run, root, resume, options)
        chosen, changes = resumed_recipe(directory.recipe_file, overrides)
    else:
        if start_over:
            raise UserError("--start-over goes with --resume", hint="a new run begins at its first step anyway")
        chosen, source = _new(recipe, overrides, run, root, options)
        directory = _directory(chosen.name, run, root, resume, options)
    check_trackers(chosen.tracker)
    with told_first(notes):
        ranks = {}
        if dry_run:
            chosen, (fewest, count), to_hold_out = first_use(chosen, None, notes)
        else:
            demand_linux("training", "--dry-run works here")
            ranks, to_hold_out = assign_gpus(chosen, visible_gpus(), cores()) if address is None else {}, 0
            chosen, problems = fetched(chosen, ranks, directory if resume else None)
            gone = unread_problems(chosen, problems) | stated_outside(chosen, problems)
            fewest, count = (number - len(gone) for number in row_counts(problems))
        # A broken held-out file or a missing benchmark shall be found now, not after an hour.
        notes += split_notes(chosen, count, heldout_problems(chosen), to_hold_out)
        notes += check_benchmarks(chosen, look=dry_run)
        if address is not None:
            nodes = survey(address)
            each = ", ".join(f"{node.host} ({counted(len(node.gpus), 'GPU')})" for node in nodes)
            console.note(f"cluster of {counted(len(nodes), 'node')}: {each}")
            if not nodes[0].asks_for_token:
                console.warn(
                    f"the cluster at {address} asks for no token: whoever reaches its ports can run programs as the "
                    "user that started it, and read and change this run (docs/cluster.md says how to start it with one)"
                )
            offered = [gpu for node in nodes for gpu in node.gpus]
            ranks = assign_gpus(chosen, offered, sum(node.cores for node in nodes), f"the cluster at {address}")
        ranks = ranks or assign_gpus(chosen, visible_gpus(), cores())
        chosen, fewer = fitted(chosen, fewest, {policy: len(group) for policy, group in ranks.items()})
        notes += [fewer] if fewer else []
        chosen = settle_precision(chosen, on_gpu=any(gpu is not None for group in ranks.values() for gpu in group))
        done = 0 if start_over or not resume else directory.latest_step()
        length = run_length(chosen, count)
        if dry_run and done:
            _refuse_finished(directory, done, length, max_steps, list(given))
        left = chosen.train.model_copy(update={"max_steps": max(min(length, max_steps or length) - done, 1)})
        rest = chosen.model_copy(update={"train": left, "warmup": None if done else chosen.warmup})
        estimate = estimate_here(rest, count, ranks, hosts=max(len(nodes), 1))
    if dry_run:
        plan = run_data(chosen, count, ranks, estimate, done + 1, max_steps) | {"notes": notes}
        if as_json:
            console.emit(plan)
        else:
            show_run(plan, estimate)
            words = ["train", *(["--recipe", recipe] if recipe else []), *["--resume"] * resume]
            words += ["--start-over"] * start_over + (["--run", run] if run else [])
            words += (["--runs", str(runs)] if runs else []) + options
            words += [f"--{name}={value}" for name, value in (("max-steps", max_steps), ("address", address)) if value]
            console.note(f"next: {command(*words, *given)}")
        return console.EXIT_OK
    told = [*notes, *(headline(estimate) if estimate is not None else ())]
    for line in () if resume else told:
        console.note(line)
    if estimate is not None and not resume:  # a run that goes on replaces its own checkpoints
        check_disk(estimate, free_disk(root), str(root))
    # Not during a step: that one is finished and saved.
    with stoppable(lambda: _stopped(directory)), directory.locked(wait):
        resume_step = _prepare_resume(directory, chosen, changes, start_over, max_steps) if resume else 0
        if resume:
            for line in told:  # not of a run that has come to its end
                console.note(line)
        elif directory.begun():  # somebody else's, begun since it was looked at
            raise UserError(f"run {directory.name} exists already", hint="choose another name with --run")
        else:
            if directory.exists():
                console.note(begin_anew(directory))
            _write_recipe(directory, chosen, source)
        return _train(chosen, directory, problems, ranks, nodes, resume_step, max_steps, address, as_json)


def _stopped(directory: "RunDir") -> str:
    saved, goes_on = directory.latest_step(), command("train", *directory.options, "--resume")
    if not saved:
        begun = directory.warmup.exists()
        return f"stopped before the first step; {f'next: {goes_on}' if begun else 'nothing to resume'}"
    if saved >= directory.info().get("total_steps", saved + 1):
        return f"stopped; step {saved} was the last and is saved"
    return f"stopped; step {saved} is saved; next: {goes_on}"


def _new(
    recipe: str | None, overrides: list[str], run: str | None, root: Path, options: list[str]
) -> "tuple[Recipe, str]":
    from codea1_cli.files import read_text
    from codea1_cli.recipe.files import load_recipe, recipe_names, recipe_path, with_absolute_paths
    from codea1_cli.runs.run_dir import RunDir

    if recipe is None:
        if run and (there := RunDir(root / run)).exists():
            raise UserError(f"no recipe given, and run {there.name} exists already", hint=_goes_on(there, options))
        raise UserError(
            "no recipe given",
            hint=f"--recipe NAME, one of {', '.join(recipe_names())}; "
            f"`{command('train', '--recipe', 'tiny')}` needs no GPU and no network",
        )
    chosen = with_absolute_paths(load_recipe(recipe, overrides))
    heading = "".join(f"# override: {override}\n" for override in overrides)
    return chosen, f"# recipe: {recipe}\n{heading}{read_text(recipe_path(recipe))}"


def _directory(recipe: str, run: str | None, root: Path, resume: bool, options: list[str]) -> "RunDir":
    from codea1_cli.runs.run_dir import RunDir, find_run

    if resume:
        return find_run(run, root)
    check_writable(root, "--runs")
    if run is not None and (run in {".", ".."} or "/" in run or not run.strip()):
        raise UserError(f"{run!r} is no name for a run", hint="a plain name; the folder of runs is --runs")
    directory = RunDir(root / (run or f"{recipe}-{datetime.now():%Y%m%d-%H%M%S}"))
    if directory.exists() and directory.begun():
        with directory.locked():  # a run that is being trained is neither to go on with nor to remove
            pass
        raise UserError(
            f"run {directory.name} exists already",
            hint=f"{_goes_on(directory, options)}, "
            f"`{command('runs', 'prune', *directory.options, '--whole', '--yes')}` removes it; or choose another --run",
        )
    if not directory.exists() and directory.path.is_dir() and any(p.name != "lock" for p in directory.path.iterdir()):
        raise UserError(f"{directory.path} is there already, and is no run (no recipe.yaml)", hint="choose a new name")
    return directory


def _goes_on(directory: "RunDir", options: list[str]) -> str:
    """The hint with which a run goes on: at its end, longer."""
    done = directory.latest_step()
    longer = [f"train.max_steps={2 * done}"] if 0 < directory.info().get("total_steps", 0) <= done else []
    return f"`{command('train', *directory.options, '--resume', *longer, *options)}` goes on with it"


def _refuse_finished(directory: "RunDir", step: int, total: int, max_steps: int | None, words: list[str]) -> None:
    """Raises UserError where a run at `step` has come to its end, or to where `max_steps` stops it."""
    if step >= min(total, max_steps or total):
        raise UserError(
            f"run {directory.name} is at step {step} of {total}: there is nothing left to do",
            hint=f"go on to the end: `{command('train', *directory.options, '--resume', *words)}`"
            if step < total
            else f"make it longer: `{command('train', *directory.options, '--resume', f'train.max_steps={2 * step}')}`",
        )


def _prepare_resume(
    directory: "RunDir", recipe: "Recipe", changes: Changes, start_over: bool, max_steps: int | None
) -> int:
    """Finds where the run goes on, sets aside what is later, and records what was changed. Returns the step."""
    import sys
    import time

    from codea1_cli.engine.resume import resume_point, set_aside
    from codea1_cli.engine.run_setup import run_length

    point = resume_point(directory, start_over)
    step = point.step
    total = run_length(recipe, len(directory.info()["problem_ids"])) if step else 0
    words = [f"{key}={json.dumps(now)}" for key, (_, now) in changes.items()]
    if step:
        _refuse_finished(directory, step, total, max_steps, words)
    for number, fault in sorted(point.damaged.items() if not start_over else ()):
        console.warn(f"checkpoint {number} is damaged: {fault}")
    if moved := set_aside(directory, point):
        folder, what = moved
        console.note(f"what came after step {step} is set aside in {folder}: {', '.join(what)}")
    warm = not start_over and directory.warmup.exists()
    how = f"goes on from step {step}" if step else "goes on with its warm-up" if warm else "starts over"
    console.note(f"run {directory.name} {how}")
    _write_recipe(directory, recipe, "")
    if changes:
        with open(directory.path / "recipe.source.yaml", "a", encoding="utf-8") as file:
            file.write(f"# after step {step}: {' '.join(words)}\n")
        console.note(f"changed from here on: {', '.join(words)}")
    now = {"step": step, "time": round(time.time(), 3), "command": sys.argv, "changed": changes}
    directory.note(resumed=[*directory.info().get("resumed", []), now])
    return step


def _write_recipe(directory: "RunDir", recipe: "Recipe", source: str) -> None:
    from codea1_cli.recipe.files import recipe_text

    directory.create()
    if source:
        write_atomic(directory.path / "recipe.source.yaml", source)
    directory.keep_data_card(Path(recipe.data.train or ""))
    write_atomic(directory.recipe_file, recipe_text(recipe))


def _train(
    recipe: "Recipe",
    directory: "RunDir",
    problems: "list[Problem]",
    ranks: "GpuAssignment",
    nodes: "list[Node]",
    resume_step: int,
    max_steps: int | None,
    address: str | None,
    as_json: bool,
) -> int:
    from codea1_cli.cli.make_pairs import warmed_up
    from codea1_cli.cli.train_view import train_shown

    outcome = None
    if recipe.warmup is not None:
        recipe, outcome = warmed_up(recipe, directory, ranks, nodes, address)
    if outcome is None:
        outcome = train_shown(recipe, directory, problems, ranks, nodes, resume_step, max_steps, address)
    if as_json:
        where = asdict(outcome)
        summary = where.pop("summary")
        console.emit({"run": str(directory.path), "state": outcome.state, **where, **summary})
    return console.EXIT_INTERRUPTED if outcome.interrupted else console.EXIT_OK
