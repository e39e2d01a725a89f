"""The Ray cluster of a run: our own unless an address is given, its files inside the run, nothing left behind.

Our own listens on the loopback interface only and asks for a token that lies in the run, where only the user can read
it. A cluster that was given has its own rules: the token in the environment or below the home folder is its token.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from codea1_cli.engine.shutdown import guarded
from codea1_cli.environment import PYTHON, cores
from codea1_cli.errors import EnvironmentFault, first_line

# Ray appends about 70 characters to its folder for its sockets; a path of a Unix socket ends at 107.
_LONGEST_TEMP = 36
_LOOPBACK = "127.0.0.1"
_OBJECT_STORE = 128 * 2**20
_KNOCK_S = 10.0
_START_S = 60.0
_STRANGER_S = 30.0
# Ray's autoscaler, the server of a dashboard that is not wished for, and what passes logs on to a driver that takes
# none. Each would be an interpreter that imports Ray anew.
_UNUSED: dict[str, Any] = dict.fromkeys(
    ("start_monitor", "start_api_server", "start_log_monitor"), lambda node, **options: None
)


@contextlib.contextmanager
def ray_cluster(run_path: Path, address: str | None, lock: int | None = None) -> Iterator[Any]:
    """`ray`, connected; everything it started ends with the block, or with the process, before `lock` is free.

    Raises:
        EnvironmentFault: Ray does not start, or no cluster answers at `address`.
    """
    temp, folders = _temp(run_path)
    with guarded(folders, lock):  # before they are made: an interrupt may come at any moment
        _make_temp(run_path, temp)
        (run_path / "logs").mkdir(exist_ok=True)
        with (
            _variables(run_path / ".ray" / "token" if address is None else None, address) as ray,
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
            with (
                _signals_left_alone(ray),
                _in_a_session_of_their_own(),
                # Ray puts another interface's address in the place of loopback's, and listens on all of them then.
                patch("ray._private.services.resolve_ip_for_localhost", str),
                patch("ray._private.services.get_node", _patiently(ray._private.services.get_node)),
                patch.multiple("ray._private.node.Node", **_UNUSED),
            ):
                ray.init(
                    address="local",
                    _node_ip_address=_LOOPBACK,
                    num_cpus=max(cores(), 4),
                    num_gpus=0,
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _temp_dir=temp,
                )
    except Exception as error:  # Ray raises a bare one where it does not come up in time
        if address is None:
            raise EnvironmentFault(
                f"Ray does not start: {first_line(error)}",
                hint="where the machine is busy, the same command again may do",
            ) from error
        refused = type(error) is ConnectionError or isinstance(error, ray.exceptions.AuthenticationError)
        raise EnvironmentFault(
            f"no Ray cluster answers at {address}: {first_line(error)}",
            hint="it may ask for a token: RAY_AUTH_TOKEN_PATH=FILE, or ~/.ray/auth_token here" if refused else None,
        ) from error
    try:
        yield
    except KeyboardInterrupt:  # the guard ends what there is
        raise
    except BaseException:
        ray.shutdown()
        raise
    ray.shutdown()


def _patiently(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """Ray's look for its own node, repeated for `_START_S`: its own half a minute is little on a busy machine."""
    until = time.monotonic() + _START_S

    def look(*arguments: Any, **options: Any) -> Any:
        while True:
            try:
                return get_node(*arguments, **options)
            except RuntimeError:  # it is not there yet
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    return look


@contextlib.contextmanager
def _signals_left_alone(ray: Any) -> Iterator[None]:
    """Ray sets two handlers of its own for SIGTERM: one in C++, which writes stacks, and one in Python, which exits
    with the signal's number. Ours is set again in the place of the second."""
    ours = signal.getsignal(signal.SIGTERM)
    with patch.object(ray._private.utils, "set_sigterm_handler", lambda handler: signal.signal(signal.SIGTERM, ours)):
        try:
            yield
        finally:
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

    with patch.object(subprocess.Popen, "__init__", start):
        yield


