"""Results come in the order of their items, whatever the order they are ready in."""

import time

import pytest

from codea1_cli.sandbox.base import in_order


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
