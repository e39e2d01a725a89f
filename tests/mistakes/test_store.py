"""The Mistake Book on disk: a run's book is the fold of its events in order, whatever happens to the process."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.game.mistake_book import Book
from codea1_cli.game.pool import PoolEvent, PoolMember, events_between
from codea1_cli.mistakes import MistakeStore, fold

TESTS = [f"assert f({i}) == {i * i}" for i in range(4)]
EVENTS = st.lists(
    st.tuples(st.sampled_from(["a", "b/1", "c d:2"]), st.sampled_from(TESTS), st.sampled_from([-2, -1, 1, 1, 3])),
    max_size=12,
)
STEPS = st.lists(EVENTS, max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """In memory where there is such a place: the examples write hundreds of durable transactions."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path_factory.mktemp("books")) as name:
        yield Path(name)


def write(path, steps):
    with MistakeStore(path) as store:
        for step, events in enumerate(steps, start=1):
            store.append(step, [(*event, f"def f(): return {step}") for event in events])


def replay(steps, problem_id):
    """The rules of METHOD.md with a plain list: sort stably at the start of a step, append, drop at 0."""
    book: list[list] = []
    for events in steps:
        mine = [(test, change) for owner, test, change in events if owner == problem_id]
        if mine:
            book.sort(key=lambda row: -row[1])
        for test, change in mine:
            row = next((row for row in book if row[0] == test), None)
            if row is None and change > 0:
                book.append([test, change])
            elif row is not None:
                row[1] += change
                if row[1] <= 0:
                    book.remove(row)
    return [(test, count) for test, count in book]


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_book_is_the_fold_of_its_events_and_the_view_agrees(folder, steps):
    path = folder / "mistakes.sqlite"
    path.unlink(missing_ok=True)
    write(path, steps)
    with MistakeStore(path, read_only=True) as store:
        owners = {owner for events in steps for owner, *_ in events}
        assert store.problems() == sorted(owners)
        for owner in owners:
            expected = replay(steps, owner)
            assert store.book(owner) == expected
            assert {row.test: row.count for row in store.live(owner)} == dict(expected)
            for row in store.live(owner):
                touched = [
                    n for n, events in enumerate(steps, 1) if any(e[0] == owner and e[1] == row.test for e in events)
                ]
                assert (row.first_step, row.last_step) == (touched[0], touched[-1])
        assert store.all_books() == {owner: replay(steps, owner) for owner in owners if replay(steps, owner)}


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, data=st.data())
def test_truncating_after_a_step_forgets_exactly_what_came_later(folder, steps, data):
    path = folder / "mistakes.sqlite"
    path.unlink(missing_ok=True)
    write(path, steps)
    kept = data.draw(st.integers(0, len(steps)))
    with MistakeStore(path) as store:
        removed = store.truncate_after(kept)
        assert removed == sum(len(events) for events in steps[kept:])
        for owner in ["a", "b/1", "c d:2"]:
            assert store.book(owner) == replay(steps[:kept], owner)
        for step, events in enumerate(steps[kept:], start=kept + 1):  # the redone steps go in again
            store.append(step, [(*event, None) for event in events])
        for owner in ["a", "b/1", "c d:2"]:
            assert store.book(owner) == replay(steps, owner)


@pytest.mark.shared
def test_fold_agrees_with_the_published_sequences(shared):
    sequences = json.loads((shared / "cases" / "mistake_book.json").read_text())
    checked = 0
    for sequence in sequences:
        events = []
        for number, step in enumerate(sequence, start=1):
            ordered = sorted(fold(events), key=lambda row: -row[1])
            assert [test for test, _ in ordered[:8]] == step["replayed"]
            events += [(number, test, -1) for test in step["passed_replayed"]]
            events += [(number, test, 1) for test in step["failed_new"]]
            assert dict(fold(events)) == step["counts_after"]
            checked += 1
    assert checked


