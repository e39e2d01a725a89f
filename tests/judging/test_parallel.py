"""Results come in the order of their items, whatever the order they are ready in, or as they are ready."""

import threading
import time

import pytest

from codea1_cli.sandbox.base import as_ended, in_order


def test_results_come_in_order_and_errors_too():
    assert list(in_order(lambda x: x * x, range(100), 4)) == [(x, x * x) for x in range(100)]
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda x: 1 // (50 - x), range(100), 4))


def test_closing_drops_what_has_not_begun():
    done = []
    results = in_order(lambda x: (time.sleep(0.01), done.append(x)), range(1000), 2)
    assert next(results)[0] == 0
    results.close()
    assert len(done) < 100


def test_one_that_takes_long_holds_up_no_other():
    late = threading.Event()
    results = as_ended(lambda x: late.wait(10) if x == 0 else x, range(100), 2)
    quick = [next(results) for _ in range(99)]
    assert sorted(quick) == [(x, x) for x in range(1, 100)]
    late.set()
    assert list(results) == [(0, True)]
    with pytest.raises(ZeroDivisionError):
        list(as_ended(lambda x: 1 // (50 - x), range(100), 4))


def test_no_more_items_are_asked_for_than_are_held():
    asked, late = [], threading.Event()
    results = as_ended(lambda x: late.wait(10), (asked.append(x) or x for x in range(100)), 2)
    threading.Timer(0.1, late.set).start()
    next(results)
    assert len(asked) == 8
    assert len(list(results)) == 99


@pytest.mark.parametrize("wait", [True, False])
def test_what_has_begun_is_waited_for_or_left_to_whoever_ends_it(wait):
    def work(item):
        if item == 0:
            return begun.wait(10)
        begun.set()
        late.wait(10)
        return done.append(item)

    begun, late, done = threading.Event(), threading.Event(), []
    results = as_ended(work, range(100), 2, wait)
    assert next(results) == (0, True)
    threading.Timer(0.1, late.set).start()
    results.close()
    assert bool(done) is wait
    assert len(done) <= 2
