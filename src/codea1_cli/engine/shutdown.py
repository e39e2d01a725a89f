"""How a command ends early: by Ctrl-C and SIGTERM, and what cleans up behind a driver that is gone.

The first interrupt is a request, the second an order. From a command's first line to its last one of these handlers is
in place, and the command ends with 130. Whatever is on disk survives an end at any moment, so that a handler may always
end the process at once where going on is worse.

Nothing of a run outlives its driver, not even a driver that was killed with -9: Ray's agents, and workers in the middle
of an import, would survive it for a while or for good. A small process outside the driver's session waits for the end
of a pipe that only the driver holds; then it kills whatever still carries this run's mark in its environment and
removes the temporary folders. It runs this file as a script.

Every command imports this before anything else, so nothing of the project and nothing heavy is imported here.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

EXIT_INTERRUPTED = 130
NUMBERS = (signal.SIGINT, signal.SIGTERM)
# One interrupt often arrives as several signals: `timeout` sends one to its child and one to the group, and `uv run`
# passes on what the group has got already.
ONE_INTERRUPT_S = 1.0
# A library may swallow an exception, and cleaning up may hang.
GRACE_S = 10.0

# A terminal that is stopped, or that nobody reads, takes no more: a way out that has something to say would never end.
UNREAD_S = 5.0

_since: float | None = None  # when the process was first interrupted
_writing: dict[int, float] = {}  # by thread, since when it writes to the terminal


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """A write to stderr, which is given up where the process was interrupted and nobody reads it."""
    thread = _thread.get_ident()
    begun = thread not in _writing
    _writing.setdefault(thread, time.monotonic())
    try:
        yield
    finally:
        if begun:
            _writing.pop(thread, None)


def _give_up_unread() -> None:
    """Leads what is written nowhere once a write has waited too long, and has that write begin again. A thread's loop,
    from the first interrupt on."""
    while _since is not None:
        time.sleep(UNREAD_S / 10)
        stuck = [thread for thread, since in _writing.copy().items() if time.monotonic() - since > UNREAD_S]
        if stuck:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            os.close(null)
        for thread in stuck:
            with contextlib.suppress(OSError):  # it has ended
                signal.pthread_kill(thread, signal.SIGURG)  # ends the call, which Python then makes anew


@contextlib.contextmanager
def interrupts(first: Callable[[], None], again: Callable[[], None]) -> Iterator[None]:
    """Inside the block, `first` is called at the process's first SIGINT or SIGTERM, and `again` at every one that comes
    more than `ONE_INTERRUPT_S` later. The main thread only."""
    old = {number: signal.signal(number, _handler(first, again)) for number in NUMBERS}
    old[signal.SIGURG] = signal.signal(signal.SIGURG, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _handler(first: Callable[[], None], again: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        global _since
        if _since is None:
            _since = time.monotonic()
            with contextlib.suppress(RuntimeError):  # the interpreter is ending
                _thread.start_new_thread(_give_up_unread, ())
            first()
        elif time.monotonic() - _since > ONE_INTERRUPT_S:
            again()

    return handle


def stop_note(saved: int, saves: bool = True) -> str:
    """What the first interrupt of a running step is told. saved: the newest saved step, 0 for none; saves: whether the
    run saves any."""
    if not saves:
        return "finishing the step; once more stops at once (this run saves nothing)"
    lost = f"back to step {saved}, the newest saved one" if saved else "nothing is saved yet, all would be lost"
    return f"finishing the step and saving; once more stops at once ({lost})"


def end_at_once() -> NoReturn:
    """Ends the process with the documented code, whatever it is in the middle of."""
    os._exit(EXIT_INTERRUPTED)


def stoppable(said: Callable[[], str] = lambda: "interrupted") -> contextlib.AbstractContextManager[None]:
    """While there is nothing to save: the first interrupt shows `said()` on stderr and raises KeyboardInterrupt, one
    during the cleaning up ends the process, whose guard then does the cleaning.

    The process has `GRACE_S` to clean up and end. Amid an import or a call of Ray it ends at once: an exception there
    is swallowed, or breaks the library.
    """
    return interrupts(lambda: _raise(said), end_at_once)


def _raise(said: Callable[[], str]) -> NoReturn:
    with writing(), contextlib.suppress(Exception):  # of a file that it reads, or a stderr that is closed
        os.write(2, f"\n{said()}\n".encode(errors="replace"))  # a handler may stand amid a print of the same stream
    if _in_a_library():
        if os.isatty(2):
            with writing():
                os.write(2, b"\x1b[?25h")  # a spinner has hidden the cursor
        end_at_once()
    _thread.start_new_thread(_end_later, ())  # threading's own lock may be held where the handler stands
    raise KeyboardInterrupt


def _end_later() -> None:
    time.sleep(GRACE_S)
    end_at_once()


def _in_a_library() -> bool:
    """Amid an import, or a call of Ray, whose processes the run's guard ends."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file == "<frozen importlib._bootstrap>" or "/site-packages/ray/" in file:
            return True
        frame = frame.f_back
    return False


# -- the guard ---------------------------------------------------------------------------------------------------------
MARK = "CODEA1_RUN_MARK"


@contextlib.contextmanager
def guarded(folders: Sequence[Path], lock: int | None = None) -> Iterator[None]:
    """Marks every process started inside the block and guards them; `folders` are deleted when it is over.

    The guard keeps the file `lock` open: who waits for the lock of a killed driver gets it when all is quiet, not while
    the rest of the old run may still write, or the guard may still clean up below the feet of the new one.
    """
    import subprocess

    mark = os.urandom(16).hex()
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
    import subprocess

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
    """The process that waits for the driver's end: kills what carries the mark, deletes the folders."""
    import shutil

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
