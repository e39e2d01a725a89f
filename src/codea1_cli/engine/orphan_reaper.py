"""Nothing of a run outlives its driver, not even a driver that was killed with -9.

Ray's agents, and workers in the middle of an import, survive a killed driver for a while or for good. A small process
outside the driver's session waits for the end of a pipe that only the driver holds; then it kills whatever still
carries this run's mark in its environment and removes the temporary folders.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

MARK = "CODEA1_RUN_MARK"


@contextlib.contextmanager
def guarded(folders: Sequence[Path], lock: int | None = None) -> Iterator[None]:
    """Marks every process started inside the block and guards them; `folders` are deleted when it is over.

    The guard keeps the file `lock` open: who waits for the lock of a killed driver gets it when all is quiet, not while
    the rest of the old run may still write, or the guard may still clean up below the feet of the new one.
    """
    mark = uuid.uuid4().hex
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark, str(os.getpid()), *map(str, folders)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the driver
        pass_fds=() if lock is None else (lock,),
    )
    os.environ[MARK] = mark
    try:
        yield
    except KeyboardInterrupt:  # it cleans up when this process has ended, whose libraries may be in any state
        raise
    except BaseException:
        _close(guard)
        raise
    _close(guard)


def _close(guard: subprocess.Popen[bytes]) -> None:
    del os.environ[MARK]
    assert guard.stdin is not None
    guard.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        guard.wait(timeout=10)


def belongs(pid: int, mark: bytes, folders: Sequence[str]) -> bool:
    """Whether a process carries the mark; a Ray process that has overwritten its environment with its title is known
    by the files that it holds open below `folders`."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                return True
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if not file.read().startswith(b"ray::"):
                return False
        files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(file.startswith(folder + "/") for file in files for folder in folders)


def guard(mark: str, driver: int, folders: Sequence[str]) -> None:
    sys.stdin.buffer.read()  # ends when the driver does
    real = [os.path.realpath(folder) for folder in folders]
    wanted = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + 8.0
    quiet = 0
    while quiet < 2 and time.monotonic() < deadline:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        alive = [pid for pid in pids if pid not in (driver, os.getpid()) and belongs(pid, wanted, real)]
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if alive else quiet + 1  # twice, because a dying process may just have started another
        time.sleep(0.1)
    for folder in folders:
        if os.path.islink(folder):
            with contextlib.suppress(OSError):
                os.unlink(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
