"""`codea1 compare`: what differs between runs, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption
from codea1_cli.errors import UserError

if TYPE_CHECKING:
    from codea1_cli.evals.statistics import Change
    from codea1_cli.runs.run_dir import RunDir
    from codea1_cli.runs.summary import Measured

_NUMBERS = ("asserts per suite",)  # all others are shares
_OWN = ("name", "description", "seed")  # what tells runs of one recipe apart


@dataclass(frozen=True)
class Arm:
    """One argument of the command: its runs in the order of their seeds, and what each was measured at."""

    name: str
    runs: list[RunDir]
    seeds: list[int]
    sets: list[dict[str, dict[int, Measured]]]

    def at(self, kind: str, place: int) -> list[Measured]:
        """What a set gave in each run at its first (0) or last (-1) evaluation; empty where a run has none of it."""
        found = [run.get(kind, {}) for run in self.sets]
        return [steps[sorted(steps)[place]] for steps in found] if all(found) else []

    def trained(self, kind: str) -> bool:
        """Whether every run was measured twice or more."""
        return all(len(run.get(kind, {})) > 1 for run in self.sets)


def compare(
    names: Annotated[
        list[str], Argument(metavar="RUN...", help="Runs, by name or folder, or folders of runs over seeds.")
    ],
    runs: RunsOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Compare runs with the first one: recipes, figures with paired 95 % intervals, time, tokens and GPU hours.

    Exit 2 where a set was measured on different problems.
    """
    from codea1_cli.cli.train_view import clock
    from codea1_cli.runs.run_dir import runs_root

    arms = [_arm(name, runs_root(runs)) for name in names]
    spent, recipes = [_spent(arm) for arm in arms], _recipes(arms)
    sets = {kind: _rows(arms, kind) for kind in dict.fromkeys(kind for arm in arms for run in arm.sets for kind in run)}
    if as_json:
        console.emit({"runs": spent, "recipes": recipes, "sets": sets})
        return
    out = console.out()
    cells = [
        (one["run"], *map(_list, (one["seeds"], one["steps"])), clock(one["seconds"]), *_costs(one)) for one in spent
    ]
    out.print(console.table("a run of each", ("run", ">seeds", ">steps", ">time", ">tokens", ">GPU hours"), cells))
    if recipes:
        rows = [(key, *map(_value, values)) for key, values in recipes.items()]
        out.print(console.table("what differs in the recipes", ("key", *(arm.name for arm in arms)), rows))
    for kind, found in sets.items():
        columns = ("figure", "run", ">before", ">after", ">gain", f">against {arms[0].name}")
        out.print(console.table(kind, columns[: 5 if len(arms) == 1 else 6], [_cells(row, len(arms)) for row in found]))
        if left := sorted({row["figure"] for row in found if row["run"] != arms[0].name and not row["against"]}):
            console.note(
                f"{kind}: not paired, for want of the same figure or the same wrong programs: {', '.join(left)}"
            )
    if not sets:
        console.note("no evaluation of these runs is kept by problem: data.heldout or eval.benchmarks have them")


def _arm(name: str, root: Path) -> Arm:
    from codea1_cli.runs.run_dir import RunDir, find_run, list_runs
    from codea1_cli.runs.summary import measured

    places = [root / name, Path(name)]
    several = [] if any(RunDir(place).exists() for place in places) else [*map(list_runs, places)]
    chosen = next(filter(None, several), None) or [find_run(name, root)]
    by_seed = sorted(((run.info().get("seed", 0), run.name, run) for run in chosen), key=lambda one: one[:2])
    ordered = [run for *_, run in by_seed]
    return Arm(name.rstrip("/"), ordered, [seed for seed, *_ in by_seed], [measured(run) for run in ordered])


def _spent(arm: Arm) -> dict[str, Any]:
    """What a run of an arm took, in the mean over its seeds."""
    from codea1_cli.runs.summary import spent

    each = [spent(run) for run in arm.runs]
    means = {key: sum(one[key] for one in each) / len(each) for key in ("seconds", "tokens", "gpu_hours")}
    steps = sorted({int(one["steps"]) for one in each})
    return {"run": arm.name, "folders": [str(run.path) for run in arm.runs], "seeds": arm.seeds, "steps": steps} | means


def _recipes(arms: Sequence[Arm]) -> dict[str, list[Any]]:
    """The keys that differ, with each arm's value; None for a key that its method ignores.

    Raises:
        UserError: runs of one arm differ in more than their seeds.
    """
    from codea1_cli.recipe.files import flat

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
    for arm in arms:
        after = arm.at(kind, -1)
        before = arm.at(kind, 0) if arm.trained(kind) else after
        gains.append(compared(before, after, f"{kind} in {arm.name}") if after else {})
        first = arms[0].at(kind, -1)
        paired = arm.seeds == arms[0].seeds
        what = f"{kind} in {arms[0].name} and {arm.name}"
        against.append(compared(first, after, what, by_seed=paired) if first and after and arm is not arms[0] else {})
    rows = []
    for figure in dict.fromkeys(name for gain in gains for name in gain):
        for arm, gain, other in zip(arms, gains, against, strict=True):
            if figure not in gain:
                continue
            change, trained = gain[figure], arm.trained(kind)
            rows.append(
                {
                    "figure": figure,
                    "run": arm.name,
                    "before": _known(change.before) if trained else None,
                    "after": _known(change.after),
                    "gain": _difference(change) if trained else None,
                    "against": _difference(other[figure]) if figure in other else None,
                }
            )
    return rows


def _difference(change: Change) -> dict[str, float] | None:
    return {"mean": change.gain, "low": change.low, "high": change.high} if change.known else None


def _known(value: float) -> float | None:
    return None if value != value else value


def _cells(row: Mapping[str, Any], arms: int) -> list[str]:
    scale = 1 if row["figure"] in _NUMBERS else 100
    plain = ["" if row[key] is None else f"{scale * row[key]:.1f}" for key in ("before", "after")]
    apart = ["" if row[key] is None else _interval(row[key], scale) for key in ("gain", "against")]
    return [row["figure"], row["run"], *plain, *apart[: 1 if arms == 1 else 2]]


def _interval(one: Mapping[str, float], scale: float) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*(scale * one[key] for key in ("mean", "low", "high")))


def _costs(one: Mapping[str, Any]) -> tuple[str, str]:
    return f"{one['tokens']:,.0f}", f"{one['gpu_hours']:.2f}"


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) if len(values) < 4 else f"{len(values)}: {values[0]} to {values[-1]}"


def _value(value: Any) -> str:
    return "-" if value is None else console.printable(str(value))
