"""The Mistake Book of a run as a log of events in SQLite: the book at any step is the fold of its events in order.
So are the pools of wrong programs, whose events lie in the same file.

One transaction per step, rollback journal (not WAL) and full synchronisation: after `kill -9` the file holds whole
steps only, and between steps it is one plain file that `cp` copies.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.game.mistake_book import Book, BookEvent
from codea1_cli.game.pool import Pool, PoolEvent, PoolMember, changed_pool
from codea1_cli.runs.rollout_files import clean

# A step's many events name few candidates: each source is kept once. The order of events is that of `changes.rowid`.
# `book` clamps at 0 as the fold does: a test that reached 0 is gone, and one passed again while gone stays at 0. The
# clamped walk is S - min(0, min S) over the running sum S of changes.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sources(id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS changes(
    step INTEGER NOT NULL, problem_id TEXT NOT NULL, test TEXT NOT NULL, change INTEGER NOT NULL,
    source INTEGER REFERENCES sources(id));
CREATE INDEX IF NOT EXISTS changes_by_problem ON changes(problem_id, test, step, change);
CREATE INDEX IF NOT EXISTS changes_by_step ON changes(step);
CREATE VIEW IF NOT EXISTS events(step, problem_id, test, change, candidate) AS
    SELECT step, problem_id, test, change, text FROM changes LEFT JOIN sources ON sources.id = source
    ORDER BY changes.rowid;
CREATE VIEW IF NOT EXISTS book(problem_id, test, count, first_step, last_step) AS
    WITH sums AS (
        SELECT problem_id, test, step, rowid AS at,
               SUM(change) OVER (PARTITION BY problem_id, test ORDER BY rowid) AS total FROM changes),
    walks AS (
        SELECT problem_id, test, at, total, MIN(0, MIN(total) OVER each_test) AS floor,
               MIN(step) OVER each_test AS first_step, MAX(step) OVER each_test AS last_step,
               ROW_NUMBER() OVER (PARTITION BY problem_id, test ORDER BY at DESC) AS from_end
        FROM sums WINDOW each_test AS (PARTITION BY problem_id, test))
    SELECT problem_id, test, total - floor, first_step, last_step FROM walks
    WHERE from_end = 1 AND total > floor ORDER BY problem_id, total - floor DESC, first_step, at;
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
_POOL_EVENTS = (
    "SELECT step, problem_id, change, text, evidence, own FROM pool_changes JOIN sources ON sources.id = source"
)
_EVENTS = "SELECT step, problem_id, test, change, text FROM changes LEFT JOIN sources ON sources.id = source"
_BUSY_SECONDS = 30.0


class StoredEvent(NamedTuple):
    """One change of one problem's book: +1 the candidate failed the test, -1 it passed it. candidate: its source."""

    step: int
    problem_id: str
    test: str
    change: int
    candidate: str | None


@dataclass(frozen=True)
class BookRow:
    """A live test: its count, and the first and last step at which its count changed."""

    problem_id: str
    test: str
    count: int
    first_step: int
    last_step: int


def fold(events: Iterable[tuple[int, str, int]]) -> list[tuple[str, int]]:
    """The ordered book [(test, count)] of one problem after its events (step, test, change), by the game's rule."""
    steps = groupby(events, key=lambda event: event[0])
    return list(Book.fold([BookEvent("", test, change, 0) for _, test, change in group] for _, group in steps).entries)


