"""Places for programs: as many as there are workers, and more while these are held for long and processors idle."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codea1_cli.environment import cores
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox, cgroup, worker
from codea1_cli.sandbox.local.worker import Places, WorkerLost, take_leave
from codea1_cli.sandbox.verdicts import AnswerKind


class Zygote:
    """In a worker's place."""

    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def processors(monkeypatch, tmp_path):
    """Sets how many processors there are, and how many have nothing to do."""

    def there(count: int, idle: float) -> None:
        monkeypatch.setattr(worker, "cores", lambda: count)
        monkeypatch.setattr(worker, "idle_seconds", lambda: idle * time.monotonic())

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return there


@pytest.mark.parametrize("idle", [0.0, 4.0])
def test_a_place_is_lent_while_processors_idle_and_taken_back(processors, idle):
    processors(8, idle)
    sleeps, quick = "import time\ndef f():\n    time.sleep(2)\n", "def f():\n    return 1\n"
    with LocalSandbox(1) as box, ThreadPoolExecutor(3) as threads:
        late = threads.submit(box.run, sleeps, "f", ["f()"], Limits(time_s=9.0))
        time.sleep(0.2)
        first = [threads.submit(box.run, quick, "f", ["f()"], Limits()) for _ in range(2)]
        assert [one.result().answers[0].kind for one in first] == [AnswerKind.VALUE] * 2
        assert late.done() is (idle == 0)
        assert late.result().answers[0].kind is AnswerKind.VALUE
        places = box._places[0]
        assert len(places._free) == 1, "as many places as before"
        assert bool(places._spare) is (idle > 0), "a zygote is kept"
        assert not places._lent
        zygotes = [one.process for one in box._all]
    assert all(process.poll() is not None for process in zygotes)


def test_all_processes_together_are_lent_places_for_half_of_the_processors(processors):
    processors(4, 4.0)
    both = [Places(1, 9), Places(1, 9)]  # as if of two processes
    for places in both:
        places.take()
    held = threading.Semaphore(0)
    with ThreadPoolExecutor(6) as threads:
        waiting = [threads.submit(lambda p=places: (p.take(), held.acquire(), p.give(None))) for places in both * 3]
        deadline = time.monotonic() + 10
        while sum(len(places._lent) for places in both) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
        assert sum(len(places._lent) for places in both) == 2
        assert take_leave(2) is None
        held.release(6)
        for places in both:
            places.give(None)
        for one in waiting:
            one.result()
    assert [(len(places._free), places._lent) for places in both] == [(1, {})] * 2


def test_a_lent_place_is_used_again_while_somebody_waits(processors):
    processors(8, 8.0)
    places, lent = Places(2, 6), []
    places.take(), places.take()  # held for ever
    take = places.take

    def program(_):
        zygote = take() or Zygote()
        lent.append(len(places._lent))
        time.sleep(0.005)
        places.give(zygote)

    began = time.monotonic()
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(program, range(60)))
    assert max(lent) <= 4
    assert time.monotonic() - began < 6, "sixty waits for a place that is lent"
    assert not places._lent
    assert len(places._spare) <= 4


def test_no_place_is_lost_or_doubled_whatever_the_order(processors):
    processors(16, 16.0)
    places, running, most, guard = Places(3, 9), 0, [], threading.Lock()

    def program(number):
        nonlocal running
        zygote = places.take()
        with guard:
            running += 1
            most.append(running)
        time.sleep(0.3 if number % 7 == 0 else 0.001)
        with guard:
            running -= 1
        places.give(None if number % 5 == 0 else zygote or Zygote())

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(program, range(120)))
    assert 3 < max(most) <= 9
    assert len(places._free) == 3
    assert not places._lent


def test_what_is_closed_ends_every_zygote_and_lets_nobody_wait(processors):
    processors(2, 0.0)
    places = Places(2, 6)
    one, other, last = Zygote(), Zygote(), Zygote()
    assert places.take() is places.take() is None
    places.give(one)
    assert places.take() is one
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(places.take)
        time.sleep(0.05)
        places._spare.append(last)
        places.close()
        with pytest.raises(WorkerLost):
            waiting.result()
    places.give(one)
    places.give(other)
    assert [zygote.closed for zygote in (one, other, last)] == [True] * 3
    with pytest.raises(WorkerLost):
        places.take()


def test_close_ends_all_idle_zygotes_of_a_seed():
    box = LocalSandbox(2)
    taken = [box._take(0), box._take(0)]
    for one in taken:
        box._places[0].give(one)
    box.close()
    assert all(one.process.poll() is not None for one in taken)


def test_idle_seconds_grow_by_what_no_program_uses():
    before, began = cgroup.idle_seconds(), time.monotonic()
    time.sleep(0.1)
    assert 0 <= cgroup.idle_seconds() - before <= (time.monotonic() - began + 0.05) * cores()


@pytest.mark.parametrize(
    ("own", "file", "text", "bounded"),
    [
        ({"cpu": "cpu/a/b"}, "cpu/a/cpu.cfs_quota_us", "20000", True),
        ({"cpu": "cpu/a/b"}, "cpu/a/cpu.cfs_quota_us", "-1", False),
        ({"": "a/b"}, "a/cpu.max", "20000 100000", True),
        ({"": "a/b"}, "a/cpu.max", "max 100000", False),
        ({"": "a/b"}, "cpu.max", "50000 100000", True),
        ({}, "memory.max", "5", False),
    ],
)
def test_under_a_quota_nothing_counts_as_idle(monkeypatch, tmp_path: Path, own, file, text, bounded):
    place = tmp_path / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text + "\n")
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "_own_folders", lambda: {name: tmp_path / folder for name, folder in own.items()})
    cgroup._has_quota.cache_clear()
    try:
        assert cgroup._has_quota() is bounded
        assert (cgroup.idle_seconds() == 0.0) is bounded
    finally:
        cgroup._has_quota.cache_clear()
