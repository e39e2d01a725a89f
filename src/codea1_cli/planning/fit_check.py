"""What is said when a run cannot fit: the numbers and the way out. Pure."""

from __future__ import annotations

from codea1_cli.errors import EnvironmentFault
from codea1_cli.planning import constants as c
from codea1_cli.planning.estimate import Outlook
from codea1_cli.planning.suggestions import ways_out


def check_fits(outlook: Outlook, problems: int) -> str | None:
    """A warning when a GPU, or the host of ranks on the CPU, may be too small.

    Raises:
        EnvironmentFault: it will be, whatever the estimate's error.
    """
    if outlook.fits:
        return None
    worst = outlook.worst
    parts: dict[str, int] = {}
    for memory in worst.ranks.values():
        for group in (memory.held, memory.update, memory.sampling):
            for name, size in group.items():
                parts[name] = parts.get(name, 0) + size
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    what = ", ".join(f"{name} {gib(size)}" for name, size in largest)
    where = f"one {outlook.setting.device.name}" if outlook.setting.gpu else "this machine"
    ways = [text for text, _ in ways_out(outlook, problems)]
    hint = f"any of these would do: {'; '.join(ways[:4])}" if ways else "give each side more or larger GPUs"
    more = _more_gpus(outlook)
    fault = EnvironmentFault(
        f"{' and '.join(worst.ranks)} would need {gib(worst.needed)}, {where} has {gib(worst.total)} (largest: {what})",
        hint=f"{hint}{more}; `codea1 plan` shows every part",
    )
    if worst.needed > c.REFUSAL * worst.total:
        raise fault
    return f"this may not fit: {fault.what}; {fault.hint}"


def _more_gpus(outlook: Outlook) -> str:
    """A word on a GPU that both policies share."""
    return "; or a GPU for each side" if outlook.setting.gpu and len(outlook.worst.ranks) > 1 else ""


def check_disk(outlook: Outlook, free: int, where: str) -> None:
    """Raises EnvironmentFault when not even the checkpoints fit on the disk."""
    kept = outlook.disk["checkpoints"] + outlook.disk["one being written"]
    if kept > free:
        raise EnvironmentFault(
            f"{where} has {gib(free)} free, and checkpoints alone take {gib(kept)} "
            f"({gib(outlook.checkpoint)} each, checkpoint.keep={outlook.recipe.checkpoint.keep} and one being written)",
            hint="free some space, choose another place with --runs, or lower checkpoint.keep",
        )


def gib(size: float) -> str:
    """`size` bytes in the unit that shows them."""
    if size < 0.1 * c.GIB:
        return f"{size / 2**20:.0f} MiB"
    return f"{size / c.GIB:.1f} GiB" if size < 100 * c.GIB else f"{size / c.GIB:.0f} GiB"
