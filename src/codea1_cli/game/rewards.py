"""What a suite and a candidate earn, on plain counts. The formulas are those of Code-A1's published code.

`scoring` makes the counts of a judged problem. A further term needs its setting in `rules`, its count there, and its
place in a formula here.
"""

import re
from dataclasses import dataclass

from codea1_cli.game.rules import Game

_NOT_PRINTABLE = re.compile(r"[^\t-\r -~]")  # printable: ASCII 32 to 126 and tab, newline, VT, FF, CR


@dataclass(frozen=True)
class SuiteCounts:
    """One suite on one candidate, beside the replayed Mistake Book.

    `valid`: distinct tests that the reference answers. `invalid`: asserts that are not such a test or state a wrong
    answer (a valid test that states a wrong one counts in both). `early_fails`: how many of the first K valid tests
    the candidate fails. `passes`: how many of all valid tests it passes.
    """

    valid: int
    invalid: int
    early_fails: int
    passes: int
    book_total: int = 0
    book_passes: int = 0


@dataclass(frozen=True)
class SuiteReward:
    """A suite's reward and its parts; `reward` is None when it is unscored (`scoring` says when). `adversarial` is the
    kill term."""

    reward: float | None
    validity: float
    adversarial: float
    penalty: float


def nonprintable_share(reply: str) -> float:
    """The share of a reply's characters outside printable ASCII, 0 for an empty one."""
    return len(_NOT_PRINTABLE.findall(reply)) / len(reply) if reply else 0.0


def suite_reward(
    rules: Game, counts: SuiteCounts, *, loads: bool, penalty: float = 0.0, kill: float | None = None
) -> SuiteReward:
    """`alpha * validity + (1 - alpha) * adversarial` if the candidate loads, else 0; less `penalty`, always.

    validity is min(valid / K, 1 - invalid / K), clamped to [0, 1]. adversarial is `kill`, the share of the pool that
    the suite breaks, where there is one; else the published rule: the fails among the first K over K, or with a
    replayed book (fails / K - book fails / book + 1) / 2, and 0 without a valid test.
    """
    k, alpha = rules.tests_per_suite, rules.resolved_alpha
    validity = max(0.0, min(1.0, counts.valid / k, 1 - counts.invalid / k))
    new_fail = counts.early_fails / k
    if kill is not None:
        adversarial = kill
    elif counts.valid == 0:
        adversarial = 0.0
    elif counts.book_total:
        book_fail = (counts.book_total - counts.book_passes) / counts.book_total
        adversarial = (new_fail - book_fail + 1) / 2
    else:
        adversarial = new_fail
    earned = alpha * validity + (1 - alpha) * adversarial if loads else 0.0
    return SuiteReward(earned - penalty, validity, adversarial, penalty)


def code_reward(rules: Game, counts: SuiteCounts) -> float | None:
    """What one suite gives its candidate, whose own reward is the mean over its suites (`scoring`): the mean of the
    book's and the suite's pass rates, of those there are.

    None when there is neither: the suite says nothing about the candidate (0 in the published code).
    """
    rates = []
    if counts.book_total:
        rates.append(counts.book_passes / counts.book_total)
    if counts.valid:
        rates.append(counts.passes / counts.valid)
    return sum(rates) / len(rates) if rates else None
