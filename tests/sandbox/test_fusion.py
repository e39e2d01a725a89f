"""The sandbox-fusion backend against a stand-in of the service: the same verdicts, and no failure of it is a verdict."""

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from codea1_cli.errors import EnvironmentFault
from codea1_cli.judging.judge import Judge
from codea1_cli.judging.judge_rows import Row, RowJudge
from codea1_cli.sandbox.base import ProgramRun
from codea1_cli.sandbox.fusion import FusionSandbox
from tests.sandbox.fusion_standin import StandIn, stand_in
from tests.sandbox.shared import QUICK, verdicts

LIMITS = replace(QUICK, load_s=5.0)
GOOD = "def f(x): return x + 1"


@pytest.fixture(scope="module")
def service() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture
def box(service: StandIn) -> FusionSandbox:
    service.fail("", 0)
    return FusionSandbox(service.url, workers=2, attempts=3, patience_s=20.0)


def kinds(run: ProgramRun) -> list[str]:
    return [answer.kind.value for answer in run.answers]


def test_it_answers_as_the_local_backend_does(box: FusionSandbox, sandbox) -> None:
    program = (
        "import os\ndef f(x):\n    print('noise' * 50000)\n    if x == 1: os._exit(0)\n    if x == 2: raise ValueError(x)\n"
        "    if x == 3:\n        while True: pass\n    if x == 4: return bytearray(1 << 40)\n    if x == 5: return object()\n"
        "    if x == 6: return 'a' * 300000\n    return {x: [1.5, float('nan'), (None, {2})]}"
    )
    calls = [f"f({n})" for n in range(8)]
    remote, local = box.run(program, "f", calls, LIMITS), sandbox.run(program, "f", calls, LIMITS)
    assert kinds(remote) == kinds(local)
    assert [a.text for a in remote.answers] == [a.text for a in local.answers]
    assert box.failures.total() == 0


def test_hash_seeds_and_load_failures(box: FusionSandbox) -> None:
    seeds = [box.run("def f(): return hash('a')", "f", ["f()"], LIMITS, seed).answers[0].text for seed in (0, 1, 0)]
    assert seeds[0] == seeds[2] != seeds[1]
    for program, kind in (
        ("def f(", "load_error"),
        ("import os; os._exit(0)", "crashed"),
        ("while True: pass", "timeout"),
    ):
        run = box.run(program, "f", ["f()"], replace(LIMITS, load_s=0.5))
        assert run.loaded is False
        assert kinds(run) == [kind]


@pytest.mark.parametrize(
    "fault", ["error", "sandbox_error", "garbage", "half", "empty", "mute", "lost", "slow", "hang"]
)
def test_each_failure_is_retried_counted_and_then_unscored(
    box: FusionSandbox, service: StandIn, fault: str, monkeypatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None) if fault != "hang" else None
    if fault == "hang":
        monkeypatch.setattr("codea1_cli.sandbox.fusion._SPARE_S", -15.0)
        box.attempts = 2
    service.fail(fault)
    run = box.run(GOOD, "f", ["f(1)", "f(2)"], LIMITS)
    assert run.loaded is None
    assert kinds(run) == ["unscored", "unscored"]
    assert box.failures.total() >= 2
    judge = Judge(box, limits=LIMITS)
    assert judge.expected(GOOD, "f", ["f(1)"])["f(1)"].reason == "unscored"
    service.fail("", 0)
    monkeypatch.undo()
    assert kinds(box.run(GOOD, "f", ["f(1)", "f(2)"], LIMITS)) == ["value", "value"]


def test_a_short_outage_costs_no_verdict(box: FusionSandbox, service: StandIn, monkeypatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    service.fail("error", times=2)
    assert kinds(box.run(GOOD, "f", ["f(1)"], LIMITS)) == ["value"]
    assert dict(box.failures) == {"error": 2}


def test_while_it_is_down_a_program_asks_once(box: FusionSandbox, service: StandIn, monkeypatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    service.fail("error")
    box.run(GOOD, "f", ["f(1)"], LIMITS)
    assert service.requests == 3
    box.run(GOOD, "f", ["f(1)"], LIMITS)
    assert service.requests == 4


def test_nobody_listens(monkeypatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    box = FusionSandbox(f"http://127.0.0.1:{port}", attempts=3)
    assert kinds(box.run(GOOD, "f", ["f(1)"], LIMITS)) == ["unscored"]
    assert dict(box.failures) == {"refused": 3}


def test_an_endpoint_is_needed_and_may_come_from_the_environment(monkeypatch, service: StandIn) -> None:
    monkeypatch.delenv("SANDBOX_FUSION_ENDPOINT", raising=False)
    with pytest.raises(EnvironmentFault, match="endpoint"):
        FusionSandbox()
    monkeypatch.setenv("SANDBOX_FUSION_ENDPOINT", service.url)
    service.fail("", 0)
    assert kinds(FusionSandbox().run(GOOD, "f", ["f(1)"], LIMITS)) == ["value"]


def test_a_program_that_stops_the_process_that_holds_it_is_late_not_unscored(box: FusionSandbox, monkeypatch) -> None:
    monkeypatch.setattr("codea1_cli.sandbox.fusion._LONGEST_RUN_S", 3.0)
    box.attempts = 1
    program = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\ndef f(x): return x + 1"
    run = box.run(program, "f", ["f(1)"], LIMITS)
    assert run.loaded is False
    assert kinds(run) == ["timeout"]


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.usefixtures("canary")
def test_the_shared_cases_get_allowed_verdicts(shared: Path, service: StandIn) -> None:
    from tests.sandbox.test_hostile_cases import complaint, rows_of

    service.fail("", 0)
    layers = service.box.layers  # the stand-in's isolation is ours: without a limit on processes no bomb may go off
    left_out = {"fork_bomb"} if layers["pids_cgroup"] and layers["user_namespace"] else set()
    judge = RowJudge(FusionSandbox(service.url, workers=2), replace(LIMITS, time_s=1.0, load_s=3.0, patience=1))
    pairs = [(row, case) for row, case in rows_of(shared) if case["id"] not in left_out]
    reports = judge.stream((row for row, _ in pairs), 2)
    faults = {
        case["id"]: fault
        for report, (_, case) in zip(reports, pairs, strict=True)
        if (fault := complaint(report, case))
    }
    assert not faults


def test_a_row_is_judged_through_it(box: FusionSandbox) -> None:
    row = Row("a", GOOD, "def f(x): return x", "f", tests=("assert f(1) == 2",))
    report = RowJudge(box, LIMITS).judge(row)
    assert json.loads(json.dumps(report))["status"] == "failed"
    judge = Judge(box, limits=LIMITS)
    expected = judge.expected(GOOD, "f", ["f(1)"])
    assert verdicts(judge.check(GOOD, "f", ["f(1)"], expected)) == ["passed"]
