"""Which GPUs each policy gets. Pure: the GPUs and the number of cores come in."""

from __future__ import annotations

from collections.abc import Sequence

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.planning.devices import Gpu
from codea1_cli.recipe.schema import Recipe

Slices = dict[str, list[Gpu | None]]

_NO_GPU = (
    "there is no GPU: `code.gpus=0 test.gpus=0` tries it on the CPU, "
    "`codea1 plan --recipe RECIPE --gpu h100` tells what it takes on others"
)


def slices(recipe: Recipe, gpus: Sequence[Gpu], cores: int, where: str = "this machine") -> Slices:
    """One entry a rank for each policy: its GPU, or None for a rank on the CPU.

    `where` names in errors what offers the GPUs. Without a wish, one GPU is shared by both policies and more are halved; `code.gpus=0` puts a policy on the CPU.

    Raises:
        EnvironmentFault: more is asked than there is; both numbers are named.
        UserError: ids or ranks that make no sense.
    """
    wishes = {"code": recipe.code.gpus, "test": recipe.test.gpus}
    chosen = _even(gpus) if all(wish is None for wish in wishes.values()) else _wished(wishes, gpus, where)
    result: Slices = {}
    for role, group in chosen.items():
        ranks = recipe.role(role).ranks
        limit = len(group) or cores
        if ranks is not None and (ranks > limit or (group and ranks != len(group))):
            kind = "GPUs" if group else "CPU cores"
            raise EnvironmentFault(
                f"{role}.ranks={ranks} does not fit {limit} {kind}", hint="leave ranks out: there is one rank a GPU"
            )
        result[role] = list(group) or [None] * (ranks or 1)
    return result


def _even(gpus: Sequence[Gpu]) -> dict[str, list[Gpu]]:
    half = max(len(gpus) // 2, 1)
    return {"code": list(gpus[:half]), "test": list(gpus[half : 2 * half] or gpus[:half])}


def _wished(wishes: dict[str, int | list[int] | None], gpus: Sequence[Gpu], where: str) -> dict[str, list[Gpu]]:
    named = {role: _by_id(role, wish, gpus, where) for role, wish in wishes.items() if isinstance(wish, list)}
    counts = {role: _count(role, wish, len(gpus)) for role, wish in wishes.items() if not isinstance(wish, list)}
    taken = {gpu.logical for group in named.values() for gpu in group}
    free = [gpu for gpu in gpus if gpu.logical not in taken]
    if sum(counts.values()) > len(free):
        asked = {**counts, **{role: len(group) for role, group in named.items()}}
        raise EnvironmentFault(
            f"the recipe asks for {asked['code']} + {asked['test']} GPUs (code + test), {where} offers {len(gpus)}",
            hint="set code.gpus and test.gpus to what there is, for example code.gpus=[0] test.gpus=[0] to share one"
            if gpus
            else _NO_GPU,
        )
    return {
        role: named[role] if role in named else [free.pop(0) for _ in range(counts[role])] for role in ("code", "test")
    }


def _count(role: str, wish: int | None, there: int) -> int:
    if wish is not None and wish < 0:
        raise UserError(f"{role}.gpus={wish} is negative")
    return min(1, there) if wish is None else wish


def _by_id(role: str, wish: list[int], gpus: Sequence[Gpu], where: str) -> list[Gpu]:
    if len(set(wish)) != len(wish):
        raise UserError(f"{role}.gpus={wish} names a GPU twice")
    by_logical = {gpu.logical: gpu for gpu in gpus}
    missing = [number for number in wish if number not in by_logical]
    if missing:
        raise EnvironmentFault(
            f"{role}.gpus={wish}: there is no GPU {missing[0]}, {where} offers {len(gpus)}",
            hint=f"name some of {sorted(by_logical)}" if gpus else _NO_GPU,
        )
    return [by_logical[number] for number in wish]
