"""A run on a disk that fills up: a clear end, whole checkpoints only, and a resume once there is space again."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import SMALL, Cli, alive_of, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOM = "400m"
ONE_CHECKPOINT = 25 * 2**20
"""One of the embedded model takes 22 MB."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; the test is skipped where it cannot be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = f"size={ROOM}"
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_ends_a_run_that_goes_on_when_there_is_space(small_disk: Path) -> None:
    cli = Cli(small_disk)
    run = cli.path("full")
    changes = ("checkpoint.every=2", "train.max_steps=4")
    process = cli.start("train", "--recipe", "tiny", "--run", "full", *SMALL, *changes, "--max-steps", "3")
    assert wait_for((run / "run.json").is_file), cli.log_of(process)
    ballast = small_disk / "ballast"  # the run was let in with room enough: now somebody else fills the disk
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - ONE_CHECKPOINT))
    assert process.wait(timeout=500) == 3, cli.log_of(process)
    told = cli.log_of(process)
    assert re.search(r"error: (code|test)\[0\] at step 3 \(\w+\): the disk is full\n", told), told
    assert "hint: free some space; step 2 is saved: `codea1 train --run full --resume`" in told
    assert "Traceback" not in told
    assert wait_for(lambda: not alive_of(run), 60.0), alive_of(run)
    assert [folder.name for folder in (run / "checkpoints").glob("step-*")] == ["step-000002"]
    assert json.loads((run / "checkpoints" / "latest" / "COMMITTED").read_text())["step"] == 2

    ballast.unlink()
    resumed = cli("train", "--run", "full", "--resume", "--max-steps", "3")
    assert resumed.returncode == 0, resumed.stderr
    assert [line["step"] for line in cli.metrics("full")] == [1, 2, 3]
    assert json.loads((run / "checkpoints" / "latest" / "COMMITTED").read_text())["step"] == 3
    assert not list((run / "checkpoints").glob(".[wps]*"))
