"""Whether a run fits; and where it cannot: the numbers, and the changes of the recipe that would do. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.planning import constants as c
from codea1_cli.planning.estimate import RunEstimate, estimate_run
from codea1_cli.recipe.schema import Lora, Recipe

Change = Callable[[Recipe], Recipe]


class Suggestion(NamedTuple):
    """A change of the recipe, as `KEY=VALUE`, and the run's estimate with it."""

    change: str
    estimate: RunEstimate


def check_fits(estimate: RunEstimate, problems: int) -> str | None:
    """A warning when a GPU, or the host of ranks on the CPU, may be too small.

    Raises:
        EnvironmentFault: it will be, whatever the estimate's error.
    """
    if estimate.fits:
        return None
    worst = estimate.worst
    parts: dict[str, int] = {}
    for memory in worst.ranks.values():
        for group in (memory.held, memory.update, memory.sampling):
            for name, size in group.items():
                parts[name] = parts.get(name, 0) + size
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    what = ", ".join(f"{name} {gib(size)}" for name, size in largest)
    where = f"one {estimate.target.device.name}" if estimate.target.gpu else "this machine"
    changes = [suggestion.change for suggestion in suggestions(estimate, problems)]
    hint = f"any of these would do: {'; '.join(changes[:4])}" if changes else "give each side more or larger GPUs"
    more = "; or a GPU for each side" if estimate.target.gpu and len(worst.ranks) > 1 else ""
    fault = EnvironmentFault(
        f"{' and '.join(worst.ranks)} would need {gib(worst.needed)}, {where} has {gib(worst.total)} (largest: {what})",
        hint=f"{hint}{more}; `codea1 plan` shows every part",
    )
    if worst.needed > c.REFUSAL * worst.total:
        raise fault
    return f"this may not fit: {fault.what}; {fault.hint}"


def check_disk(estimate: RunEstimate, free: int, where: str) -> None:
    """Compares the checkpoints with the bytes free on the disk of `where`.

    Raises:
        EnvironmentFault: not even the checkpoints fit.
    """
    kept = estimate.disk["checkpoints"] + estimate.disk["one being written"]
    if kept > free:
        raise EnvironmentFault(
            f"{where} has {gib(free)} free, and checkpoints alone take {gib(kept)} "
            f"({gib(estimate.checkpoint)} each, "
            f"checkpoint.keep={estimate.recipe.checkpoint.keep} and one being written)",
            hint="free some space, choose another place with --runs, or lower checkpoint.keep",
        )


def gib(size: float) -> str:
    """`size` bytes in the unit that shows them."""
    if size < 0.1 * c.GIB:
        return f"{size / 2**20:.0f} MiB"
    return f"{size / c.GIB:.1f} GiB" if size < 100 * c.GIB else f"{size / c.GIB:.0f} GiB"


def suggestions(estimate: RunEstimate, problems: int) -> list[Suggestion]:
    """Changes of the recipe that make the run fit, each enough by itself; what changes the training least first."""
    found: dict[str, Suggestion] = {}
    for text, change in _changes(estimate):
        key = text.partition("=")[0]
        if key in found:
            continue
        try:
            other = estimate_run(change(estimate.recipe), estimate.shapes, estimate.gpus, estimate.target, problems)
        except UserError:  # the batch cannot be cut that way
            continue
        if other.fits:
            found[key] = Suggestion(text, other)
    return list(found.values())


def _changes(estimate: RunEstimate) -> Iterator[tuple[str, Change]]:
    recipe, vllm = estimate.recipe, estimate.target.vllm
    train, sampling = recipe.train, recipe.sampling
    if not train.gradient_checkpointing:
        yield "train.gradient_checkpointing=true", _set("train", gradient_checkpointing=True)
    for size in (8192, 4096, 2048):
        if size < train.tokens_per_micro_batch:
            yield f"train.tokens_per_micro_batch={size}", _set("train", tokens_per_micro_batch=size)
    if vllm and not sampling.vllm_sleep:
        yield "sampling.vllm_sleep=true", _set("sampling", vllm_sleep=True)
    if not vllm:
        for chunk in (128, 64, 32):
            yield f"sampling.chunk={chunk}", _set("sampling", chunk=chunk)
    if vllm and train.sharding == "ddp" and any(batches.ranks > 1 for batches in estimate.batches.values()):
        shard, sleep = _set("train", sharding="fsdp2"), _set("sampling", vllm_sleep=True)
        yield "train.sharding=fsdp2", shard
        yield "train.sharding=fsdp2 sampling.vllm_sleep=true", lambda recipe: sleep(shard(recipe))
    if recipe.optim.kl > 0 and recipe.lora is None:
        yield "optim.kl=0 (no reference model)", _set("optim", kl=0.0)
    if recipe.lora is None:
        yield "lora.r=16 (adapters instead of all weights)", lambda recipe: recipe.model_copy(update={"lora": Lora()})


def _set(section: str, **values: object) -> Change:
    return lambda recipe: recipe.model_copy(update={section: getattr(recipe, section).model_copy(update=values)})
