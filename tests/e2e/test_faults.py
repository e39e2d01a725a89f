"""A side that dies, raises or hangs ends the run with one error; an interrupt saves first."""

import json
import os
import re
import signal
import time

import pytest

from tests.e2e.harness import HOSTILE, SMALL, Cli, alive_of, patient, wait_for
from tests.e2e.strangers import check_closed, check_refused

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]  # one process: they share runs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "deadline_s", "says"),
    [
        ("code:0:2:updating:exit", 600, r"error: code\[0\] died at step 2 \(updating\)"),
        (
            "test:0:2:sampling:raise",
            600,
            r"error: test\[0\] failed at step 2 \(sampling\): ZeroDivisionError: fault drill",
        ),
        ("test:0:2:sampling:hang", 20, r"error: test\[0\] hangs: sampling step 2 for \d+ s, the deadline is \d+ s"),
    ],
)
def test_a_failing_side_ends_the_run(cli: Cli, fault: str, deadline_s: float, says: str) -> None:
    run = "fault-" + fault.replace(":", "-")
    done = cli(
        "train",
        "--recipe",
        "tiny",
        "--run",
        run,
        *SMALL,
        "checkpoint.every=1",
        f"faults.deadline_s={patient(deadline_s)}",
        env={"CODEA1_FAULT": fault},
    )
    assert done.returncode == 1
    assert re.search(says, done.stderr), done.stderr
    assert f"step 1 is saved: `codea1 train --run {run} --resume`" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert wait_for(lambda: not alive_of(cli.path(run)), 60.0), alive_of(cli.path(run))


def test_an_interrupt_finishes_the_step_and_saves_and_looking_changed_nothing(cli: Cli, whole: str) -> None:
    """As a terminal and `timeout` send it: to every process of the group, and to the driver once more. The run looks at
    held-out problems and has no pre-flight: its steps are those of the run that does neither the one nor without the other.
    What lies in the shell changes nothing, nor does a umask that would let nobody write, and nobody else gets in."""
    settings = [s for s in SMALL if not s.startswith("data.heldout")]
    process = cli.start(
        "train",
        "--recipe",
        "tiny",
        "--run",
        "stopped",
        *settings,
        "eval.limit=3",
        "eval.n=2",
        "--no-preflight",
        "--json",
        env=HOSTILE,
        umask=0o777,
    )
    metrics = cli.path("stopped") / "metrics.jsonl"
    assert wait_for(lambda: metrics.is_file() and '"arena"' in metrics.read_text())
    check_closed(cli.path("stopped"))
    os.killpg(process.pid, signal.SIGINT)
    process.send_signal(signal.SIGINT)  # at once: what comes a second later is a second interrupt
    assert process.wait(timeout=500) == 130
    lines = cli.metrics("stopped")
    steps = [line for line in lines if "arena" in line]
    assert 1 <= len(steps) < 6
    latest = (cli.path("stopped") / "checkpoints" / "latest").resolve()
    assert latest.name == f"step-{len(steps):06d}"
    assert json.loads((latest / "COMMITTED").read_text())["step"] == len(steps)
    assert wait_for(lambda: not alive_of(cli.path("stopped")), 60.0), alive_of(cli.path("stopped"))

    environment = json.loads((cli.path("stopped") / "run.json").read_text())["environment"]
    assert set(environment["set_aside"]) >= {"WORLD_SIZE", "SLURM_PROCID", "USE_TORCH", "RAY_ADDRESS", "OMP_DYNAMIC"}
    assert environment["given"]["code[0]"]["OMP_NUM_THREADS"] == "1"

    for role in ("code", "test"):
        assert [line[role] for line in steps] == [line[role] for line in cli.metrics(whole)[: len(steps)]]
    evaluation = next(line["eval"] for line in lines if "eval" in line)
    assert 0.0 <= evaluation["code"]["pass@1"] <= evaluation["code"]["pass@2"] <= 1.0
    assert evaluation["test"]["suites"] > 0
    assert evaluation["near_miss"]["suites"] > 0
    evaluated = cli.path("stopped") / "evaluation"
    programs = json.loads((evaluated / "near_miss.json").read_text())
    assert len(programs) == 3
    assert sum(map(len, programs.values())) == len(json.loads((evaluated / "step-000000-near-miss.json").read_text()))
    assert not (cli.path("stopped") / "preflight.json").exists()
    assert json.loads((cli.path(whole) / "preflight.json").read_text())["stopped"] == []


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM],
    ids=["SIGINT", "SIGTERM"],
)
def test_an_interrupt_of_the_whole_group_before_the_first_step(cli: Cli, number: signal.Signals) -> None:
    run = f"early-{number.name}"
    process = cli.start("train", "--recipe", "tiny", "--run", run, *SMALL)
    sockets = cli.path(run) / "ray"
    assert wait_for(lambda: any(sockets.glob("session_*/sockets/raylet*")))
    os.killpg(process.pid, number)
    assert process.wait(timeout=500) == 130
    assert "Traceback" not in cli.log_of(process)
    assert cli.log_of(process).count("stopped before the first step; nothing to resume") == 1
    assert wait_for(lambda: not alive_of(cli.path(run)), 60.0), alive_of(cli.path(run))


@pytest.mark.slow
def test_a_second_interrupt_stops_at_once(cli: Cli) -> None:
    """The run hangs, so that a stranger has the time to ask for its Ray, too."""
    process = cli.start(
        "train",
        "--recipe",
        "tiny",
        "--run",
        "twice",
        *SMALL,
        "faults.deadline_s=6000",
        env={"CODEA1_FAULT": "test:0:2:sampling:hang"},
    )
    metrics = cli.path("twice") / "metrics.jsonl"
    assert wait_for(lambda: metrics.is_file() and metrics.read_text().count("\n") >= 1)
    check_refused(cli.path("twice"))
    process.send_signal(signal.SIGINT)
    time.sleep(2.0)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=500) == 130
    assert wait_for(lambda: not alive_of(cli.path("twice")), 60.0), alive_of(cli.path("twice"))
