"""The figures of a held-out evaluation from its per-problem rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codea1_cli.evals.statistics import pass_at_k


def solve_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """pass@1 and pass@n over problems. Solutions that the sandbox could not judge are counted in `unscored` and left out
    of the estimates, and a problem with fewer than k others out of pass@k; a figure over nothing is None."""
    n = max((len(row["passed"]) for row in rows), default=0)
    figures: dict[str, Any] = {"problems": len(rows), "n": n}
    for k in sorted({1, n} - {0}):
        counts = [(len(row["passed"]) - row["unscored"], sum(row["passed"])) for row in rows]
        values = [pass_at_k(scored, passed, k) for scored, passed in counts if scored >= k]
        figures[f"pass@{k}"] = sum(values) / len(values) if values else None
    figures["unscored"] = sum(row["unscored"] for row in rows)
    return figures


def attack_figures(rows: Sequence[Mapping[str, Any]], tests_per_suite: int) -> dict[str, Any]:
    """Suites on wrong candidates, by their first K asserts.

    `validity` is the game's, min(valid / K, 1 - invalid / K), where an assert that states a wrong answer is invalid;
    `valid_asserts` the share of the K asked whose call the reference answers; `kill_rate` the share of wrong candidates
    that their suite exposes; `kills_per_valid` kills over valid asserts; `stated_correctly` the share of valid asserts
    that state the right answer.
    """
    scored = [row for row in rows if not row["unscored"]]
    valid = sum(row["valid"] for row in scored)
    count = len(scored)
    return {
        "suites": count,
        "unscored": len(rows) - count,
        "validity": sum(row["validity"] for row in scored) / count if count else None,
        "valid_asserts": valid / (count * tests_per_suite) if count else None,
        "kill_rate": sum(row["kills"] > 0 for row in scored) / count if count else None,
        "kills_per_valid": sum(row["kills"] for row in scored) / valid if valid else None,
        "stated_correctly": sum(row["correct"] for row in scored) / valid if valid else None,
    }
