"""What lies around a run changes neither its start nor its result, and no phase hangs past the deadline."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import CODEA1, HOSTILE, SMALL, Cli, alive_of, patient, wait_for
from tests.e2e.strangers import check_closed, ray_address

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("e2e-apart")]


@pytest.mark.parametrize("point", ["building", "starting"])
def test_the_deadline_holds_before_the_first_step(cli: Cli, point: str) -> None:
    run, deadline_s = f"hangs-{point}", patient(20)
    done = cli(
        "train", "--recipe", "tiny", "--run", run, *SMALL, f"faults.deadline_s={deadline_s}",
        env={"CODEA1_FAULT": f"test:0:0:{point}:hang"},
    )  # fmt: skip
    assert done.returncode == 1
    says = rf"error: test\[0\] hangs: {point}.* for \d+ s, the deadline is {deadline_s} s"
    assert re.search(says, done.stderr), done.stderr
    assert "fault_at" in (cli.path(run) / "logs" / "test-0.log").read_text()  # its stacks
    assert wait_for(lambda: not alive_of(cli.path(run)), 60.0), alive_of(cli.path(run))


def test_two_ranks_a_side_in_a_hostile_shell_listen_on_loopback_only(cli: Cli, tmp_path: Path) -> None:
    """In a folder with a name that is not ASCII, under a umask that would let nobody write."""
    runs = tmp_path / "dé"
    runs.mkdir()
    script = (
        f"umask 0777; exec {CODEA1} train --recipe tiny --run hé --runs {runs} "
        f"code.ranks=2 test.ranks=2 {' '.join(SMALL)}"
    )
    process = subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **HOSTILE}
    )
    run = runs / "hé"
    try:
        assert wait_for(lambda: (run / "metrics.jsonl").is_file())
        check_closed(run)
    finally:
        output = process.communicate(timeout=500)[0]
    assert process.returncode == 0, output.decode()


def test_a_stranger_s_ray_is_refused(cli: Cli) -> None:
    process = cli.start("train", "--recipe", "tiny", "--run", "closed", *SMALL, "train.max_steps=100")
    run = cli.path("closed")
    assert wait_for(lambda: (cli.path("closed") / "logs" / "code-0.log").is_file())  # a rank is up
    join = (
        "import sys, ray; from unittest.mock import patch; patch('ray._private.services.resolve_ip_for_localhost', str).start(); "
        "ray.init(address=sys.argv[1]); print('IN')"
    )
    try:
        # Whoever has the token gets in: what keeps the others out is the token.
        for token, inside in (((run / ".ray" / "token").read_text(), True), ("f" * 64, False), (None, False)):
            mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
            try:
                done = subprocess.run(
                    [sys.executable, "-c", join, ray_address(run)],
                    env={**os.environ, **mode}, capture_output=True, text=True, timeout=200,
                )  # fmt: skip
                assert (done.returncode == 0 and "IN" in done.stdout) == inside, done.stderr
            except subprocess.TimeoutExpired:
                assert not inside
    finally:
        process.kill()
        process.wait()