@contextlib.contextmanager
def _variables(token: Path | None = None, address: str | None = None) -> Iterator[Any]:
    """`ray`, under the variables that we want for it. With `token`, the file of the token of our own cluster, none of
    the user's variables for Ray counts: they may belong to another cluster. Nor do those that Python starts with: under
    PYTHONOPTIMIZE=2 Ray's own processes never come up."""
    mine = PYTHON if token is not None else {}
    before = {name: value for name, value in os.environ.items() if name.startswith("RAY_") or name in mine}
    ours = {
        # Ray would start every worker through `uv run`, in a copy of the working folder, when the driver was.
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # A rank's GPU is ours to choose: Ray must not hide it from an actor that reserves none.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # Ray runs actors at niceness 15 by default: whatever else the machine does would come before training.
        "RAY_worker_niceness": "0",
    }
    kept = before
    if token is not None:
        with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        # Workers that are started in advance know nothing of a rank's environment: no actor takes them.
        ours |= {"RAY_prestart_worker_first_driver": "0", **mine}
        ours |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        kept = {}
    _replace_variables(before, kept | ours)
    try:
        import ray
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

        loader = AuthenticationTokenLoader.instance()
        loader.reset_cache()  # Ray has read its variables and its token when it was imported
        if address is not None and lets_anybody_in(address):
            # With a token of ours, this process would ask the cluster's processes, which have none, for theirs.
            os.environ["RAY_AUTH_MODE"] = "disabled"
        elif loader.has_token(ignore_auth_mode=True):  # Ray itself shows it to a cluster only when told to
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        Config.initialize("")
        yield ray
    finally:
        _replace_variables(kept | ours | {"RAY_AUTH_MODE": ""}, before)


def _replace_variables(old: dict[str, str], new: dict[str, str]) -> None:
    for name in old:
        os.environ.pop(name, None)
    os.environ.update(new)


def _join(ray: Any, address: str) -> None:
    _knock(address)
    ray.init(address=address, namespace="codea1", log_to_driver=False, logging_level=logging.ERROR)


def _knock(address: str) -> None:
    """Raises OSError where nobody listens: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()


@contextlib.contextmanager
def connect(address: str) -> Iterator[Any]:
    """`ray`, connected to somebody's cluster for a look at it.

    Raises:
        EnvironmentFault: none answers.
    """
    with _variables(address=address) as ray, contextlib.redirect_stdout(sys.stderr), _connected(ray, address):
        yield ray


def lets_anybody_in(address: str) -> bool:
    """Whether the cluster at `address` answers somebody who has no token."""
    ask = (
        "import sys; from ray._raylet import GcsClient; "
        "GcsClient(address=sys.argv[1]).internal_kv_get(b'x', namespace=b'x')"
    )
    stranger = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    stranger["RAY_AUTH_MODE"], asking = "disabled", [sys.executable, "-c", ask, address]
    try:
        _knock(address)
        done = subprocess.run(asking, env=stranger, capture_output=True, timeout=_STRANGER_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _temp(run_path: Path) -> tuple[Path, list[Path]]:
    """Ray's folder, `ray/` in the run, and what to delete afterwards; none of it is made yet.

    Each of Ray's processes lets everybody write into its folder, so `ray` is a link into `.ray/`, which is the user's
    alone. A shorter link leads there where the path is too long for a socket, or is one that Ray cannot write.
    """
    closed, link = run_path / ".ray", run_path / "ray"
    if len(str(link)) <= _LONGEST_TEMP and str(link).isascii():
        return link, [link, closed]
    short = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
    other = Path(short) / f"ca1-{secrets.token_hex(4)}" / "r"
    return other, [other.parent, link, closed]


def _make_temp(run_path: Path, temp: Path) -> None:
    closed, link = run_path / ".ray", run_path / "ray"
    for old in (closed, link):
        shutil.rmtree(old, ignore_errors=True)
    link.unlink(missing_ok=True)
    closed.mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "t").mkdir()
    link.symlink_to(Path(".ray") / "t")
    if temp != link:
        temp.parent.mkdir(mode=0o700)
        temp.symlink_to(closed / "t")


def runtime_env(variables: dict[str, str], python: str = sys.executable) -> dict[str, Any]:
    """Ray's settings for an actor that gets these variables when its interpreter starts.

    Ray pastes the interpreter's path into a shell's command without quotes: where the path has a space, no actor would
    start.
    """
    quoted = shlex.quote(python)
    return {"env_vars": variables, **({"py_executable": quoted} if quoted != python else {})}


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on right now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
