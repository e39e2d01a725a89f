"""The messages between runner, keeper and parent (`local.unit`). Standard library only."""

from __future__ import annotations

import os

LOADED, VALUE, RAISED, MEMORY, REFUSED, CRASHED, LOAD_ERROR, DONE = b"LVRMXCED"
UNSIGNED = bytes(16)  # the key of what is said before the tests are there
_read, _write = os.read, os.write


def send(out: int, data: bytes) -> None:
    """Writes all of it."""
    sent = 0
    while sent < len(data):
        sent += _write(out, data[sent : sent + 65536])


def frame(kind: int, index: int, payload: bytes) -> bytes:
    """One message: its length, what it is, which test it is about, what there is to say."""
    return b"%b%b%b%b" % (
        (len(payload) + 5).to_bytes(4, "little"), kind.to_bytes(1, "little"), index.to_bytes(4, "little"), payload
    )  # fmt: skip


def take(source: int, size: int) -> bytes:
    """Reads as many bytes; empty when the other side is gone."""
    data = b""
    while len(data) < size:
        more = _read(source, min(size - len(data), 65536))
        if not more:
            return b""
        data += more
    return data
