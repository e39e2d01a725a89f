"""A child's frames: in order they are answers, in any other way they are garbage."""

import contextlib
import os
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.sandbox.local.child_monitor import FrameReader, Garbage, Kind, waited


def frame(kind: Kind, call: int, payload: bytes = b"") -> bytes:
    return (len(payload) + 5).to_bytes(4, "little") + bytes([kind]) + call.to_bytes(4, "little") + payload


BEGUN = frame(Kind.BEGUN, 0)
WHOLE = BEGUN + frame(Kind.LOADED, 0) + b"".join(frame(Kind.VALUE, n, b"1") for n in range(3)) + frame(Kind.DONE, 3)


@given(st.lists(st.integers(1, 40)))
def test_pieces_of_any_size_make_the_same_frames(sizes: list[int]) -> None:
    reader, rest, answers = FrameReader(0, 3), WHOLE, []
    for size in [*sizes, len(WHOLE)]:
        answers += reader.feed(rest[:size])
        rest = rest[size:]
    assert [(a.call, a.payload) for a in answers] == [(n, b"1") for n in range(3)]
    assert reader.loaded
    assert reader.done


@given(st.binary(max_size=200))
def test_wild_bytes_never_answer_before_the_program_is_loaded(data: bytes) -> None:
    with contextlib.suppress(Garbage):
        assert FrameReader(0, 3).feed(data) == []
    with contextlib.suppress(Garbage):
        assert FrameReader(0, 3).feed(BEGUN + data) == []


def test_nothing_counts_before_the_program_began() -> None:
    for kind in set(Kind) - {Kind.BEGUN}:
        with pytest.raises(Garbage):
            FrameReader(0, 3).feed(frame(kind, 0))


@given(st.lists(st.tuples(st.sampled_from(list(Kind)), st.integers(0, 4)), max_size=8))
def test_answers_come_once_each_and_in_order(frames: list[tuple[Kind, int]]) -> None:
    reader, answers = FrameReader(1, 4), []
    reader.feed(frame(Kind.BEGUN, 1))
    with contextlib.suppress(Garbage):
        for kind, call in frames:
            answers += reader.feed(frame(kind, call, b"1"))
    assert [a.call for a in answers] == list(range(1, 1 + len(answers)))
    assert len(answers) <= 3
    assert not reader.done or reader.again or len(answers) == 3


def burn() -> None:
    while True:
        pass


def fork(work) -> int:
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def test_a_fork_that_answers_in_place_of_its_parent_has_its_waiting_given_back() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # all of them on one
    rival, parent = fork(burn), 0
    try:
        parent = fork(lambda: [os.setpgid(0, 0), os.waitpid(fork(burn), 0)])
        deadline = time.monotonic() + 200
        while waited(parent) < 0.05 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert waited(parent) >= 0.05
    finally:
        os.sched_setaffinity(0, cores)
        os.kill(rival, signal.SIGKILL)
        os.killpg(parent, signal.SIGKILL)
        os.waitpid(rival, 0)
        os.waitpid(parent, 0)
