from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from codea1_cli.game.mistake_book import Book, BookEvent

A, B, C = "assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3"
tests = st.sampled_from([f"assert f({n}) == {n}" for n in range(12)])
per_candidate = st.lists(st.lists(tests, max_size=6), min_size=1, max_size=4)


def test_the_most_frequent_are_replayed_and_ties_keep_their_order() -> None:
    book = Book(((A, 1), (B, 3), (C, 1)))
    assert book.replay(8) == (B, A, C)
    assert book.replay(2) == (B, A)
    assert book.replay(0) == ()


def test_a_pass_loses_one_and_nothing_goes_below_zero() -> None:
    book, events = Book(((A, 1), (B, 2))).update("p", [[A, B], [A], [A]], [[], [], []])
    assert book.entries == ((B, 1),)
    assert events == (BookEvent("p", A, -1, 0), BookEvent("p", B, -1, 0))


def test_losses_come_before_gains() -> None:
    book, events = Book(((A, 1), (B, 1))).update("p", [[], [A]], [[A], []])
    assert book.entries == ((B, 1), (A, 1))  # gone, then new: at the end
    assert [(e.change, e.candidate_index) for e in events] == [(-1, 1), (1, 0)]


def test_each_failing_suite_counts() -> None:
    book, _ = Book().update("p", [[], []], [[A, A], [B, A]])
    assert book.entries == ((A, 3), (B, 1))


def test_a_step_that_changes_nothing_leaves_the_book_as_it_is() -> None:
    book = Book(((A, 1), (B, 3)))
    assert book.update("p", [[]], [[]]) == (book, ())


@given(st.lists(st.tuples(per_candidate, per_candidate), max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_book_is_the_fold_of_its_events(steps: list[tuple[list[list[str]], list[list[str]]]]) -> None:
    book, history = Book(), []
    for passed, failed in steps:
        replayed = set(book.replay(8))
        before = Counter(dict(book.entries))
        passed = [[test for test in dict.fromkeys(candidate) if test in replayed] for candidate in passed]
        book, events = book.update("p", passed, failed)
        history.append(events)
        assert Book.fold(history) == book
        counts = dict(book.entries)
        assert all(count > 0 for count in counts.values())
        losses = Counter(test for candidate in passed for test in candidate)
        gains = Counter(test for candidate in failed for test in candidate)
        assert counts == {
            test: total
            for test in {*before, *gains}
            if (total := before[test] - min(before[test], losses[test]) + gains[test]) > 0
        }


@given(st.lists(st.tuples(tests, st.integers(1, 5)), unique_by=lambda entry: entry[0], max_size=12), st.integers(0, 12))
def test_a_replay_is_the_head_of_a_stable_sort(entries: list[tuple[str, int]], count: int) -> None:
    replayed = Book(tuple(entries)).replay(count)
    assert len(replayed) == min(count, len(entries))
    place = {test: index for index, (test, _) in enumerate(entries)}
    counts = dict(entries)
    keys = [(-counts[test], place[test]) for test in replayed]
    assert keys == sorted(keys)
    left_out = [(-n, place[test]) for test, n in entries if test not in replayed]
    assert not keys or not left_out or keys[-1] < min(left_out)
