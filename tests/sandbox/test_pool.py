"""The pool: partial credit, restarts, limits, many threads, and our own failures, which are never verdicts."""

import os
import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from codea1_cli.sandbox.base import Limits, ProgramRun, SandboxEnvironment
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.local.child_monitor import ChildReport, follow
from codea1_cli.sandbox.local.worker import Worker, WorkerLost
from codea1_cli.sandbox.verdicts import AnswerKind
from tests.sandbox.shared import LATE, QUICK


def kinds(run: ProgramRun) -> list[str]:
    return [answer.kind.value for answer in run.answers]


def test_a_call_that_ends_the_child_costs_only_itself(sandbox: LocalSandbox) -> None:
    program = (
        "import os\ndef f(x):\n    if x == 1: os._exit(3)\n    if x == 3: raise ValueError(x)\n    if x == 5:\n"
        "        while True: pass\n    return x"
    )
    run = sandbox.run(program, "f", [f"f({n})" for n in range(8)], QUICK)
    assert kinds(run) == ["value", "crashed", "value", "raised", "value", "timeout", "value", "value"]
    assert [a.value.data for a in run.answers if a.value] == [0, 2, 4, 6, 7]
    assert run.answers[3].detail == "ValueError: 3"


def test_the_same_answers_with_a_fork_for_each_call() -> None:
    program = "def f(x):\n    if x == 1: raise SystemExit\n    return [x] * x"
    calls = [f"f({n})" for n in range(4)]
    with LocalSandbox(1, apart=True) as box:
        assert box.run(program, "f", calls, QUICK).answers == box.run(program, "f", calls, QUICK).answers
        assert kinds(box.run(program, "f", calls, QUICK)) == ["value", "raised", "value", "value"]


def test_a_program_that_always_loops_does_not_hold_its_worker_for_every_call(
    sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float]] = []

    def watch(self: Worker, *rest: object) -> ChildReport:
        asked.append(rest[5:7])
        return watched(self, *rest)

    watched = Worker.watch
    monkeypatch.setattr(Worker, "watch", watch)
    calls = [f"f({n})" for n in range(4)]
    run = sandbox.run("def f(x):\n    while True: pass", "f", calls, Limits(time_s=2.4, cpu_s=0.8, patience=2))
    assert kinds(run) == ["timeout"] * 4
    assert asked == [(2.4, 0.8)] * 2 + [(0.3, 0.1)] * 2


def test_a_call_that_is_quick_enough_passes_after_others_looped(sandbox: LocalSandbox) -> None:
    program = "def f(x):\n    while x < 9: pass\n    return x"
    run = sandbox.run(program, "f", [*(f"f({n})" for n in range(3)), "f(9)"], replace(QUICK, time_s=40.0, patience=1))
    assert kinds(run) == ["timeout"] * 3 + ["value"]


@pytest.mark.parametrize("keeps_state", [False, True])  # a fork answers a call of a program that does
def test_a_loop_costs_processor_time_and_a_sleep_costs_time(sandbox: LocalSandbox, keeps_state: bool) -> None:
    program = (
        "import time\nn = []\ndef f(x):\n" + "    n.append(x)\n" * keeps_state + "    while x == 1: pass\n"
        "    while x == 2: time.sleep(0.1)\n    return sum(range(x))"
    )
    calls, limits = ["f(0)", "f(1)", "f(2000000)", "f(3)"], Limits(time_s=60, cpu_s=0.2)
    run = sandbox.run(program, "f", calls, limits)
    assert kinds(run) == ["value", "timeout", "value", "value"]
    assert run.answers[1].seconds >= 0.2
    assert run.answers[0].seconds < run.answers[2].seconds < run.answers[1].seconds
    assert kinds(sandbox.run(program, "f", calls, replace(limits, stop_after=1))) == ["value", "timeout"]
    (slept,) = sandbox.run(program, "f", ["f(2)"], Limits(time_s=0.8, cpu_s=60)).answers
    assert (slept.kind, slept.seconds) == (AnswerKind.TIMEOUT, 0)


def test_a_program_that_answers_slowly_can_be_left_early(sandbox: LocalSandbox) -> None:
    calls = [f"f({n})" for n in range(1000)]
    run = sandbox.run(
        "import time\ndef f(x):\n    time.sleep(0.05)\n    return x", "f", calls, replace(QUICK, enough_s=0.2)
    )
    assert run.loaded is True
    assert 0 < len(run.answers) < 1000
    assert [answer.text for answer in run.answers] == [str(n) for n in range(len(run.answers))]


