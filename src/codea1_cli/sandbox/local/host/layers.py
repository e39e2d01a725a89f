"""The layers of isolation by name: what works here, what was demanded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.hints import did_you_mean

NAMES = (
    "rlimits",
    "no_new_privs",
    "user_namespace",
    "pid_namespace",
    "net_namespace",
    "ipc_namespace",
    "mount_namespace",
    "landlock",
    "seccomp",
    "pids_cgroup",
    "memory_cgroup",
)


def check_names(names: Iterable[str]) -> frozenset[str]:
    """The names as a set, `all` written out. Raises UserError for one that is not a layer."""
    chosen = set(names)
    if "all" in chosen:
        return frozenset(NAMES)
    for name in sorted(chosen.difference(NAMES)):
        hint = did_you_mean(name, NAMES) or f"layers: {', '.join(NAMES)}"
        raise UserError(f"no sandbox layer is called {name!r}", hint)
    return frozenset(chosen)


def report(zygote: Mapping[str, str], groups: Iterable[str], without: frozenset[str]) -> dict[str, str]:
    """Every layer in order, with an empty text where it works and else the reason why not."""
    groups = set(groups)
    found = dict(zygote)
    for name in ("pids", "memory"):
        off = "switched off" if f"{name}_cgroup" in without else "no control group can be made here"
        found[f"{name}_cgroup"] = "" if name in groups else off
    return {name: found.get(name, "not tried") for name in NAMES}


def missing(layers: Mapping[str, str]) -> list[str]:
    """The names of the layers that do not work."""
    return [name for name, fault in layers.items() if fault]


def demand(layers: Mapping[str, str], require: Iterable[str]) -> None:
    """Raises EnvironmentFault when a required layer is missing, naming each with its reason."""
    lacking = [name for name in NAMES if name in check_names(require) and layers[name]]
    if lacking:
        reasons = ", ".join(f"{name} ({layers[name]})" for name in lacking)
        raise EnvironmentFault(
            f"the sandbox lacks required layers: {reasons}",
            "run on a host that grants them, or take them out of sandbox.require",
        )


def warning(layers: Mapping[str, str]) -> str:
    """One line that names what is missing; empty when nothing is."""
    lacking = missing(layers)
    if not lacking:
        return ""
    return "sandbox layers missing here: " + ", ".join(f"{name} ({layers[name]})" for name in lacking)
