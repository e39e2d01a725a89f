"""The real sandbox-fusion server of CODEA1_SHARED, and what can befall it."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def descendants(pid: int) -> list[int]:
    """A process and all that it started, parents first."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


class FusionServer:
    """`start` is without effect while it runs. The outages last for a block each."""

    def __init__(self, script: Path, home: Path, port: int) -> None:
        self.script, self.home, self.port = script, home, port
        self.url = f"http://127.0.0.1:{port}"
        self.pid = 0

    def start(self) -> None:
        if self.answers():
            return
        done = subprocess.run(
            ["bash", str(self.script), str(self.home), str(self.port)], capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            pytest.skip(f"the server does not start: {done.stderr[-300:]}")
        self.pid = int(done.stdout.split()[0])

    def answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/v1/ping", timeout=2.0) as reply:
            return bool(reply.status == 200)
        return False

    def stop(self) -> None:
        if self.pid:
            signal_all(descendants(self.pid), signal.SIGKILL)
            while self.answers():
                time.sleep(0.1)

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Gone with all that it runs."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def no_interpreter(self) -> Iterator[None]:
        """The interpreter that programs run under cannot be found."""
        found = self.home / "conda/envs/sandbox-runtime/bin/python"
        found.rename(found.with_name("python.away"))
        try:
            yield
        finally:
            found.with_name("python.away").rename(found)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Its /tmp takes nothing more."""
        inside = ["nsenter", "-t", str(descendants(self.pid)[1]), "-m", "-p"]
        done = subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "size=64k", "full", "/tmp"], capture_output=True)
        if done.returncode:
            pytest.skip("no mount can be made in the server's namespace")
        try:
            yield
        finally:
            subprocess.run([*inside, "umount", "-l", "/tmp"], check=True)

    @contextmanager
    def no_processes(self) -> Iterator[None]:
        """It may start no further process."""
        limit = Path("/sys/fs/cgroup/pids/fusion_server/pids.max")
        if not os.access(limit, os.W_OK):
            pytest.skip("the server has no control group here")
        limit.write_text("1")
        try:
            yield
        finally:
            limit.write_text("300")

    @contextmanager
    def hung(self) -> Iterator[None]:
        """Stopped, with all that it runs."""
        tree = descendants(self.pid)
        signal_all(tree, signal.SIGSTOP)
        try:
            yield
        finally:
            signal_all(tree, signal.SIGCONT)


@contextmanager
def running_server(shared: Path) -> Iterator[FusionServer]:
    """The server, started; skips where there is none."""
    script = shared / "tools/sandbox_fusion_server/start.sh"
    if not script.is_file() or shutil.which("uv") is None or shutil.which("curl") is None:
        pytest.skip("no sandbox-fusion server below CODEA1_SHARED, or no uv or curl")
    home = Path(tempfile.gettempdir()) / f"codea1-fusion-server-{os.getuid()}"
    server = FusionServer(script, home, 18200 + os.getpid() % 700)
    try:
        server.start()
        yield server
    finally:
        server.stop()
