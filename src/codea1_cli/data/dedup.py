"""Rows that repeat an earlier row: by id, by text, by code, and nearly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from codea1_cli.data.decontaminate import code_set
from codea1_cli.data.similarity import Bands, Signer, blind_hash, jaccard, question_set, text_hash
from codea1_cli.data.work import Rows
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.data_options import Thresholds

Found = tuple[int, str, int, float | None]
"""(row, reason, the earlier row, similarity or None)"""

_SMALL = 12  # distinct runs of tokens that two references need to be near-duplicates


def exact_duplicates(rows: Rows, contaminated: Iterable[int] = ()) -> Iterator[Found]:
    """Rows with the id (same_id), the texts (same_text) or the code (same_code, names apart) of an earlier row.

    A row like one that was removed for a benchmark goes too, wherever it stands: that benchmark may hold another
    solution of the same task.
    """
    seen: dict[bytes, int] = {}
    for number in contaminated:
        _, *keys = _keys(rows.get(number))
        for _, key in keys:
            seen.setdefault(key, number)
    for number, problem in rows.living():
        keys = _keys(problem)
        hit = next(((reason, seen[key]) for reason, key in keys if key in seen), None)
        if hit is not None:
            yield number, *hit, None
            continue
        seen.update((key, number) for _, key in keys)


def _keys(problem: Problem) -> list[tuple[str, bytes]]:
    """(reason, key) of a problem; the id comes first."""
    keys = [
        ("same_id", b"i" + text_hash(problem.id).encode()),
        ("same_text", b"t" + text_hash(problem.question, problem.reference).encode()),
    ]
    if (digest := blind_hash(problem.reference)) is not None:
        keys.append(("same_code", b"c" + digest.encode()))
    return keys


def near_duplicates(rows: Rows, thresholds: Thresholds) -> Iterator[Found]:
    """Rows whose question or code is nearly an earlier row's; the earlier one is one that stays."""
    signer = Signer()
    by_question = Bands(thresholds.near_question, signer)
    by_code = Bands(thresholds.near_code, signer)
    for number, problem in rows.living():
        by_question.add(number, question_set(problem.question))
        code = code_set(problem.reference)
        by_code.add(number, code if len(code) >= _SMALL else set())

    @lru_cache(maxsize=4096)
    def questions(number: int) -> set[str]:
        return question_set(rows.get(number).question)

    @lru_cache(maxsize=4096)
    def codes(number: int) -> set[str]:
        return code_set(rows.get(number).reference)

    gone: set[int] = set()
    for reason, bands, sets, threshold in (
        ("near_question", by_question, questions, thresholds.near_question),
        ("near_code", by_code, codes, thresholds.near_code),
    ):
        for number, earlier in bands.candidates():
            if number in gone:
                continue
            scored = [(jaccard(sets(number), sets(other)), -other) for other in earlier if other not in gone]
            score, other = max(scored, default=(0.0, 0))
            if score >= threshold:
                gone.add(number)
                yield number, reason, -other, round(score, 3)
