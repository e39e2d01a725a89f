"""The Ray cluster of a run: our own unless an address is given, its files inside the run, nothing left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codea1_cli.engine.orphan_reaper import guarded
from codea1_cli.errors import EnvironmentFault, first_line

# Ray appends about 70 characters to its folder for its sockets; a path of a Unix socket ends at 107.
_LONGEST_TEMP = 36
_OBJECT_STORE = 128 * 2**20
_KNOCK_S = 10.0


@contextlib.contextmanager
def ray_cluster(run_path: Path, address: str | None, lock: int | None = None) -> Iterator[Any]:
    """`ray`, connected; everything it started ends with the block, or with the process, before `lock` is free.

    Raises:
        EnvironmentFault: Ray does not start, or no cluster answers at `address`.
    """
    _set_up_ray()
    import ray

    temp, folders = _temp(run_path)
    (run_path / "logs").mkdir(exist_ok=True)
    with (
        guarded(folders, lock),
        open(run_path / "logs" / "ray.log", "a", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),  # Ray prints a worker's death to stdout, which belongs to --json
        _connected(ray, address, str(temp)),
    ):
        yield ray


@contextlib.contextmanager
def _connected(ray: Any, address: str | None, temp: str | None = None) -> Iterator[None]:
    """Joins the cluster at `address`, or starts one with its files in `temp`; leaves it with the block."""
    try:
        if address is not None:
            with _signals_left_alone(ray):
                _join(ray, address)
        else:
            with _signals_left_alone(ray), _in_a_session_of_their_own():
                ray.init(
                    address="local",
                    num_cpus=max(os.cpu_count() or 1, 4),
                    num_gpus=0,
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _temp_dir=temp,
                )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        where = f"no Ray cluster answers at {address}" if address else "Ray does not start"
        raise EnvironmentFault(f"{where}: {first_line(error)}") from error
    try:
        yield
    except KeyboardInterrupt:  # the guard ends what there is
        raise
    except BaseException:
        ray.shutdown()
        raise
    ray.shutdown()


@contextlib.contextmanager
def _signals_left_alone(ray: Any) -> Iterator[None]:
    """Ray sets two handlers of its own for SIGTERM: one in C++, which writes stacks, and one in Python, which exits
    with the signal's number. Ours is set again in the place of the second."""
    ours = signal.getsignal(signal.SIGTERM)
    utils = ray._private.utils
    plain = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: signal.signal(signal.SIGTERM, ours)
    try:
        yield
    finally:
        utils.set_sigterm_handler = plain
        signal.signal(signal.SIGTERM, ours)


@contextlib.contextmanager
def _in_a_session_of_their_own() -> Iterator[None]:
    """Processes started inside the block leave the driver's group and terminal.

    Ctrl-C and `timeout` signal the whole group; Ray's processes in it would end, and with them the step that is to be
    finished and saved. Ray has no setting for it, and starts its processes through `subprocess`.
    """
    plain = subprocess.Popen.__init__

    def start(self: Any, *arguments: Any, **options: Any) -> None:
        plain(self, *arguments, **{**options, "start_new_session": True})

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]
    try:
        yield
    finally:
        subprocess.Popen.__init__ = plain  # type: ignore[method-assign]


def _set_up_ray() -> None:
    # Ray would start every worker through `uv run`, in a copy of the working folder, when the driver was.
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # A rank's GPU is ours to choose: Ray must not hide it from an actor that reserves none.
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    # Ray runs actors at niceness 15 by default: whatever else the machine does would come before training.
    os.environ.setdefault("RAY_worker_niceness", "0")


def _join(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    if port.isdigit():  # Ray would try for minutes
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()
    ray.init(address=address, namespace="codea1", log_to_driver=False, logging_level=logging.ERROR)


@contextlib.contextmanager
def connect(address: str) -> Iterator[Any]:
    """`ray`, connected to somebody's cluster for a look at it.

    Raises:
        EnvironmentFault: none answers.
    """
    _set_up_ray()
    import ray

    with contextlib.redirect_stdout(sys.stderr), _connected(ray, address):
        yield ray


def _temp(run_path: Path) -> tuple[Path, list[Path]]:
    """Ray's folder, `ray/` in the run, and what to delete afterwards; a short symbolic link leads there where the
    path is too long for a socket."""
    folder = run_path / "ray"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if len(str(folder)) <= _LONGEST_TEMP:
        return folder, [folder]
    link = Path(tempfile.mkdtemp(prefix="ca1-")) / "r"
    link.symlink_to(folder)
    return link, [link.parent, folder]


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on right now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
