"""The Mistake Book of one problem: the tests that candidates fail, each with how often."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Entries = tuple[tuple[str, int], ...]
"""(test, count), in the order of the book."""


@dataclass(frozen=True)
class BookEvent:
    """One change of one test's count, +1 or -1, and the candidate that caused it."""

    problem_id: str
    test: str
    change: int
    candidate_index: int


@dataclass(frozen=True)
class Book:
    """An ordered list of (test, count); values are immutable, an update gives a new book.

    A run's book is the fold of its events, step by step. The published code sorts at every visit; here sorting is part
    of a step that changes something, so that the events alone give the same book, order included. Replays agree: a
    stable sort put off until the next visit gives the same order.
    """

    entries: Entries = field(default=())

    def replay(self, count: int) -> tuple[str, ...]:
        """The `count` most frequent tests; ties keep the book's order."""
        return tuple(test for test, _ in self._sorted()[:count])

    def update(
        self, problem_id: str, passed: Sequence[Sequence[str]], failed: Sequence[Sequence[str]]
    ) -> tuple["Book", tuple[BookEvent, ...]]:
        """The book after a step and the events that lead there.

        `passed`: per candidate, the replayed tests it passes; each loses 1 and is gone at 0. `failed`: per candidate,
        the new tests it fails, a test of two suites twice; each gains 1 after all losses, new ones at the end.
        """
        counts = dict(self.entries)
        events = []
        for candidate, tests in enumerate(passed):
            for test in tests:
                if counts.get(test, 0) > 0:
                    counts[test] -= 1
                    events.append(BookEvent(problem_id, test, -1, candidate))
        events += [BookEvent(problem_id, test, +1, c) for c, tests in enumerate(failed) for test in tests]
        return self.apply(events), tuple(events)

    def apply(self, events: Sequence[BookEvent]) -> "Book":
        """The book after one step's events."""
        if not events:
            return self
        counts = dict(self._sorted())
        for event in events:
            counts[event.test] = counts.get(event.test, 0) + event.change
            if counts[event.test] <= 0:
                del counts[event.test]
        return Book(tuple(counts.items()))

    @staticmethod
    def fold(steps: Iterable[Sequence[BookEvent]]) -> "Book":
        """The book that one problem's events lead to; one sequence per step, in order."""
        book = Book()
        for events in steps:
            book = book.apply(events)
        return book

    def _sorted(self) -> list[tuple[str, int]]:
        return sorted(self.entries, key=lambda entry: -entry[1])
