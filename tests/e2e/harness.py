"""Runs the real command line on the embedded model: small settings, real policies, real judge."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CODEA1 = str(Path(sys.executable).parent / "codea1")

# Two steps an epoch and two optimizer steps a rollout, so that six steps cross both kinds of border.
SMALL = (
    "data.limit=4",
    "data.heldout=null",
    "game.n_code=4",
    "game.n_test=2",
    "game.update_n=1",
    "train.max_steps=6",
    "train.problems_per_step=2",
    "train.updates_per_step=2",
    "train.threads=1",
    "judge.workers=1",
    "code.max_completion_tokens=48",
    "test.max_completion_tokens=64",
    "checkpoint.every=3",
)


# What may lie in a shell and shall change nothing: other launchers' variables, a locale, thread pools, Ray's and torch's.
HOSTILE = {
    "WORLD_SIZE": "8", "RANK": "1", "LOCAL_RANK": "3", "MASTER_ADDR": "192.0.2.7", "MASTER_PORT": "29500", "NODE_RANK": "1",
    "GROUP_RANK": "1", "PET_NNODES": "2", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4", "PMI_RANK": "1", "PMI_SIZE": "3", "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2",
    "ACCELERATE_MIXED_PRECISION": "fp8", "HOME": "/proc/1", "HF_HOME": "/proc/1/hf", "PYTHONHASHSEED": "77",
    "OMP_NUM_THREADS": "3", "OMP_DYNAMIC": "TRUE",
    "RAY_ADDRESS": "192.0.2.7:6379", "RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "abc", "RAY_TMPDIR": "/nonexistent",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "USE_TORCH": "0", "TMPDIR": "/nonexistent", "PYTHONWARNINGS": "ignore",
    "PYTHONOPTIMIZE": "2", "ATEN_CPU_CAPABILITY": "default",
}  # fmt: skip
if CODEA1.isascii():  # else Python itself finds no package in such a locale, before any line of ours
    HOSTILE |= {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@dataclass
class Cli:
    """Runs `codea1` with its runs in one folder."""

    runs: Path
    logs: dict[int, Path] = field(default_factory=dict)

    def __call__(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CODEA1, *arguments],
            capture_output=True,
            text=True,
            timeout=500,
            env=self._env(env),
            stdin=subprocess.DEVNULL,
        )

    def start(self, *arguments: str, env: dict[str, str] | None = None, umask: int = -1) -> subprocess.Popen[str]:
        log = open(self.runs / f"{time.monotonic_ns()}.log", "w+", encoding="utf-8")  # noqa: SIM115
        process = subprocess.Popen(
            [CODEA1, *arguments],
            stdout=log,
            stderr=log,
            text=True,
            env=self._env(env),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            umask=umask,
        )
        self.logs[process.pid] = Path(log.name)
        return process

    def log_of(self, process: subprocess.Popen[str]) -> str:
        """What a started process has written so far, to stdout and stderr."""
        return self.logs[process.pid].read_text(encoding="utf-8")

    def _env(self, extra: dict[str, str] | None) -> dict[str, str]:
        return {**os.environ, "CODEA1_RUNS": str(self.runs), "HF_HUB_OFFLINE": "1", **(extra or {})}

    def path(self, run: str) -> Path:
        return self.runs / run

    def cut(self, run: str, copy: str, step: int) -> None:
        """Copies a run as a kill leaves it that comes before anything behind the checkpoint of `step` is saved."""
        shutil.copytree(self.path(run), self.path(copy), symlinks=True)
        checkpoints = self.path(copy) / "checkpoints"
        for folder in checkpoints.glob("step-*"):
            if int(folder.name.removeprefix("step-")) > step:
                shutil.rmtree(folder)
        (checkpoints / "latest").unlink()
        (checkpoints / "latest").symlink_to(f"step-{step:06d}")

    def metrics(self, run: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path(run) / "metrics.jsonl").read_text().splitlines()]


def patient(seconds: float) -> int:
    """So many seconds of a machine with little else to do, on this one as it is."""
    return int(seconds * max(1.0, os.getloadavg()[0] / (2 * len(os.sched_getaffinity(0)))))


def kill_when(process: subprocess.Popen[str], moment: Callable[[], bool], timeout_s: float = 500.0) -> None:
    """Kills the driver with -9 as soon as `moment()` holds."""
    deadline = time.monotonic() + timeout_s
    while not moment():
        assert process.poll() is None, "the run ended before the moment to kill it"
        assert time.monotonic() < deadline, "the moment to kill the run never came"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


def alive_of(run: Path) -> list[str]:
    """Command lines of living processes that belong to a run: Ray's, ours, and the sandbox's."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (folder / "environ").read_bytes().decode(errors="replace")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if state == "Z" or int(folder.name) == os.getpid():
            continue
        if str(run) in command or f"CODEA1_RUNS={run.parent}" in environment:
            found.append(f"{folder.name} {command[:120]}")
    return found


def wait_for(condition: Callable[[], bool], timeout_s: float = 500.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


def comparable(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without what a clock decides."""
    return [
        {
            **{key: line[key] for key in ("step", "code", "test") if key in line},
            "arena": {key: value for key, value in line["arena"].items() if not key.endswith("_s")},
        }
        for line in lines
    ]
