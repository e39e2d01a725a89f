"""Several programs at once, their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


def in_order(function: Callable[[A], B], items: Iterable[A], workers: int) -> Generator[tuple[A, B], None, None]:
    """(item, function(item)) in the order of `items`, `workers` at a time; at most 4 items per worker are held at once.

    One worker is this thread itself. An exception of `function` comes out in its item's place. Closing the generator
    waits for the calls that have begun and drops the others.
    """
    if workers == 1:
        for item in items:
            yield item, function(item)
        return
    pending: deque[tuple[A, Future[Any]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="judge") as pool:
        try:
            for item in items:
                pending.append((item, pool.submit(function, item)))
                while len(pending) >= 4 * workers or (pending and pending[0][1].done()):
                    first, future = pending.popleft()
                    yield first, future.result()
            while pending:
                first, future = pending.popleft()
                yield first, future.result()
        finally:
            for _, future in pending:
                future.cancel()
