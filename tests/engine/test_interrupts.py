"""One interrupt, however many signals it comes as, is a request; the next one is an order."""

import os
import signal

import pytest

from codea1_cli.engine import interrupts as module
from codea1_cli.engine.interrupts import interrupts, stop_note, stoppable


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
