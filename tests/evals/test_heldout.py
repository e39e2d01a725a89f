"""What the sandbox could not judge is left out of a figure, never counted against a policy."""

import pytest

from codea1_cli.evals.heldout import solve_figures


def row(*passed, unscored=0):
    return {"passed": passed, "unscored": unscored}


def test_unscored_solutions_are_counted_and_left_out():
    figures = solve_figures([row(True, False, False, False, unscored=2), row(True, True, True, True)])
    assert figures["pass@1"] == pytest.approx((1 / 2 + 1) / 2)
    assert figures["pass@4"] == 1.0, "two scored solutions say nothing about four"
    assert figures["unscored"] == 2


@pytest.mark.parametrize("rows", [[], [row(False, False, unscored=2)]])
def test_a_figure_over_nothing_is_none(rows):
    assert solve_figures(rows)["pass@1"] is None
