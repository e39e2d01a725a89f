"""Which candidates' suites train the Test LLM."""

from collections.abc import Sequence

from codea1_cli.game.rules import Game


def population_std(values: Sequence[float]) -> float:
    """The population standard deviation, 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5


def select(rules: Game, suite_rewards: Sequence[Sequence[float | None]]) -> list[int]:
    """Indices of the `update_n` candidates whose suite rewards vary most; ties go to the lowest index.

    A candidate with fewer than two scored suites has no group to compare and is left out, so there may be fewer.
    """
    spread = []
    for index, rewards in enumerate(suite_rewards):
        scored = [reward for reward in rewards if reward is not None]
        if len(scored) >= 2 or (rules.paper and scored):
            # Rounded: rewards in another order differ in the last bit, which must not decide a tie.
            spread.append((-round(population_std(scored), 12), index))
    return [index for _, index in sorted(spread)[: rules.update_n]]
