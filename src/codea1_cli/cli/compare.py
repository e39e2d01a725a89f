"""`codea1 compare` and `codea1 report`: what differs between runs and what came of it, as tables and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption
from codea1_cli.cli.shell import run_names
from codea1_cli.errors import UserError, clock, counted, size_text

if TYPE_CHECKING:
    from codea1_cli.evals.statistics import Change
    from codea1_cli.runs.run_dir import RunDir
    from codea1_cli.runs.summary import Arm, Side

_NUMBERS = ("asserts per suite",)  # all others are shares
_SIDES: tuple[Side, Side] = ("before", "after")
_OWN = ("name", "description", "seed", "tracker")  # what tells runs of one recipe apart


NamesArgument = Annotated[
    list[str], Argument(metavar="RUN...", help="Runs, or folders of runs over seeds.", autocompletion=run_names)
]


def compare(
    names: NamesArgument,
    runs: RunsOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Compare runs with the first one. Recipes, figures with paired 95 % intervals, time, tokens and GPU hours.

    Exit 2 where a set was measured on different problems.
    """
    from codea1_cli.runs.run_dir import runs_root

    arms = [_arm(name, _named(name, runs_root(runs))) for name in names]
    spent, recipes = [_spent(arm) for arm in arms], _recipes(arms)
    sets = {kind: _rows(arms, kind) for kind in _kinds(arms)}
    if as_json:
        console.emit({"runs": spent, "recipes": recipes, "sets": sets})
        return
    cells = []
    for one in spent:
        counts, hours = map(_list, (one["seeds"], one["steps"])), f"{one['gpu_hours']:.2f}"
        cells.append((one["run"], *counts, clock(one["seconds"]), f"{one['tokens']:,.0f}", hours))
    console.show(console.table("a run of each", ("<run", ">seeds", ">steps", ">time", ">tokens", ">GPU hours"), cells))
    keys = [[(key, ""), *((f"  {arm.name}", _value(recipes[key][i])) for i, arm in enumerate(arms))] for key in recipes]
    if keys:
        console.show(console.table("what differs in the recipes", ("<key", "value"), chain.from_iterable(keys)))
    for kind, found in sets.items():
        columns = ("<figure", ">before", ">after", ">gain", ">against the first")
        console.show(console.table(kind, columns[: 4 if len(arms) == 1 else 5], _cells(found, len(arms))))
        for line in _remarks(arms, kind, found):
            console.note(f"{kind}: {line}")
    if not sets:
        console.note("no evaluation of these runs is kept by problem: none yet, or no data.heldout and eval.benchmarks")


