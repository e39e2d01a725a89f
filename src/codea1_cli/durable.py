"""Files that a crash leaves whole (written beside, flushed to disk, renamed), and the lock of a folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from codea1_cli.errors import UserError

_PATIENCE_S = 0.25
_PATIENCE_AFTER_DEATH_S = 15.0


def write_atomic(path: Path, data: str | bytes) -> None:
    """Writes, flushes to disk and renames, so that a reader sees the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_tree(folder: Path) -> None:
    """Flushes every file and folder below `folder` to disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            handle = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        fsync_folder(Path(parent))


def take_lock(file: IO[str], taken: Callable[[str], UserError]) -> None:
    """Locks `file` for as long as it stays open and writes this process's id into it.

    Somebody who only looks is gone in a moment. What a killed holder left behind holds the lock until it has ended,
    which takes seconds.

    Raises:
        UserError: `taken(process id)`, when another process holds it.
    """
    started = time.monotonic()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            patience = _PATIENCE_S if _alive(holder) else _PATIENCE_AFTER_DEATH_S
            if time.monotonic() - started > patience:
                raise taken(holder) from None
            time.sleep(0.05)
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()


def _alive(pid: str) -> bool:
    try:
        stat = Path(f"/proc/{int(pid)}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (ValueError, OSError, IndexError):  # the holder is just writing its number
        return True
