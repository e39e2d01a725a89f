"""However a program ends: it gets its verdict, the next program its own, and nothing stays alive, whatever layer is out."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import LAYERS, Limits, SandboxEnvironment, UnitModule
from codea1_cli.sandbox.local import LocalSandbox, worker
from codea1_cli.sandbox.local.programs import signal_name
from tests.sandbox.ends import ENDS, HEAD, SLEEPER, at_load, in_a_call
from tests.sandbox.shared import QUICK, children, drilled, orphans, soon, verdicts

REFERENCE = "def f(x): return x + 1\n"
CALLS = ["f(0)", "f(1)", "f(2)"]
# What another program could have spoilt for the next one: its output, its folder, its processes, its signals.
NEXT = """import os, signal, sys
def f(x):
    sys.stdout.write('y' * 1000); sys.stdout.flush(); os.write(2, b'y')
    assert os.fstat(1).st_size == 1001 and not os.listxattr(1)
    if os.getcwd() != '/':  # else it has no folder
        own = sys.prefix.split('/')[2:3] if sys.prefix.startswith('/tmp/') else []  # an interpreter that lies there
        assert os.listdir('/tmp') == own and not os.listxattr('.')
        with open('/tmp/a', 'w') as file: file.write('a')
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    if os.fork() == 0: os._exit(3)
    return x + (os.wait()[1] >> 8) - 2