def test_a_step_written_twice_is_refused_and_changes_nothing(tmp_path):
    with MistakeStore(tmp_path / "m.sqlite") as store:
        store.append(3, [("p", "t", 1, None)])
        with pytest.raises(ValueError, match="step 3 already"):
            store.append(3, [("p", "t", 1, None)])
        assert store.book("p") == [("t", 1)]
        assert store.last_step() == 3


def test_a_failed_step_leaves_the_book_as_it_was(tmp_path):
    def broken():
        yield ("p", "t", 1, None)
        raise RuntimeError("the reader of rollouts died")

    with MistakeStore(tmp_path / "m.sqlite") as store:
        store.append(1, [("p", "s", 1, None)])
        with pytest.raises(RuntimeError):
            store.append(2, broken())
        assert store.book("p") == [("s", 1)]
        assert store.last_step() == 1


def test_a_full_disk_is_named_and_changes_nothing(tmp_path):
    with MistakeStore(tmp_path / "m.sqlite") as store:
        store.append(1, [("p", "s", 1, None)])
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(EnvironmentFault, match="full"):
            store.append(2, [("p", "t" * 100_000, 1, None)])
        assert store.last_step() == 1


def test_columns_are_the_contract(tmp_path):
    MistakeStore(tmp_path / "m.sqlite").close()
    with sqlite3.connect(tmp_path / "m.sqlite") as db:
        columns = {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for name in ("events", "book")}
    assert columns == {
        "events": ["step", "problem_id", "test", "change", "candidate"],
        "book": ["problem_id", "test", "count", "first_step", "last_step"],
    }


KILLED = """
import os, signal, sys
from codea1_cli.mistakes import MistakeStore
store = MistakeStore(sys.argv[1])
store.append(1, [("p", f"t{i}", 1, "x" * 500) for i in range(2000)])
def half():
    for i in range(40000):
        yield ("p", f"u{i}", 1, "y" * 500)
    os.kill(os.getpid(), signal.SIGKILL)
store.append(2, half())
"""


def test_kill_9_inside_a_step_leaves_whole_steps_only(tmp_path):
    path = tmp_path / "m.sqlite"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    with MistakeStore(path, read_only=True) as store:  # a reader comes first: it has to roll back
        assert store.last_step() == 1
        assert len(store.book("p")) == 2000
    with MistakeStore(path) as store:
        store.append(2, [("p", "t0", 1, None)])
    shutil.copy(path, tmp_path / "copy.sqlite")
    with MistakeStore(tmp_path / "copy.sqlite", read_only=True) as store:
        assert dict(store.book("p"))["t0"] == 2


def test_a_reader_beside_the_writer_sees_whole_steps(tmp_path):
    path = tmp_path / "m.sqlite"
    writer = MistakeStore(path)
    reader = MistakeStore(path, read_only=True)
    for step in range(1, 4):
        writer.append(step, [("p", f"t{step}", 1, None)])
        assert reader.last_step() == step
    with pytest.raises(EnvironmentFault):
        reader.append(9, [("p", "t", 1, None)])


def test_a_file_that_is_no_book_is_named(tmp_path):
    with pytest.raises(UserError, match="no Mistake Book at"):
        MistakeStore(tmp_path / "absent.sqlite", read_only=True)
    (tmp_path / "noise.sqlite").write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(UserError, match="is no Mistake Book"):
        MistakeStore(tmp_path / "noise.sqlite", read_only=True)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE x(y)").connection.close()
    with pytest.raises(UserError, match="lacks the events"):
        MistakeStore(tmp_path / "other.sqlite", read_only=True)
    with pytest.raises(EnvironmentFault):
        MistakeStore(tmp_path / "absent_folder" / "m.sqlite")


