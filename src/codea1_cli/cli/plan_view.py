"""How a plan is shown, by `codea1 plan` and by `codea1 train`: tables for people, one document for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from codea1_cli import planning as c
from codea1_cli.cli import console
from codea1_cli.errors import counted, size_text
from codea1_cli.planning import gib

if TYPE_CHECKING:
    from codea1_cli.errors import CodeA1Error
    from codea1_cli.planning.costs import RankMemory
    from codea1_cli.planning.estimate import RunEstimate, Suggestion
    from codea1_cli.planning.gpu_assignment import GpuAssignment
    from codea1_cli.recipe.schema import Recipe


def run_data(
    recipe: Recipe,
    problems: int,
    assignment: GpuAssignment,
    estimate: RunEstimate | None,
    first: int = 1,
    stop: int | None = None,
) -> dict[str, Any]:
    """What `train --dry-run` says a run would do; `problems` counts the file's rows before any is left out. `first` is
    the step that it begins with, `stop` what --max-steps says.

    Raises:
        UserError: as `recipe.batching.batches`.
    """
    from codea1_cli.methods.registry import method_of
    from codea1_cli.planning.costs import sampled
    from codea1_cli.recipe.batching import batches, longest

    train, game, roles = recipe.train, recipe.game, method_of(recipe).roles
    per_epoch = problems // train.problems_sampled
    steps = train.max_steps or per_epoch * train.epochs
    rows = "pairs" if method_of(recipe).pairs else "problems"
    held_out = recipe.data.heldout or "none"
    counted_as = f"{'' if recipe.data.train or not recipe.data.source else 'planned for '}{problems} {rows}"
    if recipe.data.train is None and recipe.data.source is not None and not recipe.data.heldout:
        held_out = f"{recipe.data.source.options()[1].val:.0%} of the source's"
    data: dict[str, Any] = {
        "recipe": recipe.name,
        "method": recipe.method,
        "game": game.mode,
        "data": f"{recipe.data.train or 'prepared on first use'} ({counted_as}), held out: {held_out}",
        "steps": f"{min(steps, stop or steps) - first + 1} of {train.problems_per_step} {rows}, {per_epoch} an epoch"
        + (f", from step {first} on" if first > 1 else "")
        + (f"; --max-steps ends it there, the schedule is that of {steps}" if stop and stop < steps else ""),
    }
    if recipe.warmup is not None:
        pairs = counted(recipe.warmup.pairs_per_step, "pair")
        data["warm-up"] = f"{counted(recipe.warmup.steps, 'step')} of {pairs} before the first one"
    if not method_of(recipe).pairs:
        data["sampled a step"] = ", ".join(_sampled({role: sampled(recipe, role) for role in roles}))
        data["sampled a step"] += f" of {counted(game.tests_per_suite, 'assert')}" if "test" in roles else ""
    for policy, group in assignment.items():
        own, (prompt, completion) = batches(recipe, policy, len(group)), longest(recipe, policy)
        data[policy] = {
            "model": recipe.model_of(policy),
            "ranks": own.ranks,
            "rows trained a step": own.rows_per_step,
            "optimizer steps a step": own.updates_per_step,
            "micro-batch": f"{counted(own.micro_batch, 'row')} or more, up to {own.gradient_accumulation} accumulated",
            "tokens": f"prompt up to {prompt}, completion up to {completion}",
        }
    data["slices"] = {
        policy: [f"GPU {gpu.logical} -> physical {gpu.physical} ({gpu.name})" if gpu else "CPU" for gpu in group]
        for policy, group in assignment.items()
    }
    return data | ({"ahead": estimate_data(estimate)} if estimate else {})


def estimate_data(
    estimate: RunEstimate,
    splits: Sequence[RunEstimate] = (),
    changes: Sequence[Suggestion] = (),
    refusal: CodeA1Error | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole estimate in plain values; sizes in bytes, times in seconds."""
    most = estimate.recipe.sampling.vllm_memory
    return {
        "recipe": estimate.recipe.name,
        "fits": refusal is None,
        "error": refusal.what if refusal else None,
        "hint": refusal.hint if refusal else None,
        "device": estimate.target.device,
        "places": [
            {"gpu": gpu, "ranks": list(load.ranks), "total": load.total, "needed": load.needed, "peak": load.peak(most)}
            for gpu, load in estimate.loads.items()
        ],
        "roles": {
            policy: {
                "model": estimate.recipe.model_of(policy),
                "parameters": estimate.shapes[policy].parameters,
                "shape_from": estimate.shapes[policy].source,
                "ranks": estimate.batches[policy].ranks,
                "batches": estimate.batches[policy],
                "memory": {
                    **_parts(memory),
                    "training_peak": memory.training,
                    "smallest": memory.smallest,
                    "engine": memory.engine,
                },
                "time": estimate.times[policy],
            }
            for policy, memory in estimate.memory.items()
        },
        "disk": {**estimate.disk, "one_checkpoint": estimate.checkpoint, "total": estimate.disk_bytes},
        "steps": estimate.steps,
        "judging_s": estimate.judging_s,
        "step_s": estimate.step_s,
        "warmup_s": estimate.warmup_s,
        "hours": estimate.hours,
        "slices": [
            {
                **{policy: len(group) for policy, group in split.gpus.items()},
                "shared": len(split.loads) < sum(map(len, split.gpus.values())),
                "problems_per_step": split.recipe.train.problems_per_step,
                "step_s": split.step_s,
                "hours": split.hours,
            }
            for split in splits
        ],
        "ways_out": [{"change": text, "needed": other.worst.needed, "step_s": other.step_s} for text, other in changes],
        "assumptions": assumptions(estimate),
        "notes": list(notes),
    }


