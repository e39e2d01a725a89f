"""Files that a crash leaves whole (written beside, flushed to disk, renamed), and locks of outputs with one writer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from codea1_cli.errors import EnvironmentFault, UserError

log = logging.getLogger(__name__)

_PATIENCE_S = 0.25
_PATIENCE_AFTER_DEATH_S = 15.0
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}  # of a file system that has none


def write_atomic(path: Path, data: str | bytes) -> None:
    """Writes, flushes to disk and renames, so that a reader sees the old content or the new, never a part.

    An OSError names `path`, whichever file the system refused.

    Raises:
        UserError: a device or a pipe is there, whose place the file would take.
    """
    if not path.is_dir():  # which the rename refuses
        check_target(path, force=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise
    fsync_folder(path.parent)


def check_target(path: Path | None, force: bool) -> None:
    """Before a command works out what it writes to a file that a user names.

    Raises:
        UserError: a folder is there, a device or a pipe, or a file that is not to be replaced.
    """
    if path is not None and path.is_dir():
        raise UserError(f"{path} is a folder", hint="give the name of a file in it")
    if path is not None and path.exists() and not path.is_file():
        raise UserError(f"{path} is no plain file, and a new one would take its place", hint="give the name of a file")
    if path is not None and path.exists() and not force:
        raise UserError(f"{path} exists", hint="add --force to replace it")


def check_folder(path: Path, named: str, read: bool = False) -> None:
    """Where a folder is wanted, which need not be there yet unless it is to `read`.

    Raises:
        UserError: a file stands at `path`, which `named` gives, or above it.
    """
    there = _nearest(path)
    if not there.is_dir():
        hint = f"a folder is wanted: one that is there{'' if read else ', or a new name'}"
        below = f"lies below {there}, which is a file" if there != path.absolute() else "is a file"
        raise UserError(f"{named} {path} {below}".strip(), hint=hint)


def check_writable(folder: Path, option: str) -> None:
    """Before anything is made for a folder, which need not be there yet, and which `option` names.

    Raises:
        EnvironmentFault: nothing can be written there.
    """
    try:
        with tempfile.TemporaryFile(dir=_nearest(folder)):
            pass
    except OSError as error:
        raise EnvironmentFault(f"cannot write {folder}: {error.strerror}", hint=f"choose another {option}") from None


def _nearest(path: Path) -> Path:
    """What stands at `path`, or next above it."""
    return next(one for one in (path.absolute(), *path.absolute().parents) if os.path.lexists(one))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines, whole or not at all."""
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows))


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a JSON line, flushed to disk; a line that a crash tore is ended first."""
    with open(path, "a+b") as file:
        torn = file.tell() > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
        file.write(b"\n" * torn + json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def fsync_folder(folder: Path) -> None:
    """Flushes the entries of a folder, or a file, to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_tree(folder: Path) -> None:
    """Flushes every file and folder below `folder` to disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            fsync_folder(Path(parent) / name)
        fsync_folder(Path(parent))


@contextlib.contextmanager
def only_writer(target: Path, shown: object = None, wait: bool | None = None, option: str = "--out") -> Iterator[None]:
    """Holds the output `target`, a file or a folder that need not be there yet, for this process.

    The lock lies beside it as `.NAME.lock` and is gone afterwards. `shown` is the output's name in messages, `option`
    the one that chooses another; `wait` is None for a command without `--wait`.

    Raises:
        UserError: another process holds it, and `wait` is not set.
        EnvironmentFault: the folder cannot be written.
    """
    target = target.expanduser().resolve()  # an output has one lock, whichever links lead to it
    path = target.with_name(f".{target.name}.lock")
    made = [folder for folder in path.parents if not folder.exists()]
    name = shown or target

    def taken(holder: str) -> UserError:
        return UserError(
            f"{name} is being written by process {holder}",
            hint=f"wait for it{'' if wait is None else ' with --wait'}, or choose another {option}",
        )

    with contextlib.ExitStack() as stack:
        while True:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(open(path, "a+", encoding="utf-8"))
            except OSError as error:
                raise EnvironmentFault(
                    f"cannot write {name}: {error.strerror}", hint=f"choose another {option}"
                ) from None
            take_lock(file, taken, bool(wait))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    break
            file.close()  # the one before has removed it meanwhile
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # what was made for the lock alone
                for folder in made:
                    folder.rmdir()


@contextlib.contextmanager
def locked_folder(
    folder: Path, name: str, hint: str, taken: Callable[[str], UserError], wait: bool
) -> Iterator[IO[str]]:
    """Holds a folder, which is made where it is not there, by the file `lock` in it; yields that file. `name` is the
    folder's in the message where it cannot be written, `hint` what to do then.

    Raises:
        UserError: as `take_lock`.
        EnvironmentFault: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise EnvironmentFault(f"cannot write {name}: {error.strerror}", hint=hint) from None
    with file:
        take_lock(file, taken, wait)
        yield file


def take_lock(file: IO[str], taken: Callable[[str], UserError], wait: bool = False) -> None:
    """Locks `file` for as long as it stays open and writes this process's id and host into it.

    Somebody who only looks is gone in a moment. What a killed holder left behind holds the lock until it has ended,
    which takes seconds. Where the file system has no locks, the id in the file stands for one.

    Raises:
        UserError: `taken(process id)`, when another process holds it and `wait` is not set; with the host where that is
            another, and a word where that process has ended and what it started has not.
    """
    started = time.monotonic()
    told = False
    while not _locked(file):
        file.seek(0)
        holder = file.read().strip()
        patience = _PATIENCE_S if _alive(holder) else _PATIENCE_AFTER_DEATH_S
        if time.monotonic() - started > patience:
            if not wait:
                raise taken(_named(holder))
            if not told:
                log.warning("waiting: %s", taken(_named(holder)).what)
            told = True
        time.sleep(0.05)
    file.truncate(0)
    file.write(f"{os.getpid()} {socket.gethostname()}\n")
    file.flush()


def held_by(path: Path) -> int | None:
    """The id of the process that holds the lock file `path`, 0 where it is not known; None: nobody does."""
    try:
        with open(path, encoding="utf-8") as file:
            if _locked(file, fcntl.LOCK_SH):
                return None
            return int((file.read().split() or ["0"])[0])
    except FileNotFoundError:
        return None


def _locked(file: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        file.seek(0)
        holder = file.read().strip()
        return not holder or holder.split()[0] == str(os.getpid()) or not _alive(holder)
    return True


def _named(holder: str) -> str:
    """A holder as messages name it."""
    pid, _, host = holder.partition(" ")
    if host and host != socket.gethostname():
        return f"{pid} on {host}"
    return pid if _alive(holder) else f"{pid}, which has ended; what it started still runs"


def _alive(holder: str) -> bool:
    """Whether a holder (`PID` or `PID HOST`) may still run; nobody can say of another host's."""
    pid, _, host = holder.partition(" ")
    if host and host != socket.gethostname():
        return True
    try:
        stat = Path(f"/proc/{int(pid)}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (ValueError, OSError, IndexError):  # the holder is just writing its number
        return True