def test_a_program_that_does_not_load_says_why(sandbox: LocalSandbox) -> None:
    for program, kind in (
        ("def f(:", "load_error"), ("1 / 0", "load_error"), ("g = 1", "load_error"), ("import os; os._exit(0)", "crashed"),
        ("while True: pass", "timeout"), ("x = bytearray(1 << 40)", "memory"), ("\0", "load_error"),
    ):  # fmt: skip
        run = sandbox.run(program, "f", ["f()", "f()"], LATE if kind == "timeout" else QUICK)
        assert run.loaded is False
        assert run.load_kind is not None
        assert run.load_kind.value == kind
        assert kinds(run) == [kind, kind]
        assert run.load_detail


def test_a_program_is_compiled_with_no_settings_of_ours(sandbox: LocalSandbox) -> None:
    assert sandbox.run("def f(x: Missing): return x", "f", ["f(1)"], QUICK).loaded is False
    future = "from __future__ import annotations\ndef f(x: Missing): return x"
    assert sandbox.run(future, "f", ["f(1)"], QUICK).loaded is True
    assert kinds(sandbox.run("def f(x): assert x", "f", ["f(0)"], QUICK)) == ["raised"]


HARNESS = """
import os
AT = os.getpid()
def load(code, given, stateless):
    space = {}
    exec(code, space)
    def ask(x):
        return [space["f"](x + given["more"]), stateless, os.getpid() == AT]
    return {"ask": ask}
"""


def test_processor_time_ends_a_loading_that_the_clock_would_wait_for(sandbox: LocalSandbox) -> None:
    limits = Limits(time_s=2, load_s=600, load_cpu_s=0.2)
    run = sandbox.run("def f(x):\n    while x: pass\nprint(f(1))", "f", ["f(0)", "f(1)"], limits)
    assert (run.loaded, kinds(run)) == (False, ["timeout"] * 2)
    assert "while loading" in run.load_detail
    # of its calls none is bounded by it, nor is loading that only waits
    patient = "import time\ntime.sleep(0.5)\ndef f(x):\n    end = time.process_time() + x\n    while time.process_time() < end: pass\n    return x"
    assert kinds(sandbox.run(patient, "f", ["f(0)", "f(0.4)"], limits)) == ["value"] * 2


def test_a_harness_loads_every_program() -> None:
    def run(program: str, apart: bool = False) -> ProgramRun:
        sandbox.apart = apart
        return sandbox.run(program, "ask", ["ask(1)", "ask(2)"], QUICK, given='{"more": 3}')

    def values(run: ProgramRun) -> list[object]:
        return [answer.value.data for answer in run.answers if answer.value]

    stateful = "n = []\ndef f(x):\n    n.append(x)\n    return len(n)\n"
    with LocalSandbox(1, environment=SandboxEnvironment(harness=HARNESS)) as sandbox:
        assert values(run("def f(x): return x")) == [[4, True, False], [5, True, False]]
        assert values(run("def f(x): return x", apart=True)) == [[4, False, False], [5, False, False]]
        assert values(run(stateful)) == [[1, False, False], [1, False, False]]  # a fork for each call
        assert run("def f(").loaded is run("import nothing_at_all").loaded is False


def test_no_calls_only_load(sandbox: LocalSandbox) -> None:
    assert sandbox.run("def f(): pass", "f", [], QUICK).loaded is True
    assert sandbox.run("def g(): pass", "f", [], QUICK).loaded is False


def test_a_call_that_does_not_parse_raises_and_the_others_are_answered(sandbox: LocalSandbox) -> None:
    run = sandbox.run("def f(x): return x", "f", ["f(1)", "f(", "f(2)", "\0", "f('\\ud800')"], QUICK)
    assert kinds(run) == ["value", "raised", "value", "raised", "value"]