class MistakeStore:
    """`mistakes.sqlite` of a run.

    `read_only=True` opens an existing file beside a running writer.

    Raises:
        UserError: that file is absent, or is not a Mistake Book.
        EnvironmentFault: the file cannot be opened or written.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        if read_only and not self.path.is_file():
            raise UserError(f"no Mistake Book at {self.path}", hint="a run writes its book from its first step on")
        mode, self._has_pools = ("rw", False) if read_only else ("rwc", True)
        with self._faults():
            self._db = sqlite3.connect(
                f"{self.path.resolve().as_uri()}?mode={mode}",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            if read_only:
                there = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
                self._has_pools = "pool_changes" in there  # not in a run of an earlier version
                if not {"changes", "events", "book"} <= there:
                    raise UserError(f"{self.path} is no Mistake Book: it lacks the events or the view book")
                self._db.execute("PRAGMA query_only = 1")
            else:
                self._db.execute("PRAGMA journal_mode = DELETE")
                self._db.execute("PRAGMA synchronous = EXTRA")
                self._db.executescript(_SCHEMA)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise EnvironmentFault(
                    f"{self.path}: {error}", hint="is the disk full or the folder read-only?"
                ) from error
            raise UserError(f"{self.path} is no Mistake Book: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._faults():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._faults():
            return self._db.execute(query, values).fetchall()

    def append(
        self, step: int, events: Iterable[tuple[str, str, int, str | None]], pool: Iterable[PoolEvent] = ()
    ) -> None:
        """Writes a step's events (problem_id, test, change, candidate) and those of its pools, in order, in one durable
        transaction.

        Raises:
            ValueError: the book holds events of `step` or later already; a step written twice would corrupt the fold.
        """
        with self._transaction():
            last = self.last_step()
            if last is not None and step <= last:
                raise ValueError(f"the Mistake Book is at step {last} already, so step {step} cannot be added")
            sources: dict[str | None, int | None] = {None: None}
            for problem_id, test, change, candidate in events:
                if candidate not in sources:
                    sources[candidate] = self._source(candidate and clean(candidate))
                self._db.execute(
                    "INSERT INTO changes(step, problem_id, test, change, source) VALUES (?, ?, ?, ?, ?)",
                    (step, clean(problem_id), clean(test), change, sources[candidate]),
                )
            self._db.executemany(
                "INSERT INTO pool_changes(step, problem_id, change, source, evidence, own) VALUES (?, ?, ?, ?, ?, ?)",
                [(step, e.problem_id, e.change, self._source(e.code), e.evidence, e.own) for e in pool],
            )

    def _source(self, text: str | None) -> int:
        """The id of a source, which is written when it is new."""
        self._db.execute("INSERT OR IGNORE INTO sources(sha256, text) VALUES (?, ?)", (_sha256(text), text))
        return self._db.execute("SELECT id FROM sources WHERE sha256 = ?", (_sha256(text),)).fetchone()[0]

    def truncate_after(self, step: int) -> int:
        """Deletes the events later than `step` and returns their number: a resumed run forgets what it will redo."""
        with self._transaction():
            tables = ("changes", "pool_changes")
            deleted = sum(self._db.execute(f"DELETE FROM {t} WHERE step > ?", (step,)).rowcount for t in tables)
            if deleted:
                self._db.execute(
                    "DELETE FROM sources WHERE id NOT IN (SELECT source FROM changes WHERE source IS NOT NULL "
                    "UNION SELECT source FROM pool_changes)"
                )
            return deleted

    def move_after(self, step: int, target: Path) -> int:
        """Moves the events later than `step` to a Mistake Book of their own in the new file `target`, its folder made,
        and returns their number; without any, no file is made. A crash leaves them in both."""
        books, pools = self._later(_EVENTS, "changes", step), self._later(_POOL_EVENTS, "pool_changes", step)
        if not books and not pools:
            return 0
        target.parent.mkdir(parents=True, exist_ok=True)
        with MistakeStore(target) as other:
            for number in sorted({*books, *pools}):
                other.append(number, books.get(number, ()), map(PoolEvent._make, pools.get(number, ())))
        return self.truncate_after(step)

    def _later(self, query: str, table: str, step: int) -> dict[int, list[tuple[Any, ...]]]:
        """The events of a table after `step`, by step and without it."""
        rows = self._rows(f"{query} WHERE step > ? ORDER BY {table}.rowid", step)
        return {number: [row[1:] for row in group] for number, group in groupby(rows, key=lambda row: row[0])}

    def last_step(self) -> int | None:
        """The newest step that changed the book or a pool; None for an empty file."""
        tables = "SELECT step FROM changes" + (" UNION ALL SELECT step FROM pool_changes" if self._has_pools else "")
        return self._rows(f"SELECT MAX(step) FROM ({tables})")[0][0]

    def pools(self, step: int | None = None, problem_id: str | None = None) -> dict[str, Pool]:
        """Every problem's pool of wrong programs, or one problem's, now or after `step`; empty ones are left out."""
        query = f"{_POOL_EVENTS} WHERE step <= COALESCE(?, step) AND problem_id = COALESCE(?, problem_id)"
        found: dict[str, Pool] = {}
        if not self._has_pools:
            return found
        rows = self._rows(f"{query} ORDER BY problem_id, pool_changes.rowid", step, problem_id)
        for (problem, at), group in groupby(rows, key=lambda row: (row[1], row[0])):
            gone, new = set(), []
            for _, _, change, code, evidence, own in group:
                if change > 0:
                    new.append(PoolMember(code, evidence, bool(own), at))
                else:
                    gone.add(code)
            found[problem] = changed_pool(found.get(problem, ()), gone, new)
        return {problem: pool for problem, pool in found.items() if pool}

    def problems(self) -> list[str]:
        """Ids of all problems that ever had a test in the book, sorted."""
        return [row[0] for row in self._rows("SELECT DISTINCT problem_id FROM changes ORDER BY problem_id")]

    def book(self, problem_id: str) -> list[tuple[str, int]]:
        """One problem's ordered book [(test, count)]; empty when it has none."""
        return fold(
            self._rows("SELECT step, test, change FROM changes WHERE problem_id = ? ORDER BY rowid", problem_id)
        )

    def all_books(self, step: int | None = None) -> dict[str, list[tuple[str, int]]]:
        """Every problem's ordered book, now or after `step`; problems whose tests have all retired are left out."""
        with self._faults():
            rows = self._db.execute(
                "SELECT problem_id, step, test, change FROM changes WHERE step <= COALESCE(?, step) "
                "ORDER BY problem_id, rowid",
                (step,),
            )
            books = {
                problem_id: fold((step, test, change) for _, step, test, change in group)
                for problem_id, group in groupby(rows, key=lambda row: row[0])
            }
        return {problem_id: book for problem_id, book in books.items() if book}

    def live(self, problem_id: str | None = None) -> list[BookRow]:
        """Rows of the view `book`: all live tests, or one problem's, highest count first."""
        where, values = ("", ()) if problem_id is None else ("WHERE problem_id = ?", (problem_id,))
        return [BookRow(*row) for row in self._rows(f"SELECT * FROM book {where}", *values)]

    def events(self, problem_id: str) -> list[StoredEvent]:
        """One problem's events in order."""
        query = f"{_EVENTS} WHERE problem_id = ? ORDER BY changes.rowid"
        return [StoredEvent(*row) for row in self._rows(query, problem_id)]

    def close(self) -> None:
        """Gives the file back."""
        self._db.close()

    def __enter__(self) -> "MistakeStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sha256(text: str | None) -> bytes | None:
    return None if text is None else hashlib.sha256(text.encode()).digest()
