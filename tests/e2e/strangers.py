"""Somebody else on the machine, or on its network, who looks at a run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from codea1_cli.engine.cluster import lets_anybody_in


def check_closed(run: Path) -> None:
    """Nothing of a running run listens beyond loopback, its Ray refuses who has no token, and the token is the user's."""
    ports = listening(run)
    assert len(ports) >= 5, ports  # Ray's own
    assert {address for address, _ in ports} == {"127.0.0.1"}
    assert not lets_anybody_in(ray_address(run))
    token = run / ".ray" / "token"
    assert len(token.read_text()) == 64
    assert token.stat().st_mode & 0o777 == 0o600
    assert (run / ".ray").stat().st_mode & 0o777 == 0o700


def check_refused(run: Path) -> None:
    """Who has the token joins the Ray of a running run, and nobody else does: it is the token that keeps them out."""
    join = (
        "import sys, ray; from unittest.mock import patch; patch('ray._private.services.resolve_ip_for_localhost', str).start(); "
        "ray.init(address=sys.argv[1]); print('IN')"
    )
    tokens = ((run / ".ray" / "token").read_text(), "f" * 64, None)
    joining = [
        subprocess.Popen(
            [sys.executable, "-c", join, ray_address(run)],
            env=os.environ
            | ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for token in tokens
    ]  # fmt: skip
    try:
        for process, inside in zip(joining, (True, False, False), strict=True):
            try:
                told = process.communicate(timeout=200)[0]
                assert (process.returncode == 0 and "IN" in told) == inside, told
            except subprocess.TimeoutExpired:
                assert not inside
    finally:
        for process in joining:
            process.kill()
            process.wait()


def ray_address(run: Path) -> str:
    """Where the run's Ray answers; empty before it does."""
    for folder in processes(run):
        with contextlib.suppress(OSError):
            for word in (folder / "cmdline").read_bytes().decode().split("\0"):
                if word.startswith("--gcs-address="):
                    return word.partition("=")[2]
    return ""


def processes(run: Path) -> list[Path]:
    """The folders in /proc of a run's processes, known by their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and f"RAY_AUTH_TOKEN_PATH={run}/".encode() in (folder / "environ").read_bytes():
                found.append(folder)
    return found


def listening(run: Path) -> set[tuple[str, int]]:
    """(address, port) of every TCP socket that a process of the run listens on."""
    inodes = set()
    for folder in processes(run):
        with contextlib.suppress(OSError):
            inodes |= {os.readlink(fd) for fd in (folder / "fd").iterdir()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address, _, port = fields[1].partition(":")
                found.add((_dotted(address), int(port, 16)))
    return found


def _dotted(text: str) -> str:
    """An address of /proc/net: little-endian words; IPv4 within IPv6 is the last of four."""
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(text[-8:])))