def test_hash_seeds_differ_between_the_two_interpreters(sandbox: LocalSandbox) -> None:
    program = "def f(): return [hash('a'), list({'a', 'b', 'c', 'd', 'e'})]"
    first, again, other = (sandbox.run(program, "f", ["f()"], QUICK, seed).answers[0] for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_limits_are_those_of_the_call(sandbox: LocalSandbox) -> None:
    program = "def f(n): return len(bytearray(n << 20))"
    small = sandbox.run(program, "f", ["f(300)"], replace(QUICK, memory_mb=128, time_s=15.0))
    large = sandbox.run(program, "f", ["f(300)"], replace(QUICK, memory_mb=700, time_s=15.0))
    assert (kinds(small), kinds(large)) == (["memory"], ["value"])
    program = "def f(n): print('x' * (n << 10)); return n"
    assert kinds(sandbox.run(program, "f", ["f(10)", "f(900)", "f(10)"], replace(QUICK, output_kb=512))) == [
        "value", "output_limit", "value",
    ]  # fmt: skip


@pytest.mark.parametrize("output_kb", [1, 64, 100, 4096])
def test_output_up_to_its_limit_is_no_fault(sandbox: LocalSandbox, output_kb: int) -> None:
    program = "import os\ndef f(n):\n    print('x' * (n - 1), flush=True)\n    return n"
    calls = ["f(1)", f"f({output_kb * 1024 - 1})", f"f({output_kb * 1024 + 1})", "f(2)"]
    run = sandbox.run(program, "f", calls, replace(QUICK, time_s=10, output_kb=output_kb))
    assert kinds(run) == ["value", "value", "output_limit", "value"]


def test_from_many_threads_every_program_gets_its_own_answers(sandbox: LocalSandbox) -> None:
    def one(n: int) -> list[object]:
        run = sandbox.run(f"def f(x): return x * {n}", "f", ["f(1)", "f(2)"], Limits(time_s=20))
        return [answer.value.data if answer.value else answer for answer in run.answers]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(60))) == [[n, 2 * n] for n in range(60)]


def test_a_worker_killed_at_work_is_replaced_and_the_job_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []

    def watched(*rest: object) -> None:
        if not killed:  # the program's process is there
            killed.extend(box.pids())
            os.kill(killed[0], signal.SIGKILL)
        follow(*rest)

    monkeypatch.setattr("codea1_cli.sandbox.local.worker.follow", watched)
    with LocalSandbox(1) as box:
        run = box.run("import time\ndef f():\n    time.sleep(0.2)\n    return 1", "f", ["f()"], Limits(time_s=20))
        assert kinds(run) == ["value"]
        assert len(killed) == 1
        assert box.pids() == []


def test_when_workers_keep_dying_the_program_is_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise WorkerLost("the zygote is gone")

    with LocalSandbox(1) as box:
        monkeypatch.setattr(Worker, "watch", lost)
        run = box.run("def f(): return 1", "f", ["f()", "f()"], QUICK)
        assert run.loaded is None
        assert kinds(run) == ["unscored", "unscored"]
        assert "gone" in run.answers[0].detail
        monkeypatch.undo()
        assert kinds(box.run("def f(): return 1", "f", ["f()"], QUICK)) == ["value"]


FORKS = {  # how many processes there are before it: the zygote, the first, one for a call
    "a fork of ours for a call": ("seen = []\ndef f():\n    seen.append(1)\n    return 1", 2, "crashed"),
    "a thread of the program's": (
        "import threading\ndef f():\n    threading.Thread().start()\n    return 1",
        3,
        "raised",
    ),
    "a process of the program's": ("import os\nif os.fork() == 0: os._exit(0)\ndef f(): return 1", 2, "load_error"),
}


@pytest.mark.parametrize("name", FORKS)
def test_a_process_that_is_refused_for_want_of_room_is_no_verdict(name: str) -> None:
    program, before, own = FORKS[name]
    with LocalSandbox(1) as box:
        if box.layers["user_namespace"]:
            pytest.skip("needs a user namespace, whose processes alone are counted")
        assert kinds(box.run(program, "f", ["f()"], QUICK)) == ["value"]
        assert kinds(box.run(program, "f", ["f()"], replace(QUICK, processes=before))) == [own]  # its own limit
        start = box._start

        def crowded(seed: int) -> Worker:
            worker = start(seed)
            resource.prlimit(worker.process.pid, resource.RLIMIT_NPROC, (before, before))
            return worker

        box._start = crowded  # type: ignore[method-assign]
        os.kill(box._all.copy().pop().process.pid, signal.SIGKILL)
        run = box.run(program, "f", ["f()"], QUICK)
        assert kinds(run) == ["unscored"]
        assert "no room" in run.load_detail


