"""One interrupt, however many signals it comes as, is a request; the next one is an order."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from codea1_cli.engine import shutdown as module
from codea1_cli.engine.shutdown import interrupts, stop_note, stoppable


@pytest.fixture(autouse=True)
def never_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process that nobody has interrupted, and that does not end ten seconds later."""
    monkeypatch.setattr(module, "_since", None)
    monkeypatch.setattr(module, "_end_later", lambda: None)
    monkeypatch.setattr(module, "_give_up_unread", lambda: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_come_together_are_one_interrupt(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    calls: list[str] = []
    before = signal.getsignal(number)
    with interrupts(lambda: calls.append("first"), lambda: calls.append("again")):
        os.kill(os.getpid(), number)
        now += 0.2
        os.kill(os.getpid(), number)
        assert calls == ["first"]
        now += 1.0
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == ["first", "again"]
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cleaning_up_is_not_disturbed_by_the_same_interrupt(number: signal.Signals) -> None:
    cleaned = False

    def interrupted_twice() -> None:
        nonlocal cleaned
        with stoppable():
            try:
                os.kill(os.getpid(), number)
            finally:
                os.kill(os.getpid(), number)
                cleaned = True

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert cleaned


def test_the_first_interrupt_says_what_a_second_one_loses() -> None:
    assert "back to step 40" in stop_note(40)
    assert "nothing is saved yet" in stop_note(0)
    assert "this run saves nothing" in stop_note(0, saves=False)


# -- the command, from its first line to its end -----------------------------------------------------------------------
PROGRAM = """
import os, signal, sys, time
import codea1_cli.cli as cli
from codea1_cli import __main__
from codea1_cli.engine import shutdown

shutdown.GRACE_S = 0.3 if sys.argv[2] in ("swallowed", "importing") else 60.0  # these end only so
number = getattr(signal, sys.argv[1])

def interrupt():
    os.kill(os.getpid(), number)

def plain():
    try:
        interrupt()
    finally:
        print("cleaned up")

def swallowed():
    while True:
        try:
            interrupt()
            time.sleep(60)
        except KeyboardInterrupt:
            pass

def importing():
    import amid_an_import

def at_the_end():
    import atexit
    atexit.register(interrupt)
    print("all done", end="")
    sys.exit(0)

def done():
    print("all done", end="")
    sys.exit(4)

cli.main = globals()[sys.argv[2]]
__main__.main()
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("what", "code", "out"),
    [
        ("plain", 130, "cleaned up\n"),
        ("swallowed", 130, ""),
        ("importing", 130, ""),
        ("at_the_end", 0, "all done"),
        ("done", 4, "all done"),
    ],
)
def test_the_command_ends_with_the_documented_code(tmp_path, number: str, what: str, code: int, out: str) -> None:
    (tmp_path / "amid_an_import.py").write_text(
        "import __main__\ntry:\n    __main__.interrupt()\nexcept BaseException:\n    __main__.time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, number, what],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout) == (code, out)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("interrupted") == (what not in ("done", "at_the_end"))


def test_nothing_is_read_from_a_disk_before_an_interrupt_has_its_handler() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\nbefore = set(sys.modules)\nimport codea1_cli.__main__\nprint(*set(sys.modules) - before)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) <= {"codea1_cli", "codea1_cli.__main__", "_signal"}


UNREAD = """
import sys
from pathlib import Path
from codea1_cli.cli import streams
from codea1_cli.engine import shutdown

shutdown.UNREAD_S = 0.2
streams.prepare()
asked = []

def ask():
    asked.append(True)
    sys.stderr.write("finishing the step")
    sys.stderr.flush()

at_once = sys.argv[1] == "at once"
with shutdown.stoppable(lambda: "x" * 99_999) if at_once else shutdown.interrupts(ask, shutdown.end_at_once):
    try:
        Path(sys.argv[2]).touch()
        while not asked:
            sys.stderr.write("a step, another step" * 5)
            sys.stderr.flush()
        sys.stderr.write("saved" * 9_999)
        sys.stderr.flush()
    except KeyboardInterrupt:
        pass
sys.exit(130)
"""


def sleeps(pid: int) -> bool:
    """Whether a process waits in one call: a signal in the moment before a call waits for its end, as Python has it."""
    looks = []
    for _ in range(2):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        looks.append([line for line in lines if line.startswith("State:") or "_ctxt_switches" in line])
        time.sleep(0.1)
    return looks[0] == looks[1] and "S (sleeping)" in looks[0][0]


@pytest.mark.parametrize("how", ["at once", "after the step"])
def test_a_terminal_that_nobody_reads_does_not_hold_up_the_end(tmp_path, how: str) -> None:
    ours, theirs = os.openpty()
    words = [sys.executable, "-c", UNREAD, how, str(tmp_path / "begun")]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        while process.poll() is None and not ((tmp_path / "begun").exists() and sleeps(process.pid)):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(240) == 130
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
