"""Near-duplicates by MinHash: datasketch's signatures, cut into bands whose equal hashes give the pairs to compare.

Rows keep only their bands' hashes (a few hundred bytes each), and equal ones are found by sorting, so that hundreds of
thousands of rows fit in memory. Pairs found this way are candidates: callers compare the sets themselves.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

NUM_PERM = 128
RECALL = 0.98  # of pairs exactly at the threshold; more similar pairs are found more surely
MAX_EARLIER = 20  # earlier rows of one band that a row is compared with


def bands(threshold: float, num_perm: int = NUM_PERM, recall: float = RECALL) -> tuple[int, int]:
    """(number of bands, rows per band): the longest bands that still find a pair at `threshold` with that probability.

    Two sets of similarity s share a band with probability 1 - (1 - s**rows) ** bands (Leskovec, Rajaraman, Ullman,
    Mining of Massive Datasets, 3.4.2). There are at least two bands.
    """
    best = (num_perm, 1)
    for rows in range(1, num_perm // 2 + 1):
        count = num_perm // rows
        if 1 - (1 - threshold**rows) ** count >= recall:
            best = (count, rows)
    return best


class Signer:
    """MinHash signatures; the same sets and seed give the same ones on every machine."""

    def __init__(self, seed: int = 1) -> None:
        from datasketch import MinHash

        self._empty = MinHash(num_perm=NUM_PERM, seed=seed)

    def sign(self, elements: Iterable[str]) -> Any:
        """The `datasketch.MinHash` of a set of texts."""
        made = self._empty.copy()
        made.update_batch([element.encode("utf-8", "surrogatepass") for element in elements])
        return made


class Bands:
    """Finds candidates among rows added one by one."""

    def __init__(self, threshold: float, signer: Signer) -> None:
        import numpy as np

        self.count, self.rows = bands(threshold)
        self.signer = signer
        self._keys = array("Q")
        self._numbers = array("Q")
        odd = np.random.default_rng(0).integers(0, 2**63, size=self.rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._odd = odd

    def add(self, number: int, elements: set[str]) -> None:
        """Adds row `number`; a row without elements is like no other."""
        import numpy as np

        if not elements:
            return
        values = self.signer.sign(elements).hashvalues[: self.count * self.rows].astype(np.uint64)
        mixed = (values.reshape(self.count, self.rows) + np.uint64(1)) * self._odd
        keys = np.bitwise_xor.reduce(mixed ^ (mixed >> np.uint64(29)), axis=1) * np.uint64(0x9E3779B97F4A7C15)
        self._keys.frombytes(keys.tobytes())
        self._numbers.append(number)

    def candidates(self) -> Iterator[tuple[int, list[int]]]:
        """(row, earlier rows that it may be like), rows in order; of a band at most the first MAX_EARLIER of them."""
        import numpy as np

        keys = np.frombuffer(self._keys, dtype=np.uint64).reshape(-1, self.count)
        numbers = np.frombuffer(self._numbers, dtype=np.uint64)
        sorted_bands = []
        for band in range(self.count):
            order = np.argsort(keys[:, band], kind="stable").astype(np.uint32)
            column = keys[order, band]
            new = np.concatenate(([True], column[1:] != column[:-1])) if len(order) else np.zeros(0, bool)
            start = np.maximum.accumulate(np.where(new, np.arange(len(order), dtype=np.uint32), 0)).astype(np.uint32)
            rank = np.empty(len(order), np.uint32)
            rank[order] = np.arange(len(order), dtype=np.uint32)
            sorted_bands.append((order, start, rank))
        for place in range(len(numbers)):
            earlier: set[int] = set()
            for order, start, rank in sorted_bands:
                stop = int(rank[place])
                first = int(start[stop])
                if first < stop:
                    earlier.update(order[first : min(stop, first + MAX_EARLIER)].tolist())
            if earlier:
                yield int(numbers[place]), [int(numbers[other]) for other in sorted(earlier)]