def test_a_process_that_the_machine_s_want_of_memory_ends_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter([0, 1, 1, 2, 2, 2])
    monkeypatch.setattr("codea1_cli.sandbox.local.worker.oom_kills", lambda: next(kills))
    killed = "import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGKILL)"
    with LocalSandbox(1, without=["memory_cgroup"]) as box:
        run = box.run(killed, "f", ["f()"], QUICK)
        assert "memory" in run.load_detail
        assert kinds(run) == ["unscored"]
        assert kinds(box.run(killed, "f", ["f()"], QUICK)) == ["crashed"]


def test_no_descriptor_of_ours_is_no_verdict(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left)
    run = sandbox.run("def f(): return 1", "f", ["f()"], QUICK)
    assert (run.loaded, kinds(run)) == (None, ["unscored"])


def test_the_thread_that_started_a_worker_may_end() -> None:
    with LocalSandbox(2) as box:
        for _ in range(3):
            found: list[ProgramRun] = []
            thread = threading.Thread(target=lambda: found.append(box.run("def f(): return 1", "f", ["f()"], QUICK, 1)))  # noqa: B023
            thread.start()
            thread.join()
            time.sleep(0.05)
            assert kinds(found[0]) == ["value"]


def test_close_ends_every_process() -> None:
    box = LocalSandbox(2)
    box.run("def f(): return 1", "f", ["f()"], QUICK, 1)
    workers = [box._take(0), box._take(1)]
    pids = [worker.process.pid for worker in workers]
    for seed, worker in enumerate(workers):
        box._places[seed].give(worker)
    box.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_nothing_of_a_job_reaches_the_zygote(sandbox: LocalSandbox) -> None:
    secret = os.urandom(12).hex().encode()
    for _ in range(3):
        sandbox.run(f"def f(): return '{secret.decode()}'", "f", [f"f() + '{secret.decode()}'"], QUICK)
    worker = sandbox._take(0)
    try:
        assert secret not in memory_of(worker.process.pid)
    finally:
        sandbox._working.discard(worker)
        sandbox._places[0].give(worker)


def memory_of(pid: int) -> bytes:
    """All writable memory of a process."""
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            parts = []
            for line in maps:
                area, rights = line.split()[:2]
                if rights.startswith("rw"):
                    start, end = (int(text, 16) for text in area.split("-"))
                    memory.seek(start)
                    try:
                        parts.append(memory.read(end - start))
                    except OSError:
                        continue
            return b"".join(parts)
    except PermissionError:
        pytest.skip("needs the right to read another process's memory")


def test_answers_say_what_a_person_wants_to_know(sandbox: LocalSandbox) -> None:
    run = sandbox.run("def f(x):\n    if x: raise KeyError(x)\n    return {1: 'a'}", "f", ["f(0)", "f(1)"], QUICK)
    assert run.answers[0].text == "{1: 'a'}"
    assert run.answers[1].detail == "KeyError: 1"
    assert run.answers[1].kind is AnswerKind.RAISED


def test_a_closed_sandbox_answers_unscored_at_once():
    sandbox = LocalSandbox(1)
    sandbox.close()
    run = sandbox.run("def f(): return 1", "f", ["f()"], Limits())
    assert run.loaded is None
    assert run.answers[0].kind is AnswerKind.UNSCORED
    assert "closed" in run.load_detail


@pytest.mark.parametrize("threads", [False, True])
def test_a_module_that_starts_a_thread_when_it_is_imported_is_left_to_the_programs(threads: bool) -> None:
    """The kernel makes no user namespace for several threads. pyarrow's allocator starts one, and pandas imports it,
    unless it is told not to."""
    program = "import sys\nbefore = set(sys.modules)\nimport pyarrow\ndef f(): return [n in before for n in ('pyarrow', 'numpy')]"
    around = SandboxEnvironment(env={"JE_ARROW_MALLOC_CONF": "background_thread:true"} if threads else {})
    with LocalSandbox(1, warm=("numpy", "pyarrow"), environment=around) as box:
        run = box.run(program, "f", ["f()"], replace(QUICK, time_s=20.0))
        assert run.answers[0].value is not None, run
        assert run.answers[0].value.data == [not threads, True]