def assumptions(estimate: RunEstimate) -> list[str]:
    """What the expected time rests on."""
    target, device = estimate.target, estimate.target.device
    return [
        f"{device.name}: {device.flops / 1e12:.0f} TFLOP/s in bf16, {device.bandwidth / 1e12:.2f} TB/s"
        if target.gpu
        else f"{counted(target.cores, 'CPU core')} of {c.CPU_FLOPS_PER_CORE / 1e9:.0f} GFLOP/s",
        f"training reaches {c.TRAIN_UTILISATION:.0%} of it, "
        f"decoding {c.DECODE_BANDWIDTH:.0%} of the memory's bandwidth",
        *(
            f"{role}: prompts of {own.prompt:.0f} tokens, completions of {own.completion:.0f} in the mean"
            for role, own in estimate.lengths.items()
        ),
        f"a candidate's suites are judged in {1000 * c.JUDGE_CANDIDATE_S:.0f} ms "
        f"+ {1000 * c.JUDGE_SUITE_S:.1f} ms each",
    ]


def headline(estimate: RunEstimate) -> list[str]:
    """The few lines that `train` begins with."""
    from codea1_cli.planning.costs import sampled

    worst = estimate.worst
    where = estimate.target.device.name if estimate.target.gpu else "this machine's memory"
    rows = {role: sampled(estimate.recipe, role) for role in estimate.lengths}
    words = _sampled(rows) if any(rows.values()) else [f"{counted(estimate.recipe.train.problems_per_step, 'pair')}"]
    warm = f", of which the warm-up {seconds(estimate.warmup_s)}" if estimate.warmup_s else ""
    return [
        f"plan: {' and '.join(worst.ranks)} need {gib(worst.needed)} of {gib(worst.total)} ({where}), "
        f"up to {gib(estimate.disk_bytes)} on disk",
        f"plan: {' and '.join(words)} a step, "
        f"about {seconds(estimate.step_s)} a step, {counted(estimate.steps, 'step')} in about "
        f"{seconds(3600 * estimate.hours)}{warm}",
    ]


def show_run(data: dict[str, Any], estimate: RunEstimate | None) -> None:
    """Prints what `run_data` gives, and the headline of the estimate."""
    rows = []
    for key, value in data.items():
        if key not in ("ahead", "notes"):
            for name, item in value.items() if isinstance(value, dict) else [("", value)]:
                rows.append((f"{key} {name}".strip(), ", ".join(item) if isinstance(item, list) else item))
    console.show(console.table(f"Plan of {data['recipe']}", ("", ""), rows, framed=True))
    _print_lines(headline(estimate) if estimate else [])
    for line in data["notes"]:
        console.note(line)


