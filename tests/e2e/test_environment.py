"""No phase hangs past the deadline, those before the first step included."""

import re

import pytest

from tests.e2e.harness import SMALL, Cli, alive_of, patient, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("e2e-apart")]


def test_the_deadline_holds_before_the_first_step(cli: Cli) -> None:
    """Of two runs at once: most of it is waiting."""
    deadline_s = patient(20)
    hanging = {
        point: cli.start(
            "train", "--recipe", "tiny", "--run", f"hangs-{point}", *SMALL, f"faults.deadline_s={deadline_s}",
            env={"CODEA1_FAULT": f"test:0:0:{point}:hang"},
        )
        for point in ("building", "starting")
    }  # fmt: skip
    for point, process in hanging.items():
        run = cli.path(f"hangs-{point}")
        assert process.wait(timeout=500) == 1, cli.log_of(process)
        told = cli.log_of(process)
        assert re.search(rf"error: test\[0\] hangs: {point}.* for \d+ s, the deadline is {deadline_s} s", told), told
        assert "fault_at" in (run / "logs" / "test-0.log").read_text()  # its stacks
    assert wait_for(lambda: not alive_of(run), 60.0), alive_of(run)  # of either: they share a folder