def test_a_lone_surrogate_is_kept_as_its_escape(tmp_path):
    with MistakeStore(tmp_path / "m.sqlite") as store:
        store.append(1, [("p", "assert f('\udc80') == 1", 1, "def f(x): return '\udc80'")])
        (event,) = store.events("p")
    assert event.candidate == "def f(x): return '\\udc80'"


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.lists(st.integers(0, 7), max_size=3), max_size=3),
            st.lists(st.lists(st.sampled_from(TESTS), max_size=4), max_size=3),
        ),
        max_size=6,
    )
)
def test_the_store_gives_the_game_s_own_book_back(folder, steps):
    path = folder / "game.sqlite"
    path.unlink(missing_ok=True)
    book = Book()
    with MistakeStore(path) as store:
        for step, (passing, failed) in enumerate(steps, start=1):
            replayed = book.replay(8)
            passed = [[replayed[i] for i in sorted(set(tests)) if i < len(replayed)] for tests in passing]
            book, events = book.update("p", passed, failed)
            store.append(step, [(e.problem_id, e.test, e.change, f"candidate {e.candidate_index}") for e in events])
            assert store.book("p") == list(book.entries)
            assert {row.test: row.count for row in store.live()} == dict(book.entries)


def test_a_candidate_s_source_is_kept_once(tmp_path):
    source = "def f(x):\n    return x\n" * 200
    with MistakeStore(tmp_path / "m.sqlite") as store:
        store.append(1, [("p", f"assert f({i}) == {i + 1}", 1, source) for i in range(100)])
        store.append(2, [("p", "assert f(1) == 2", -1, "other"), ("p", "assert f(2) == 3", 1, None)])
        assert [event.candidate for event in store.events("p")] == [source] * 100 + ["other", None]
        store.truncate_after(1)
    with sqlite3.connect(tmp_path / "m.sqlite") as db:
        assert [text for (text,) in db.execute("SELECT text FROM sources")] == [source]
        assert {row[4] for row in db.execute("SELECT * FROM events")} == {source}


def entering(code: str, problem: str = "p") -> PoolEvent:
    return PoolEvent(problem, 1, code, "assert f(1) == 2", True)


def test_pools_are_a_fold_of_their_events_and_are_cut_with_the_book(tmp_path):
    with MistakeStore(tmp_path / "m.sqlite") as store:
        store.append(1, [("p", "assert f(1) == 2", 1, "a")], [entering("a"), entering("b"), entering("x", "q")])
        store.append(2, [], [PoolEvent("p", -1, "a", "", False), entering("c")])
        store.append(3, [], [entering("a")])
        codes = {step: [member.code for member in store.pools(step).get("p", ())] for step in (0, 1, 2, 3)}
        assert codes == {0: [], 1: ["a", "b"], 2: ["c", "b"], 3: ["a", "c", "b"]}
        assert store.pools(problem_id="q") == {"q": (PoolMember("x", "assert f(1) == 2", True, 1),)}
        assert store.last_step() == 3
        assert store.move_after(1, tmp_path / "aside" / "m.sqlite") == 3
        assert [member.code for member in store.pools()["p"]] == ["a", "b"]
        rows = sqlite3.connect(store.path).execute("SELECT problem_id, program, own_test, step FROM pool").fetchall()
        assert rows == [("p", "a", 1, 1), ("p", "b", 1, 1), ("q", "x", 1, 1)]
    with MistakeStore(tmp_path / "aside" / "m.sqlite", read_only=True) as aside:
        assert [member.code for member in aside.pools()["p"]] == ["a", "c"]


def test_a_file_of_before_the_pools_is_read(tmp_path):
    with MistakeStore(tmp_path / "m.sqlite") as store:
        store.append(1, [("p", "assert f(1) == 2", 1, "a")])
    with sqlite3.connect(tmp_path / "m.sqlite") as db:
        db.executescript("DROP VIEW pool; DROP TABLE pool_changes")
    with MistakeStore(tmp_path / "m.sqlite", read_only=True) as store:
        assert (store.pools(), store.last_step()) == ({}, 1)


def test_what_leads_from_one_pool_to_the_next(tmp_path):
    before = tuple(PoolMember(code, "t", False, 1) for code in "ab")
    after = (PoolMember("c", "t", True, 2), before[1])
    events = events_between("p", before, after)
    assert [(event.change, event.code) for event in events] == [(-1, "a"), (1, "c")]
    with MistakeStore(tmp_path / "m.sqlite") as store:
        store.append(1, [], events_between("p", (), before))
        store.append(2, [], events)
        assert store.pools()["p"] == after
