"""Reading a child's frames: nothing in them is trusted, and whatever breaks the order ends the program's run."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

MAX_PAYLOAD = 8 << 20
MAX_TOTAL = 64 << 20


class Kind(IntEnum):
    """The first byte of a frame (`local.child` has the same letters)."""

    LOADED = ord("L")
    VALUE = ord("V")
    RAISED = ord("R")
    MEMORY = ord("M")
    OUTPUT = ord("O")
    REFUSED = ord("X")
    CRASHED = ord("C")
    LOAD_ERROR = ord("E")
    DONE = ord("D")
    AGAIN = ord("A")


class Frame(NamedTuple):
    kind: Kind
    call: int
    payload: bytes


class Garbage(Exception):
    """Bytes that are no frame, or a frame out of its turn."""


class FrameReader:
    """Splits a byte stream into frames and holds them to their order: a load result, then one answer a call, DONE.

    AGAIN stands for DONE after at least one answer: the program wants to be loaded afresh for the rest.
    """

    def __init__(self, start: int, calls: int) -> None:
        self._buffer = bytearray()
        self._total = 0
        self._next = self._start = start
        self._calls = calls
        self.loaded = False
        self.load_failure: Frame | None = None
        self.done = False
        self.again = False

    def feed(self, data: bytes) -> list[Frame]:
        """The answers that `data` completes. Raises Garbage."""
        self._buffer += data
        self._total += len(data)
        if self._total > MAX_TOTAL:
            raise Garbage("too much of it")
        answers = []
        while len(self._buffer) >= 4:
            length = int.from_bytes(self._buffer[:4], "little")
            if not 5 <= length <= MAX_PAYLOAD:
                raise Garbage(f"a frame of {length} bytes")
            if len(self._buffer) < 4 + length:
                break
            body = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            try:
                frame = Frame(Kind(body[0]), int.from_bytes(body[1:5], "little"), body[5:])
            except ValueError:
                raise Garbage("a frame of unknown kind") from None
            if self._place(frame):
                answers.append(frame)
        return answers

    def _place(self, frame: Frame) -> bool:
        """Whether the frame answers a call; Garbage when it is not its turn."""
        if self.done or self.load_failure is not None or frame.call != self._next:
            raise Garbage("a frame out of its turn")
        if not self.loaded:
            if frame.kind is Kind.LOADED:
                self.loaded = True
            elif frame.kind in (Kind.LOAD_ERROR, Kind.MEMORY, Kind.OUTPUT):
                self.load_failure = frame
            else:
                raise Garbage("an answer before the program was loaded")
            return False
        if frame.kind is Kind.DONE and frame.call == self._calls:
            self.done = True
            return False
        if frame.kind is Kind.AGAIN and self._next > self._start and frame.call < self._calls:
            self.done = self.again = True
            return False
        if frame.kind in (Kind.LOADED, Kind.LOAD_ERROR, Kind.DONE, Kind.AGAIN) or frame.call >= self._calls:
            raise Garbage("a frame out of its turn")
        self._next += 1
        return True

    @property
    def next_index(self) -> int:
        """The call whose answer is awaited."""
        return self._next
