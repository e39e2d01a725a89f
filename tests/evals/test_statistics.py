import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.evals.statistics import bootstrap, mean, paired_bootstrap, pass_at_k, share_interval


@pytest.mark.parametrize("n", range(1, 8))
def test_it_is_the_share_of_subsets_with_a_pass(n: int) -> None:
    for c in range(n + 1):
        samples = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(itertools.combinations(samples, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_it_is_a_probability_that_grows_with_k(sizes: tuple[int, int, int]) -> None:
    n, c, k = sizes
    value = pass_at_k(n, c, k)
    assert 0 <= value <= 1
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)
    assert k == 1 or value >= pass_at_k(n, c, k - 1)
    assert (value == 0) == (c == 0)
    assert value == pytest.approx(1 - math.prod((n - c - i) / (n - i) for i in range(k)), abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 1, 6), (5, 1, 0), (0, 0, 1)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass"):
        pass_at_k(n, c, k)


def test_the_mean_is_over_problems() -> None:
    assert mean([pass_at_k(2, 2, 1), pass_at_k(2, 0, 1), pass_at_k(4, 2, 1)]) == pytest.approx(0.5)
    assert mean([pass_at_k(2, 1, 2)]) == 1.0
    with pytest.raises(ValueError, match="no problem"):
        mean([])


def test_an_interval_covers_its_mean_and_repeats() -> None:
    scores = [0.0] * 60 + [1.0] * 40
    first = bootstrap(scores, seed=3)
    assert first == bootstrap(scores, seed=3)
    assert first.mean == pytest.approx(0.4)
    spread = 1.96 * math.sqrt(0.4 * 0.6 / 100)
    assert (first.low, first.high) == (pytest.approx(0.4 - spread, abs=0.02), pytest.approx(0.4 + spread, abs=0.02))
    assert bootstrap(scores, level=0.5).high < first.high


def test_pairing_keeps_what_two_results_share() -> None:
    before = [i / 500 for i in range(500)]
    after = [score + 0.01 for score in before]
    gain = paired_bootstrap(before, after)
    assert gain.mean == pytest.approx(0.01)
    assert gain.excludes_zero
    assert gain.high - gain.low < 1e-9
    assert not paired_bootstrap(before, before).excludes_zero
    assert paired_bootstrap(after, before).mean == pytest.approx(-0.01)


def test_results_of_other_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="not the same problems"):
        paired_bootstrap([0.0], [0.0, 1.0])


def test_one_problem_has_an_interval_of_no_width() -> None:
    interval = bootstrap([0.5])
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(("passed", "of", "low", "high"), [(0, 5, 0.0, 0.522), (5, 5, 0.478, 1.0), (0, 1, 0.0, 0.975)])
def test_a_few_problems_that_agree_prove_little(passed: int, of: int, low: float, high: float) -> None:
    interval = share_interval([1.0] * passed + [0.0] * (of - passed))  # the values are scipy's and R's
    assert (interval.mean, interval.low, interval.high) == pytest.approx((passed / of, low, high), abs=5e-4)


def test_shares_that_differ_are_resampled() -> None:
    assert share_interval([0.0, 1.0, 1.0, 0.0]) == bootstrap([0.0, 1.0, 1.0, 0.0])