def show_estimate(
    estimate: RunEstimate, splits: Sequence[RunEstimate], changes: Sequence[Suggestion], notes: Sequence[str]
) -> None:
    """Prints the memory of each rank, its parts, a step, and what the whole run takes."""
    for note in notes:
        console.note(note)
    columns = ("where", "rank", ">held", ">update", ">sampling", ">needed", ">has")
    rows = [
        (where, rank, *map(gib, (*(sum(part.values()) for part in _parts(memory).values()), memory.smallest, total)))
        for where, rank, memory, total in _alike(estimate)
    ]
    _print_table(f"Memory of {estimate.recipe.name}", columns, rows)
    each = [f">{role}" for role in estimate.times]
    parts = [_parts(memory) for memory in estimate.memory.values()]
    names = dict.fromkeys(
        (group, name) for group in ("held", "update", "sampling") for own in parts for name in own[group]
    )
    _print_table(
        "A rank's memory by part",
        ("part", *each),
        [
            (f"{group}: {name}", *(gib(own[group][name]) if name in own[group] else "-" for own in parts))
            for group, name in names
        ],
    )
    times = estimate.times.values()
    _print_table(
        "A step",
        ("", *each),
        [
            ("sequences sampled, up to", *(f"{time.sequences:,}" for time in times)),
            ("tokens sampled", *(f"{time.sampled_tokens:,.0f}" for time in times)),
            ("tokens trained", *(f"{time.trained_tokens:,.0f}" for time in times)),
            ("sequences at once on a rank", *(f"{time.at_once:,}" for time in times)),
            ("rows of a micro-batch, at least", *(own.micro_batch for own in estimate.batches.values())),
            ("seconds of sampling", *(f"{time.sampling:.1f}" for time in times)),
            ("seconds of updating", *(f"{time.updating:.1f}" for time in times)),
        ],
    )
    lines = [
        f"disk: {gib(estimate.disk_bytes)} in all, a checkpoint {gib(estimate.checkpoint)}, "
        f"rollouts {gib(estimate.disk['rollouts'])}"
    ]
    if estimate.fits:
        lines.append(
            f"a step: about {seconds(estimate.step_s)}, {estimate.judging_s:.1f} s of judging mostly behind it; "
            f"{counted(estimate.steps, 'step')}: about {seconds(3600 * estimate.hours)}"
            + (f", of which the warm-up {seconds(estimate.warmup_s)}" if estimate.warmup_s else "")
        )
    for text, other in changes:
        lines.append(
            f"with {text}: {gib(other.worst.needed)} of {gib(other.worst.total)}, "
            f"about {seconds(other.step_s)} a step, {seconds(3600 * other.hours)} in all"
        )
    if splits:
        condition = "" if estimate.fits else f" with {changes[0].change}"
        shown = ", ".join(_split(split, estimate.recipe) for split in splits[:3])
        lines.append(f"slices ({' + '.join(estimate.gpus)}), shortest step first{condition}: {shown}")
    _print_lines([*lines, "assumed: " + "; ".join(assumptions(estimate))])


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    console.show(console.table(title, columns, rows, framed=True))


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        console.say(line, indent=2)


def _sampled(sequences: Mapping[str, int]) -> list[str]:
    """What is sampled for each role in a step, in words."""
    words = {"code": "{} candidates", "test": "up to {} suites"}
    return [words[role].format(count) for role, count in sequences.items()]


def _parts(memory: RankMemory) -> dict[str, dict[str, int]]:
    return {"held": memory.held, "update": memory.update, "sampling": memory.sampling}


def _split(estimate: RunEstimate, than: Recipe) -> str:
    """A way to share the GPUs, with what it changes in the recipe."""
    groups, size = list(estimate.gpus.values()), estimate.recipe.train.problems_per_step
    shared = len(estimate.loads) < sum(map(len, groups))
    what = f"both on {len(groups[0])}:" if shared else "+".join(str(len(group)) for group in groups)
    changed = [f"{policy}.gpus=[{','.join(map(str, ids))}]" for policy, ids in estimate.gpus.items() if shared]
    changed += [f"train.problems_per_step={size}"] * (size != than.train.problems_per_step)
    changed += ["sampling.vllm_sleep=true"] * (estimate.recipe.sampling.vllm_sleep != than.sampling.vllm_sleep)
    return f"{what} {seconds(estimate.step_s)}" + (f" ({' '.join(changed)})" if changed else "")


def _alike(estimate: RunEstimate) -> list[tuple[str, str, RankMemory, int]]:
    """(where, rank, memory, bytes there); GPUs with the same ranks are one line, by their first and last number."""
    groups: dict[tuple[str, ...], list[int | None]] = {}
    for gpu, load in estimate.loads.items():
        groups.setdefault(tuple(load.ranks), []).append(gpu)
    lines = []
    for first, *_, last in ([*group, group[-1]] for group in groups.values()):
        load = estimate.loads[first]
        where = "host" if first is None else f"GPU {first}" + (f" to {last}" if first != last else "")
        lines += [(where, rank, memory, load.total) for rank, memory in load.ranks.items()]
    return lines


def seconds(value: float) -> str:
    """A time in the unit that shows it."""
    if value < 120:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def fetching(size: float) -> str:
    """So many bytes, and how long they take over the network that is assumed."""
    takes = f"about {seconds(size / c.FETCH_BYTES_S)}" if size > c.FETCH_BYTES_S else "less than a second"
    return f"{size_text(size)} ({takes} at {size_text(c.FETCH_BYTES_S)} per second)"
