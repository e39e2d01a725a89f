"""How a plan is shown: tables for people, one document for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from codea1_cli.cli import console
from codea1_cli.planning import constants as c
from codea1_cli.planning.fit_check import gib

if TYPE_CHECKING:
    from codea1_cli.errors import CodeA1Error
    from codea1_cli.planning.estimate import Outlook
    from codea1_cli.planning.memory import RankMemory


def assumptions(outlook: Outlook) -> list[str]:
    """What the expected time rests on."""
    setting, lengths = outlook.setting, outlook.lengths
    device = (
        f"{setting.device.name}: {setting.device.flops / 1e12:.0f} TFLOP/s in bf16, {setting.device.bandwidth / 1e12:.2f} TB/s"
        if setting.gpu
        else f"{setting.cores} CPU cores of {c.CPU_FLOPS_PER_CORE / 1e9:.0f} GFLOP/s"
    )
    return [
        device,
        f"training reaches {c.TRAIN_UTILISATION:.0%} of it, decoding {c.DECODE_BANDWIDTH:.0%} of the memory's bandwidth",
        *(
            f"{role}: prompts of {lengths[role].prompt:.0f} tokens, completions of {lengths[role].completion:.0f} in the mean"
            for role in lengths
        ),
        f"a candidate's suites are judged in {1000 * c.JUDGE_CANDIDATE_S:.0f} ms + {1000 * c.JUDGE_SUITE_S:.1f} ms each",
    ]


Ways = Sequence[tuple[str, "Outlook"]]


def as_data(
    outlook: Outlook, ranking: Sequence[Outlook], ways: Ways, refusal: CodeA1Error | None, notes: Sequence[str]
) -> dict[str, Any]:
    """The whole plan in plain values; sizes in bytes, times in seconds."""
    roles = {}
    for role, time in outlook.times.items():
        place = outlook.places[role][0]
        load = outlook.loads[place]
        memory = load.ranks[role if place is not None else f"{role}[0]"]
        roles[role] = {
            "model": outlook.recipe.model_of(role),
            "parameters": outlook.shapes[role].parameters,
            "shape_from": outlook.shapes[role].source,
            "ranks": outlook.cuts[role].ranks,
            "batches": outlook.cuts[role],
            "memory": {
                "held": memory.held,
                "update": memory.update,
                "sampling": memory.sampling,
                "training_peak": memory.training,
                "smallest": memory.smallest,
                "engine": memory.engine,
            },
            "time": time,
        }
    most = outlook.recipe.sampling.vllm_memory
    return {
        "recipe": outlook.recipe.name,
        "fits": refusal is None,
        "error": refusal.what if refusal else None,
        "hint": refusal.hint if refusal else None,
        "device": outlook.setting.device,
        "places": [
            {
                "gpu": place,
                "ranks": list(load.ranks),
                "total": load.total,
                "needed": load.needed,
                "peak": load.peak(most),
            }
            for place, load in outlook.loads.items()
        ],
        "roles": roles,
        "disk": {**outlook.disk, "one_checkpoint": outlook.checkpoint, "total": outlook.disk_bytes},
        "steps": outlook.steps,
        "judging_s": outlook.judging,
        "step_s": outlook.step_s,
        "hours": outlook.hours,
        "slices": [
            {
                "code": len(o.places["code"]),
                "test": len(o.places["test"]),
                "problems_per_step": o.recipe.train.problems_per_step,
                "step_s": o.step_s,
                "hours": o.hours,
            }
            for o in ranking
        ],
        "ways_out": [{"change": text, "needed": o.worst.needed, "step_s": o.step_s} for text, o in ways],
        "assumptions": assumptions(outlook),
        "notes": list(notes),
    }


def head(outlook: Outlook) -> list[str]:
    """The few lines that `train` begins with."""
    worst = outlook.worst
    where = outlook.setting.device.name if outlook.setting.gpu else "this machine's memory"
    return [
        f"plan: {' and '.join(worst.ranks)} need {gib(worst.needed)} of {gib(worst.total)} ({where}), "
        f"up to {gib(outlook.disk_bytes)} on disk",
        f"plan: {outlook.times['code'].sequences} candidates and up to {outlook.times['test'].sequences} suites a step, "
        f"about {seconds(outlook.step_s)} a step, {outlook.steps} steps in about {seconds(3600 * outlook.hours)}",
    ]


def show(outlook: Outlook, ranking: Sequence[Outlook], ways: Ways, notes: Sequence[str]) -> None:
    for note in notes:
        console.note(note)
    out = console.out()
    columns = ("where", "rank", ">held", ">update", ">sampling", ">needed", ">has")
    rows = []
    for where, rank, part, total in _alike(outlook):
        sizes = [sum(group.values()) for group in (part.held, part.update, part.sampling)]
        rows.append([where, rank, *map(gib, (*sizes, part.smallest, total))])
    out.print(console.table(f"Memory of {outlook.recipe.name}", columns, rows, framed=True))
    roles = as_data(outlook, (), (), None, ())["roles"]
    parts = []
    for group in ("held", "update", "sampling"):
        for name in dict.fromkeys(name for role in roles.values() for name in role["memory"][group]):
            found = [role["memory"][group].get(name) for role in roles.values()]
            parts.append([f"{group}: {name}", *("-" if size is None else gib(size) for size in found)])
    each = [f">{role}" for role in roles]
    out.print(console.table("A rank's memory by part", ("part", *each), parts, framed=True))
    figures = {
        "sequences sampled, up to": [f"{t.sequences:,}" for t in outlook.times.values()],
        "tokens sampled": [f"{t.sampled_tokens:,.0f}" for t in outlook.times.values()],
        "tokens trained": [f"{t.trained_tokens:,.0f}" for t in outlook.times.values()],
        "sequences at once on a rank": [f"{t.at_once:,}" for t in outlook.times.values()],
        "rows of a micro-batch": [f"{cut.micro_batch}" for cut in outlook.cuts.values()],
        "seconds of sampling": [f"{t.sampling:.1f}" for t in outlook.times.values()],
        "seconds of updating": [f"{t.updating:.1f}" for t in outlook.times.values()],
    }
    rows = [[name, *cells] for name, cells in figures.items()]
    out.print(console.table("A step", ("", *each), rows, framed=True))
    lines = [
        f"disk: {gib(outlook.disk_bytes)} in all, a checkpoint {gib(outlook.checkpoint)}, rollouts {gib(outlook.disk['rollouts'])}"
    ]
    if outlook.fits:
        lines.append(
            f"a step: about {seconds(outlook.step_s)}, {outlook.judging:.1f} s of judging mostly behind it; "
            f"{outlook.steps} steps: about {seconds(3600 * outlook.hours)}"
        )
    for text, other in ways:
        lines.append(
            f"with {text}: {gib(other.worst.needed)} of {gib(other.worst.total)}, about {seconds(other.step_s)} a step, "
            f"{seconds(3600 * other.hours)} in all"
        )
    if ranking:
        condition = "" if outlook.fits else f" with {ways[0][0]}"
        lines.append(
            f"slices (code + test), shortest step first{condition}: "
            + ", ".join(_slices(o, outlook.recipe.train.problems_per_step) for o in ranking[:3])
        )
    lines.append("assumed: " + "; ".join(assumptions(outlook)))
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _slices(outlook: Outlook, problems_per_step: int) -> str:
    own = outlook.recipe.train.problems_per_step
    changed = "" if own == problems_per_step else f" (train.problems_per_step={own})"
    return f"{len(outlook.places['code'])}+{len(outlook.places['test'])} {seconds(outlook.step_s)}{changed}"


def _alike(outlook: Outlook) -> list[tuple[str, str, RankMemory, int]]:
    """(where, rank, memory, bytes there); GPUs with the same ranks are one line, by their first and last number."""
    groups: dict[tuple[str, ...], list[int | None]] = {}
    for place, load in outlook.loads.items():
        groups.setdefault(tuple(load.ranks), []).append(place)
    lines = []
    for places in groups.values():
        load = outlook.loads[places[0]]
        first, last = places[0], places[-1]
        where = "host" if first is None else f"GPU {first}" + (f" to {last}" if first != last else "")
        lines += [(where, rank, part, load.total) for rank, part in load.ranks.items()]
    return lines


def seconds(value: float) -> str:
    if value < 120:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
