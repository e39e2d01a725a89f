"""Changes of a recipe that make a run fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from codea1_cli.errors import UserError
from codea1_cli.planning.estimate import Outlook, look_ahead
from codea1_cli.recipe.schema import Lora, Recipe

Change = Callable[[Recipe], Recipe]


def ways_out(outlook: Outlook, problems: int) -> list[tuple[str, Outlook]]:
    """Recipe keys to change, each enough by itself, and the outlook then; what changes the training least first."""
    found: dict[str, tuple[str, Outlook]] = {}
    for text, change in _changes(outlook):
        key = text.partition("=")[0]
        if key in found:
            continue
        try:
            other = look_ahead(change(outlook.recipe), outlook.shapes, outlook.places, outlook.setting, problems)
        except UserError:  # the batch cannot be cut that way
            continue
        if other.fits:
            found[key] = text, other
    return list(found.values())


def _changes(outlook: Outlook) -> Iterator[tuple[str, Change]]:
    recipe, vllm = outlook.recipe, outlook.setting.vllm
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
    if vllm and train.sharding == "ddp" and any(cut.ranks > 1 for cut in outlook.cuts.values()):
        shard, sleep = _set("train", sharding="fsdp2"), _set("sampling", vllm_sleep=True)
        yield "train.sharding=fsdp2", shard
        yield "train.sharding=fsdp2 sampling.vllm_sleep=true", lambda recipe: sleep(shard(recipe))
    if recipe.optim.kl > 0 and recipe.lora is None:
        yield "optim.kl=0 (no reference model)", _set("optim", kl=0.0)
    if recipe.lora is None:
        yield "lora.r=16 (adapters instead of all weights)", lambda recipe: recipe.model_copy(update={"lora": Lora()})


def _set(section: str, **values: object) -> Change:
    return lambda recipe: recipe.model_copy(update={section: getattr(recipe, section).model_copy(update=values)})
