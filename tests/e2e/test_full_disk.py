"""A run on a disk that fills up: a clear end, whole checkpoints only, and a resume once there is space again."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SMALL, Cli, alive_of, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]  # one process: they share runs

# One checkpoint of the embedded model takes 22 MB.
ROOM_FOR_ONE_CHECKPOINT, ROOM = "25m", "400m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes; the test is skipped where it cannot be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = f"size={ROOM_FOR_ONE_CHECKPOINT}"
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
    done = cli("train", "--recipe", "tiny", "--run", "full", *SMALL, *changes, "--max-steps", "3")
    assert done.returncode == 3, done.stderr
    assert re.search(r"error: (code|test)\[0\] at step 3 \(\w+\): the disk is full\n", done.stderr), done.stderr
    assert "hint: free some space; step 2 is saved: `codea1 train --run full --resume`" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert wait_for(lambda: not alive_of(run), 10.0), alive_of(run)
    assert [folder.name for folder in (run / "checkpoints").glob("step-*")] == ["step-000002"]
    assert (run / "checkpoints" / "latest" / "COMMITTED").read_text() == '{"step": 2}\n'

    subprocess.run(["mount", "-o", f"remount,size={ROOM}", str(small_disk)], check=True)
    resumed = cli("train", "--run", "full", "--resume", "--max-steps", "3")
    assert resumed.returncode == 0, resumed.stderr
    assert [line["step"] for line in cli.metrics("full")] == [1, 2, 3]
    assert (run / "checkpoints" / "latest" / "COMMITTED").read_text() == '{"step": 3}\n'
    assert not list((run / "checkpoints").glob(".[wps]*"))