def report(
    names: NamesArgument,
    out: Annotated[Path, Option(metavar="FILE.html", help="The page to write.")],
    runs: RunsOption = None,
    problem: Annotated[
        list[str] | None, Option(metavar="ID", help="Have this problem's rollouts in the page; may be repeated.")
    ] = None,
    size: Annotated[float, Option(metavar="MB", min=0.1, help="Room for rollouts, of all runs together.")] = 3.0,
    force: Annotated[bool, Option("--force", help="Replace FILE when it exists.")] = False,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write one page of runs that opens without a network. Curves, problems, rollouts, and what differs.

    A run may be in progress or damaged: the page says what is missing.
    """
    from codea1_cli.durable import check_target, only_writer, write_atomic
    from codea1_cli.report import page, page_data
    from codea1_cli.runs.run_dir import runs_root

    check_target(out, force)
    short = [Path(name).name or Path.cwd().name for name in names]
    labels = short if len(set(short)) == len(names) else names
    chosen = {label: _named(name, runs_root(runs), damaged=True) for label, name in zip(labels, names, strict=True)}
    data = page_data(chosen, _compared(chosen), budget=int(size * 1e6), wanted=problem or ())
    with only_writer(out, out, wait):
        write_atomic(out, page(console.jsonable(data)))
    missing = {run["path"]: run["missing"] for run in data["runs"] if run["missing"]}
    lacks: dict[str, list[str]] = {}  # of runs over seeds most lack the same
    for where, each in missing.items():
        for what in each:
            lacks.setdefault(what.removeprefix(f"{where}/").replace(f" {where}/", " "), []).append(where)
    if as_json:
        console.emit({"file": out, "bytes": out.stat().st_size, "runs": list(chosen), "missing": missing})
        return
    for what, places in lacks.items():
        console.warn(f"{places[0]}{f' and {len(places) - 1} more' if len(places) > 1 else ''}: {what}")
    console.note(f"{counted(len(data['runs']), 'run')}, {size_text(out.stat().st_size)}")
    console.say(console.cell(out, whole=True))


def _compared(chosen: Mapping[str, Sequence[RunDir]]) -> dict[str, Any]:
    """What `compare` gives of these runs; `error` says what it refuses, a set that is refused has its own."""
    damaged = (UserError, OSError, ValueError, TypeError, LookupError, AttributeError)
    found: dict[str, Any] = {"runs": [], "recipes": {}, "sets": {}}
    try:
        arms = [_arm(name, runs) for name, runs in chosen.items()]
        found["runs"] = [_spent(arm) for arm in arms]
    except damaged as error:
        return found | {"error": str(error)}
    try:
        found["recipes"] = _recipes(arms)
    except damaged as error:
        found["error"] = str(error)
    for kind in _kinds(arms):
        try:
            found["sets"][kind] = _rows(arms, kind)
        except UserError as error:
            found["sets"][kind] = {"error": error.what}
    return found


def _named(name: str, root: Path, *, damaged: bool = False) -> list[RunDir]:
    """The runs that an argument names; of a `damaged` one its folder is enough."""
    from codea1_cli.runs.run_dir import RunDir, find_run, list_runs, run_places
    from codea1_cli.runs.summary import known_info

    places = run_places(name, root)
    for place in places:
        whole = RunDir(place).exists()
        if whole or (damaged and any((place / part).exists() for part in ("run.json", "metrics.jsonl", "rollouts"))):
            return [RunDir(place)]
    found = next(filter(None, map(list_runs, places)), None) or [find_run(name, root)]
    return sorted(found, key=lambda run: (str(known_info(run).get("seed", "")).zfill(12), run.name))


def _arm(name: str, chosen: Sequence[RunDir]) -> Arm:
    """An argument's runs. A run whose last evaluation is of an earlier step than the others' is named and left out.

    Raises:
        UserError: two of the runs have the same seed.
    """
    from codea1_cli.runs.summary import Arm, measured, seed_of

    by_seed = sorted(((seed_of(run), run.name, run) for run in chosen), key=lambda one: one[:2])
    for (seed, one, _), (other_seed, other, _) in pairwise(by_seed):
        if seed == other_seed:
            raise UserError(f"{name}: {one} and {other} both have seed {seed}", hint="keep one of them in the folder")
    label = name.rstrip("/") if Path(name).name else Path.cwd().name
    kept, sets = [], [measured(run) for *_, run in by_seed]
    last = [max((step for steps in run.values() for step in steps), default=-1) for run in sets]
    for (seed, named, run), found, step in zip(by_seed, sets, last, strict=True):
        if step == max(last):
            kept.append((run, seed, found))
            continue
        when = f"last evaluated at step {step}" if step >= 0 else "never evaluated"
        console.warn(f"{label}: {named} is left out: it was {when}, the others at step {max(last)}")
    return Arm(label, *(list(column) for column in zip(*kept, strict=True)))


def _kinds(arms: Sequence[Arm]) -> list[str]:
    """The evaluation sets of any run."""
    return list(dict.fromkeys(kind for arm in arms for run in arm.sets for kind in run))


def _spent(arm: Arm) -> dict[str, Any]:
    """What a run of an arm took, in the mean over its seeds."""
    from codea1_cli.runs import spent

    each = [spent(run) for run in arm.runs]
    means = {key: sum(one[key] for one in each) / len(each) for key in ("seconds", "tokens", "gpu_hours")}
    steps = sorted({int(one["steps"]) for one in each})
    return {"run": arm.name, "folders": [str(run.path) for run in arm.runs], "seeds": arm.seeds, "steps": steps} | means


def _recipes(arms: Sequence[Arm]) -> dict[str, list[Any]]:
    """The keys that differ, with each arm's value; None for a key that its method ignores.

    Raises:
        UserError: runs of one arm differ in more than their seeds.
    """
    from codea1_cli.recipe import flat

    found = []
    for arm in arms:
        first, *others = [{k: v for k, v in flat(run.recipe().dump()).items() if k not in _OWN} for run in arm.runs]
        for run, other in zip(arm.runs[1:], others, strict=True):
            if apart := [key for key in first | other if first.get(key) != other.get(key)]:
                who = f"{arm.name}: {arm.runs[0].name} and {run.name}"
                raise UserError(
                    f"{who} differ in {', '.join(apart)}, not only in their seeds",
                    hint="put the runs of each recipe into a folder of their own",
                )
        found.append(first | ({"seed": arm.seeds[0]} if len(arm.runs) == 1 else {}))
    keys = dict.fromkeys(key for recipe in found for key in recipe)
    values = {key: [recipe.get(key) for recipe in found] for key in keys}
    return {key: each for key, each in values.items() if any(value != each[0] for value in each)}


def _rows(arms: Sequence[Arm], kind: str) -> list[dict[str, Any]]:
    """Each figure of a set in each arm: before and after training, and against the first arm after it.

    Raises:
        UserError: the arms were measured on different problems.
    """
    from codea1_cli.runs.summary import compared

    gains: list[Mapping[str, Change]] = []
    against: list[Mapping[str, Change]] = []
    sides = [(arm.at(kind, "before"), arm.at(kind, "after")) for arm in arms]
    first = sides[0][1]
    for arm, (before, after) in zip(arms, sides, strict=True):
        both = (before or after, after or before)
        gains.append(compared(*both, f"{kind} in {arm.name}") if all(both) else {})
        paired = arm.seeds == arms[0].seeds
        what = f"{kind} in {arms[0].name} and {arm.name}"
        against.append(compared(first, after, what, by_seed=paired) if first and after and arm is not arms[0] else {})
    rows = []
    for figure in dict.fromkeys(name for gain in gains for name in gain):
        for arm, (before, after), gain, other in zip(arms, sides, gains, against, strict=True):
            if figure not in gain:
                continue
            change = gain[figure]
            rows.append(
                {
                    "figure": figure,
                    "run": arm.name,
                    "steps": {side: sorted(set(arm.steps(kind, side))) for side in _SIDES},
                    "before": None if not before or isnan(change.before) else change.before,
                    "after": None if not after or isnan(change.after) else change.after,
                    "gain": _difference(change) if before and after else None,
                    "against": _difference(other[figure]) if figure in other else None,
                }
            )
    return rows


def _remarks(arms: Sequence[Arm], kind: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What a set's table does not show: which runs have no result, steps that differ, and what is not paired."""
    for name in chain.from_iterable(arm.unmeasured(kind) for arm in arms):
        yield f"{name} has no figures after its first step"
    for side in _apart(rows):
        steps = [(arm.name, sorted(set(arm.steps(kind, side)))) for arm in arms]
        yield f"`{side}` is {', '.join(f'{_steps(at)} of {name}' for name, at in steps if at)}"
    if arms[0].at(kind, "after"):
        others = [row for row in rows if row["run"] != arms[0].name and row["after"] is not None]
        if left := sorted({row["figure"] for row in others if not row["against"]}):
            yield f"not paired, for want of the same figure or the same wrong programs: {', '.join(left)}"


def _apart(rows: Sequence[Mapping[str, Any]]) -> list[Side]:
    """The sides of a set whose steps are to be told: they differ, or training had begun before the first of them."""
    found = {side: {step for row in rows for step in row["steps"][side]} for side in _SIDES}
    return [side for side in _SIDES if len(found[side]) > 1 or (side == "before" and any(found[side]))]


def _steps(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {_list(steps)}"


def _difference(change: Change) -> dict[str, float] | None:
    return {"mean": change.gain, "low": change.low, "high": change.high} if change.known else None


def _cells(rows: Sequence[Mapping[str, Any]], arms: int) -> list[list[str]]:
    """Rows of a set's table; with several runs each figure's name stands above its rows, and beside a run its steps
    where they differ."""
    cells, told = [], _apart(rows)
    for figure, group in groupby(rows, key=lambda row: row["figure"]):
        scale = 1 if figure in _NUMBERS else 100
        cells += [[figure, "", "", "", ""]] if arms > 1 else []
        for row in group:
            plain = ["" if row[key] is None else f"{scale * row[key]:.1f}" for key in ("before", "after")]
            apart = ["" if row[key] is None else _interval(row[key], scale) for key in ("gain", "against")]
            steps = ", ".join(f"{side} {_steps(at)}" for side in told if (at := row["steps"][side]))
            name = f"  {row['run']} ({steps})" if steps else f"  {row['run']}"
            cells.append([name, *plain, *apart] if arms > 1 else [figure, *plain, apart[0]])
    return cells


def _interval(one: Mapping[str, float], scale: float) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*(scale * one[key] for key in ("mean", "low", "high")))


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) if len(values) < 4 else f"{len(values)}: {values[0]} to {values[-1]}"


def _value(value: Any) -> str:
    return "-" if value is None else console.printable(str(value))
