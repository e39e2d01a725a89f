import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.game.rewards import SuiteCounts, code_reward, nonprintable_share, suite_reward
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import population_std, select

K = 8


@st.composite
def counts(draw: st.DrawFn) -> SuiteCounts:
    fails = draw(st.lists(st.booleans(), max_size=20))
    book_total = draw(st.integers(0, 8))
    return SuiteCounts(
        valid=len(fails),
        invalid=draw(st.integers(0, 30)),
        early_fails=sum(fails[:K]),
        passes=fails.count(False),
        book_total=book_total,
        book_passes=draw(st.integers(0, book_total)),
    )


@given(counts(), st.floats(0, 1), st.booleans(), st.floats(0, 1))
def test_rewards_stay_in_their_ranges(given: SuiteCounts, alpha: float, loads: bool, penalty: float) -> None:
    found = suite_reward(Game(tests_per_suite=K, alpha=alpha), given, loads=loads, penalty=penalty)
    assert found.reward is not None
    assert 0 <= found.validity <= 1
    assert 0 <= found.adversarial <= 1
    assert -penalty - 1e-12 <= found.reward <= 1 - penalty + 1e-12
    share = code_reward(Game(), given)
    assert (share is None) == (given.valid == 0 and given.book_total == 0)
    assert share is None or 0 <= share <= 1


@given(counts(), st.integers(0, K))
def test_a_killed_test_is_worth_more_to_the_suite_and_less_to_the_candidate(given: SuiteCounts, more: int) -> None:
    killing = min(more, given.passes, max(0, min(K, given.valid) - given.early_fails))
    after = SuiteCounts(
        given.valid,
        given.invalid,
        given.early_fails + killing,
        given.passes - killing,
        given.book_total,
        given.book_passes,
    )
    rewards = [suite_reward(Game(tests_per_suite=K, alpha=0.5), c, loads=True).reward for c in (given, after)]
    assert None not in rewards
    assert rewards[1] - rewards[0] == pytest.approx((0.25 if given.book_total else 0.5) * killing / K)
    if given.valid:
        assert (code_reward(Game(), after) or 0) <= (code_reward(Game(), given) or 0)


def test_an_easy_book_lowers_what_a_kill_is_worth() -> None:
    """A candidate that fails the old tests anyway is no credit to the new ones."""
    failing, passing = (SuiteCounts(8, 0, 4, 4, book_total=8, book_passes=n) for n in (0, 8))
    assert suite_reward(Game(tests_per_suite=K, alpha=0), failing, loads=True).reward == pytest.approx(
        (0.5 - 1 + 1) / 2
    )
    assert suite_reward(Game(tests_per_suite=K, alpha=0), passing, loads=True).reward == pytest.approx(
        (0.5 - 0 + 1) / 2
    )


@pytest.mark.parametrize(
    ("reply", "share"),
    [("", 0), ("abc", 0), (string.printable, 0), ("a\té\n", 0.25), ("é" * 3, 1), ("a\0\x7fb", 0.5), ("😀a", 0.5)],
)
def test_the_penalty_is_the_share_outside_printable_ascii(reply: str, share: float) -> None:
    assert nonprintable_share(reply) == share


@given(st.text())
def test_the_penalty_counts_what_is_not_in_string_printable(reply: str) -> None:
    expected = sum(c not in string.printable for c in reply) / len(reply) if reply else 0
    assert nonprintable_share(reply) == expected


def test_the_widest_spread_is_selected_and_ties_go_to_the_lowest_index() -> None:
    rewards = [[0.1, 0.2], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]
    assert select(Game(), rewards) == [1]
    assert select(Game(update_n=3), rewards) == [1, 2, 0]
    assert select(Game(n_code=9, update_n=9), rewards) == [1, 2, 0, 3]
    assert select(Game(), [[0.5, 0.5]] * 4) == [0]


def test_the_order_of_rewards_does_not_break_a_tie() -> None:
    uneven = []
    for rewards in (
        [0.9, 0.1, 0.6, 0.1, 0.5],
        [0.4, 0.3, 0.1, 0.2, 0.8, 0.6],
    ):  # by Python 3.11's sum, and by later ones
        assert select(Game(), [rewards, sorted(rewards)]) == [0]
        uneven.append(population_std(sorted(rewards)) > population_std(rewards))  # by the last bit
    assert any(uneven)


def test_unscored_suites_are_left_out_of_the_spread() -> None:
    rewards = [[None, 1.0, None], [], [0.2, None, 0.4], [None, None, None], [0.3, 0.3, 0.3]]
    assert select(Game(n_code=9, update_n=9), rewards) == [2, 4]
    assert select(Game(), [[], [None]]) == []


@given(st.lists(st.floats(-1, 1), max_size=16))
def test_the_spread_is_the_population_standard_deviation(values: list[float]) -> None:
    import statistics

    expected = statistics.pstdev(values) if values else 0.0
    assert population_std(values) == pytest.approx(expected, abs=1e-9)
