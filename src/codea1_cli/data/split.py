"""Which split a problem belongs to: decided by its id and the seed alone, so that added rows move no other row."""

from __future__ import annotations

import hashlib


def split_of(id: str, seed: int, val: float, test: float = 0.0) -> str:
    """`train`, `val` or `test`, of which the latter two hold the given shares of all ids."""
    digest = hashlib.sha256(f"{seed}\0{id}".encode("utf-8", "surrogatepass")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    if place < val:
        return "val"
    return "test" if place < val + test else "train"