"""
ONE = Limits(time_s=1.5, load_s=2.0, memory_mb=512, processes=32)
# Where these reach the process above the calls, what follows is theirs too.
REACH_OTHERS = {
    "stops its parent",
    "kills its parent",
    "kills its parent in real time",
    "kills everybody",
    "part of a frame",
}


@contextmanager
def nothing_left(without: list[str], **more: object) -> Iterator[LocalSandbox]:
    """A sandbox; at its end no process of a program is alive, and at last none at all."""
    with LocalSandbox(1, without=without, warm=(), **more) as box:  # type: ignore[arg-type]
        yield box
        zygotes = [one.process.pid for one in box._all if one.is_alive()]
        assert soon(lambda: not any(children(zygote) for zygote in zygotes)), "a program's process is alive"
    assert not any(os.path.exists(f"/proc/{zygote}") for zygote in zygotes)
    assert not orphans()


def try_ends(box: LocalSandbox, names: list[str], limits: Limits = ONE) -> None:
    judge = Judge(box, limits=limits)
    expected = judge.expected(REFERENCE, "f", CALLS)
    for name in names:
        body, allowed = ENDS[name]
        found = verdicts(judge.check(in_a_call(body), "f", CALLS, expected))
        assert found[0] == "passed", (name, found)
        assert found[1] in allowed.split(), (name, found)
        assert found[2] == "passed" or (name in REACH_OTHERS and found[2] != "unscored"), (name, found)
        found = verdicts(judge.check(at_load(body), "f", CALLS, expected))
        assert "unscored" not in found, (name, found)
        assert allowed != "crashed" or found == ["crashed"] * 3, (name, found)
        assert verdicts(judge.check(NEXT, "f", CALLS, expected)) == ["passed"] * 3, name


SAMPLE = ["exit 77", "real-time signal", "its child goes on", "children ignored", "no descriptors", "no way into its folder", "traced by a child"]  # fmt: skip


WITHOUT_LAYER = drilled([], ["", *LAYERS])


@pytest.mark.parametrize("without", [[], ["pid_namespace"]], ids=["all layers", "no pid namespace"])
def test_a_program_may_end_in_any_way(without: list[str]) -> None:
    with nothing_left(without) as box:
        try_ends(box, SAMPLE, replace(ONE, time_s=15.0, load_s=15.0))  # none of them meets a limit


@pytest.mark.parametrize("layer", WITHOUT_LAYER)
def test_every_end_without_each_layer(layer: str) -> None:
    with nothing_left([layer] if layer else []) as box:
        try_ends(box, list(ENDS))


@pytest.mark.corpus
def test_a_tracer_among_its_children_holds_nobody_up() -> None:
    """Where a process is traced by another than its parent, its parent cannot wait for it."""
    with nothing_left(["pid_namespace", "seccomp"]) as box:
        try_ends(box, ["traced", "traced and stopped", "traced by a child", "seized by a child"])


@pytest.mark.corpus
def test_a_program_takes_no_time_from_itself() -> None:
    """Its own processes keep each other waiting for a processor: no more is given back than half a limit."""
    busy = (
        HEAD
        + "for _ in range(30):\n    if os.fork() == 0:\n        while True: pass\nwhile True: pass\ndef f(x): return x\n"
    )
    with nothing_left([]) as box:
        run = box.run(busy, "f", ["f(1)"], replace(ONE, load_s=1.0))
        assert run.answers[0].kind.value == "timeout"
        assert run.seconds < 5


@pytest.mark.parametrize("layer", WITHOUT_LAYER)
def test_every_status_and_signal_without_each_layer(layer: str) -> None:
    """Statuses 0 to 255 and signals 1 to 64: in a call, at loading, and sent to the process above."""
    with nothing_left([layer] if layer else []) as box:
        limits = replace(ONE, time_s=2.0)
        run = box.run(
            "import os\ndef f(x):\n    if x >= 0: os._exit(x)\n    return x",
            "f",
            [f"f({x})" for x in range(-1, 256)],
            limits,
        )
        assert [answer.kind.value for answer in run.answers] == ["value", *["crashed"] * 256]
        kill = "import os, signal\ndef f(who, x):\n    if x: os.kill((os.getpid, os.getppid)[who](), x)\n    return x"
        for who in (0, 1):
            for number in range(1, 65):
                run = box.run(kill, "f", [f"f({who}, 0)", f"f({who}, {number})", f"f({who}, 0)"], limits)
                kinds = [answer.kind.value for answer in run.answers]
                assert kinds[0] == "value", (number, kinds)
                assert kinds[2] == "value" or (
                    who == 1 and layer == "pid_namespace" and kinds[2] in ("crashed", "timeout")
                ), (number, kinds)
                assert kinds[1] in ("value", "raised", "crashed", "timeout"), (number, kinds)
        for number in range(1, 65):
            run = box.run(
                f"import os\nos.kill(os.getpid(), {number})\ndef f(): return 1",
                "f",
                ["f()"],
                replace(limits, load_s=0.5),
            )
            assert run.answers[0].kind.value in ("value", "crashed", "timeout", "load_error", "output_limit"), number
        assert box.run("def f(): return 1", "f", ["f()"], limits).answers[0].kind.value == "value"


def test_every_signal_can_be_named() -> None:
    assert [signal_name(n) for n in (9, 34, 40, 64, 99)] == [
        "SIGKILL",
        "SIGRTMIN",
        "signal 40",
        "SIGRTMAX",
        "signal 99",
    ]


TESTS = "import unittest\nclass TestCases(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(0), 1)\n    def test_b(self): self.assertEqual(f(1), 2)\n"
UNIT = SandboxEnvironment(unit=True)


def try_unit_modules(box: LocalSandbox, names: list[str]) -> None:
    limits = Limits(time_s=4.0, memory_mb=512, processes=32)
    for name in names:
        body, allowed = ENDS[name]
        for make in (in_a_call, at_load):
            run = box.run_unit(UnitModule(make(body), TESTS, ("test_a", "test_b")), limits)
            found = [outcome.verdict.value for outcome in (*run.tests, run.whole)]
            assert run.loaded is not None, (name, run)
            assert "unscored" not in found, (name, found)
            ends = allowed == "crashed" and name != "exec"  # which the benchmark's checker switches off
            assert not ends or "passed" not in found[1:], (name, found)
        run = box.run_unit(UnitModule(REFERENCE, TESTS, ("test_a", "test_b")), limits)
        assert [outcome.verdict.value for outcome in run.tests] == ["passed"] * 2, name


def test_a_program_with_unit_tests_may_end_in_any_way() -> None:
    with nothing_left([], environment=UNIT) as box:
        try_unit_modules(box, ["exit 77", "real-time signal", "its child goes on"])


@pytest.mark.parametrize("layer", WITHOUT_LAYER)
def test_every_end_of_a_program_with_unit_tests_without_each_layer(layer: str) -> None:
    with nothing_left([layer] if layer else [], environment=UNIT) as box:
        try_unit_modules(box, list(ENDS))


def test_a_child_that_never_began_is_no_verdict(sandbox: LocalSandbox) -> None:
    """Limits that cannot be set are our failure: the program did not run."""
    run = sandbox.run("def f(): return 1", "f", ["f()"], replace(QUICK, output_kb="much"))  # type: ignore[arg-type]
    assert run.loaded is None
    assert "before the program began" in run.load_detail
    assert sandbox.run("def f(): return 1", "f", ["f()"], QUICK).loaded


def test_workers_that_died_without_work_cost_no_program_its_verdict() -> None:
    with LocalSandbox(2, warm=()) as box:
        workers = [box._take(0) for _ in range(2)]
        for one in workers:
            box._places[0].give(one)
            one.process.kill()
            one.process.wait()
        assert [box.run("def f(): return 1", "f", ["f()"], QUICK).loaded for _ in range(2)] == [True] * 2


@pytest.mark.parametrize("without", [[], ["pid_namespace"], ["pids_cgroup", "memory_cgroup"]], ids=["all layers", "no pid namespace", "no control groups"])  # fmt: skip
@pytest.mark.parametrize("number", drilled([], [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV]))
def test_a_zygote_may_die_or_stop_at_any_moment(
    without: list[str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if number == signal.SIGSTOP:  # it never answers
        monkeypatch.setattr(worker, "REPLY_S", 2.0)
    program = HEAD + SLEEPER.format("os.setsid()") + "def f(x):\n    time.sleep(0.01)\n    return x\n"
    with nothing_left(without) as box:
        for moment in range(15):
            box.run("def f(): return 1", "f", ["f()"], QUICK)  # there is a worker, and it has no work
            worker_pid = next(one.process.pid for one in box._all if one.is_alive())
            killer = threading.Timer(moment * 0.003, os.kill, (worker_pid, number))
            killer.start()
            run = box.run(program, "f", ["f(0)", "f(1)"], replace(ONE, time_s=20.0, load_s=20.0))
            killer.join()
            assert [answer.kind.value for answer in run.answers] == ["value"] * 2, (moment, run)
