"""The pools of wrong programs as a log of events in the Mistake Book's file: a pool is the fold of its events.

The functions work on an open connection and leave transactions to their caller, `store.MistakeStore`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

from codea1_cli.game.pool import Pool, PoolMember, changed_pool

SCHEMA = """
CREATE TABLE IF NOT EXISTS pool_changes(
    step INTEGER NOT NULL, problem_id TEXT NOT NULL, change INTEGER NOT NULL,
    source INTEGER NOT NULL REFERENCES sources(id), evidence TEXT, own INTEGER);
CREATE INDEX IF NOT EXISTS pool_changes_by_problem ON pool_changes(problem_id, source);
CREATE VIEW IF NOT EXISTS pool(problem_id, program, evidence, own_test, step) AS
    SELECT problem_id, text, evidence, own, step FROM pool_changes AS latest JOIN sources ON sources.id = source
    WHERE change = 1 AND latest.rowid = (SELECT MAX(rowid) FROM pool_changes AS any_change
        WHERE any_change.problem_id = latest.problem_id AND any_change.source = latest.source)
    ORDER BY problem_id, step DESC, latest.rowid;
"""


class PoolEvent(NamedTuple):
    """A program that enters (`change` 1) or leaves (-1) a problem's pool; see `game.pool.PoolMember`."""

    problem_id: str
    change: int
    code: str
    evidence: str
    own: bool


def events_between(problem_id: str, before: Pool, after: Pool) -> list[PoolEvent]:
    """What leads from one pool of a problem to the next: who leaves, then who enters, in order."""
    gone, new = set(before) - set(after), set(after) - set(before)
    return [
        PoolEvent(problem_id, change, member.code, member.evidence, member.own)
        for change, members, which in ((-1, before, gone), (1, after, new))
        for member in members
        if member in which
    ]


def append(db: sqlite3.Connection, step: int, events: Iterable[PoolEvent], source_id: Callable[[str], int]) -> None:
    """Writes a step's events, in order. `source_id` gives the number that a source is kept by."""
    for event in events:
        db.execute(
            "INSERT INTO pool_changes(step, problem_id, change, source, evidence, own) VALUES (?, ?, ?, ?, ?, ?)",
            (step, event.problem_id, event.change, source_id(event.code), event.evidence, event.own),
        )


def later_events(db: sqlite3.Connection, step: int) -> dict[int, list[PoolEvent]]:
    """The events after `step`, by step."""
    rows = db.execute(
        "SELECT step, problem_id, change, text, evidence, own FROM pool_changes JOIN sources ON sources.id = source "
        "WHERE step > ? ORDER BY pool_changes.rowid",
        (step,),
    )
    return {at: [PoolEvent(*row[1:]) for row in group] for at, group in groupby(rows, key=lambda row: row[0])}


def pools(db: sqlite3.Connection, step: int | None = None, problem_id: str | None = None) -> dict[str, Pool]:
    """Every problem's pool, or one problem's, now or after `step`; empty ones are left out."""
    rows = db.execute(
        "SELECT problem_id, step, change, text, evidence, own FROM pool_changes JOIN sources ON sources.id = source "
        "WHERE step <= COALESCE(?, step) AND problem_id = COALESCE(?, problem_id) "
        "ORDER BY problem_id, pool_changes.rowid",
        (step, problem_id),
    )
    found: dict[str, Pool] = {}
    for (problem, at), group in groupby(rows, key=lambda row: row[:2]):
        gone, new = set(), []
        for _, _, change, code, evidence, own in group:
            if change > 0:
                new.append(PoolMember(code, evidence, bool(own), at))
            else:
                gone.add(code)
        found[problem] = changed_pool(found.get(problem, ()), gone, new)
    return {problem: pool for problem, pool in found.items() if pool}
