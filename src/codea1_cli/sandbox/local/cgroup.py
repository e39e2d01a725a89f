"""A process and memory limit over all that one worker starts, where the host lets us make control groups.

Both hierarchies are known: version 1 (one folder a controller) and version 2. The worker's zygote lives in its group
too, since moving each child costs milliseconds; the kernel is told to end children first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "codea1-"
ZYGOTE_MB = 256
ZYGOTE_PROCESSES = 4


def _own_folders() -> dict[str, Path]:
    """The folder of this process in the hierarchy of each controller, "" standing for version 2."""
    folders = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            base = ROOT / name if name else (ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "unified")
            folders[name] = base / path.lstrip("/")
    return folders


def idle_seconds() -> float:
    """For how long the processors that this process may use have had nothing to do, added up since the machine started;
    0 where nobody tells, and where a quota bounds how much of them we get."""
    try:
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
        ticks = sum(int(line[4]) + int(line[5]) for line in lines if line and line[0] in ours)
    except (OSError, ValueError, IndexError):
        return 0.0
    return 0.0 if _has_quota() else ticks / os.sysconf("SC_CLK_TCK")


@cache
def _has_quota() -> bool:
    """Whether a control group above this process bounds its processor time."""
    try:
        own = _own_folders()
    except (OSError, ValueError):
        return True
    for name, file in (("cpu", "cpu.cfs_quota_us"), ("", "cpu.max")):
        folder = own.get(name, ROOT)
        for place in (folder, *folder.parents):
            with contextlib.suppress(OSError):
                if (place / file).read_text(encoding="ascii").split()[:1] not in (["max"], ["-1"]):
                    return True
    return False


def find_parents() -> dict[str, Path]:
    """Where groups can be made: {"pids": folder, "memory": folder}, without what this host does not grant."""
    found = {}
    try:
        own = _own_folders()
    except (OSError, ValueError):
        return {}
    for name in ("pids", "memory"):
        folder = own.get(name) or own.get("")
        if folder is not None and _can_limit(folder, name, version_1=name in own):
            found[name] = folder
    return found


def _can_limit(folder: Path, name: str, version_1: bool) -> bool:
    trial = folder / f"{PREFIX}{os.getpid()}-trial-{name}"
    try:
        if not version_1:
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{name}", encoding="ascii")
        trial.mkdir()
    except OSError:
        return False
    try:
        knob = "pids.max" if name == "pids" else "memory.limit_in_bytes" if version_1 else "memory.max"
        (trial / knob).write_text("max" if name == "pids" else str(1 << 30), encoding="ascii")
        return os.access(trial / "cgroup.procs", os.W_OK)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            trial.rmdir()


def sweep(folders: Iterable[Path], prefix: str = PREFIX) -> None:
    """Removes empty groups, or other folders named PREFIX and a process's id, that a killed parent left behind."""
    for left in {path for folder in folders for path in folder.glob(prefix + "*")}:
        pid = left.name.removeprefix(prefix).partition("-")[0]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(OSError):
                left.rmdir()


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since the machine started; 0 where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        return _count(Path("/proc/vmstat"), "oom_kill")
    return 0


def _count(file: Path, name: str) -> int:
    """The number behind a name in a file of such lines; 0 where it is not there."""
    lines = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return next((int(line[1]) for line in lines if line[0] == name), 0)


class Cgroup:
    """The control group of one worker."""

    def __init__(self, parents: dict[str, Path], name: str) -> None:
        self._folders = {what: folder / f"{PREFIX}{os.getpid()}-{name}" for what, folder in parents.items()}
        self._limits: tuple[int, int] | None = None
        for folder in set(self._folders.values()):
            folder.mkdir(exist_ok=True)

    def add(self, pid: int) -> None:
        """Puts a process, and all that it will start, under the group's limits."""
        for folder in set(self._folders.values()):
            (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def limit(self, memory_mb: int, processes: int) -> None:
        """Sets the limits of the next child."""
        if self._limits == (memory_mb, processes):
            return
        self._limits = memory_mb, processes
        memory, pids = self._folders.get("memory"), self._folders.get("pids")
        if pids is not None:
            (pids / "pids.max").write_text(str(processes + ZYGOTE_PROCESSES), encoding="ascii")
        if memory is not None:
            size = str((memory_mb + ZYGOTE_MB) << 20)
            old, new = memory / "memory.limit_in_bytes", memory / "memory.max"
            with contextlib.suppress(OSError):
                (old if old.exists() else new).write_text(size, encoding="ascii")
            with contextlib.suppress(OSError):
                (memory / "memory.swap.max").write_text("0", encoding="ascii")

    def offer(self, pid: int) -> None:
        """Makes a child the first to go when memory runs out."""
        if "memory" in self._folders:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")

    def memory_hits(self) -> int:
        """How often the group has met its own memory limit, and not that of a group around it."""
        memory = self._folders.get("memory")
        if memory is None:
            return 0
        old, new = memory / "memory.failcnt", memory / "memory.events"
        with contextlib.suppress(OSError, ValueError):
            return int(old.read_text(encoding="ascii")) if old.exists() else _count(new, "max")
        return 0

    def remove(self) -> None:
        """Ends what is left in the group and removes it."""
        pids = self._folders.get("pids")
        if pids is not None:
            with contextlib.suppress(OSError):
                (pids / "pids.max").write_text("0", encoding="ascii")
        for folder in set(self._folders.values()):
            with contextlib.suppress(OSError, ValueError):
                for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                    os.kill(int(pid), signal.SIGKILL)
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
