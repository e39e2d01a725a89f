"""What a page shows of a run's texts: its problems, and of some of them the candidates, suites, Mistake Book and pool.

A long run has more text than a page can hold. So problems are taken in the order of a hash of their ids, which is the
same for every run, until `budget` bytes are full; each at up to `STEPS_PER_PROBLEM` of the steps that it was sampled
at, the first and the last among them. Texts are cut at `TEXT` characters, lists of the book at `LISTED`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codea1_cli.extract import parse_suite
from codea1_cli.extract.source import parse, unparse
from codea1_cli.game.judged_tests import JudgedCandidate, JudgedSuite, JudgedTest
from codea1_cli.game.pool import breaks_own, evidence
from codea1_cli.game.rules import Game
from codea1_cli.mistakes import MistakeStore
from codea1_cli.mistakes.inspect import retired, trend
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.verdicts import Verdict

STEPS_PER_PROBLEM = 12
TEXT = 4000
LISTED = 200
POINTS = 40  # of a problem's mean rewards


class Texts:
    """Texts that stand once in a page and are named by their number."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int | None:
        """The number of a text, cut where it is long; None for None."""
        if text is None:
            return None
        if len(text) > TEXT:
            text = f"{text[:TEXT]}\n[cut: {len(text) - TEXT} more characters]"
        if text not in self._numbers:
            self._numbers[text] = len(self.all)
            self.all.append(text)
        return self._numbers[text]


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of the items, the first and the last among them, evenly between."""
    if len(items) <= count:
        return list(items)
    return [items[round(place * (len(items) - 1) / (count - 1))] for place in range(count)]


def mean_rewards(files: Mapping[int, Path], told: Callable[[str], None]) -> dict[str, dict[int, float | None]]:
    """By problem and step the mean reward of its candidates, None where none was scored. Unreadable files are told."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, dict[int, list[float]]] = {}
    for step, file in sorted(files.items()):
        try:
            columns = pq.read_table(file.absolute(), columns=["problem_id", "reward"]).to_pydict()
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            told(f"rollouts/{file.name} cannot be read: {str(error).splitlines()[0] if str(error) else 'broken'}")
            continue
        for pid, reward in zip(columns["problem_id"], columns["reward"], strict=True):
            rewards = found.setdefault(pid, {}).setdefault(step, [])
            if reward is not None:
                rewards.append(reward)
    return {
        pid: {step: round(sum(own) / len(own), 3) if own else None for step, own in by_step.items()}
        for pid, by_step in found.items()
    }


def in_order(problems: Iterable[str], first: Sequence[str] = ()) -> list[str]:
    """The problems as they are taken: those named, then by a hash of their ids."""
    rest = sorted(set(problems) - set(first), key=lambda pid: hashlib.sha256(pid.encode("utf-8", "replace")).digest())
    return [*(pid for pid in dict.fromkeys(first) if pid in set(problems)), *rest]


def candidates(
    files: Mapping[int, Path],
    sampled: Mapping[str, Iterable[int]],
    order: Sequence[str],
    rules: Game,
    texts: Texts,
    budget: int,
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The problems that the page shows, each with its candidates in the order of steps, until about `budget` bytes of
    the page are full."""
    for pid in order:
        if budget <= 0:
            return
        rows = [row for step in spread(sorted(sampled[pid]), STEPS_PER_PROBLEM) for row in _rows(files[step], pid)]
        budget -= packed(rows)
        yield pid, [_candidate(row, rules, texts) for row in rows]


def packed(data: Any) -> int:
    """About how many bytes of a page the data takes: compressed, four characters for three bytes."""
    return len(zlib.compress(json.dumps(data, default=str).encode("utf-8", "replace"), 6)) * 4 // 3


def _rows(file: Path, pid: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(file.absolute(), filters=[("problem_id", "=", pid)]).to_pylist()
    return sorted(rows, key=lambda row: row["candidate_index"])


def _candidate(row: Mapping[str, Any], rules: Game, texts: Texts) -> dict[str, Any]:
    suites = row.get("suites") or ()
    judged = JudgedCandidate(
        code=row["code"] or "",
        loaded=row["loaded"],
        book=tuple(map(_judged, row.get("book") or ())),
        own=tuple(map(_judged, row.get("own") or ())),
        suites=tuple(JudgedSuite(suite["text"], tuple(map(_judged, suite["tests"] or ()))) for suite in suites),
    )
    wrong = bool(judged.loaded) and evidence(judged) is not None
    return {
        "step": row["step"],
        "index": row["candidate_index"],
        "reply": texts.number(row.get("completion")),
        "code": texts.number(row["code"]),
        "loaded": row["loaded"],
        "detail": row.get("load_detail") or "",
        "reward": _short(row["reward"]),
        "selected": bool(row.get("selected")),
        "shown": texts.number(row.get("shown")),
        "wrong": wrong,
        "book": [_test(test, texts) for test in row.get("book") or ()],
        "own": [_test(test, texts) for test in row.get("own") or ()],
        "suites": [
            {
                "text": texts.number(suite["text"]),
                "reward": _short(suite["reward"]),
                "validity": _short(suite["validity"]),
                "kill": _short(suite["adversarial"]),
                "breaks": suite.get("breaks") or [],
                "exposes": wrong and breaks_own(rules, own),
                "alarm": any(
                    t.stated_correctly is False for t in [t for t in own.tests if t.valid][: rules.tests_per_suite]
                ),
                "tests": [
                    [*_test(test, texts), texts.number(answer)]
                    for test, answer in zip(suite["tests"] or (), _answers(suite, rules), strict=True)
                ],
            }
            for suite, own in zip(suites, judged.suites, strict=True)
        ],
    }


def _answers(suite: Mapping[str, Any], rules: Game) -> list[str | None]:
    """By test, the answer that the suite states where it is a wrong one: a kept test has the reference's in its place.
    None where it is right, or where this version reads other asserts in the text."""
    tests = suite["tests"] or []
    wrong = [test["stated_correctly"] is False for test in tests]
    entry = next((test["test"].removeprefix("assert ").partition("(")[0] for test in tests if test["valid"]), "")
    written = parse_suite(suite["text"], entry, cap=rules.cap, mode=rules.mode) if any(wrong) else []
    if len(written) != len(tests):
        return [None] * len(tests)
    return [_right_side(one.source) if at else None for one, at in zip(written, wrong, strict=True)]


def _right_side(source: str) -> str:
    """What stands on the right of an assert's comparison; the whole text of what is none."""
    tree = parse(source)
    match tree.body if tree is not None else []:
        case [ast.Assert(ast.Compare(comparators=[answer, *_]))]:
            return unparse(answer) or source
    return source


def _judged(test: Mapping[str, Any]) -> JudgedTest:
    verdict = Verdict(test["verdict"]) if test.get("verdict") else None
    return JudgedTest(
        test["test"], None, test.get("valid", True), stated_correctly=test.get("stated_correctly"), verdict=verdict
    )


def _test(test: Mapping[str, Any], texts: Texts) -> list[Any]:
    """[test, verdict, valid, stated rightly, expected, got, reason], texts by number."""
    words = (texts.number(test.get(key) or "") for key in ("expected", "got", "reason"))
    return [texts.number(test["test"]), test["verdict"], test.get("valid", True), test.get("stated_correctly"), *words]


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def problem_rows(rewards: Mapping[str, Mapping[int, float | None]], store: MistakeStore | None) -> list[dict[str, Any]]:
    """Every problem of a run: when it was sampled, its mean rewards, and what the book and the pool hold of it."""
    live: dict[str, list[int]] = {}
    for row in store.live() if store else ():
        live.setdefault(row.problem_id, []).append(row.count)
    pools = store.pools() if store else {}
    rows = []
    for pid in sorted({*rewards, *live}):
        at = spread(sorted(rewards.get(pid, {})), POINTS)
        rows.append(
            {
                "id": pid,
                "sampled": len(rewards.get(pid, {})),
                "steps": at,
                "rewards": [rewards[pid][step] for step in at],
                "tests": len(live.get(pid, ())),
                "mistakes": sum(live.get(pid, ())),
                "pool": len(pools.get(pid, ())),
            }
        )
    return rows


def book_of(store: MistakeStore, pid: str, texts: Texts) -> dict[str, Any]:
    """One problem's Mistake Book through the run, and its pool; `tests` and `left` count the live and the retired."""
    events, rows = store.events(pid), store.live(pid)
    gone = retired(events, (row.test for row in rows))
    return {
        "tests": len(rows),
        "left": len(gone),
        "live": [[texts.number(row.test), row.count, row.first_step, row.last_step] for row in rows[:LISTED]],
        "retired": [[texts.number(test.test), test.peak, test.first_step, test.last_step] for test in gone[:LISTED]],
        "trend": [[point.step, point.tests, point.mistakes] for point in spread(trend(events), LISTED)],
        "pool": [
            [one.id, one.step, texts.number(one.code), texts.number(one.evidence), one.own]
            for one in store.pools(problem_id=pid).get(pid, ())
        ],
    }


def question_of(problem: Problem, texts: Texts) -> dict[str, int | None]:
    """What a problem asks, and its reference."""
    return {
        "question": texts.number(problem.question),
        "declaration": texts.number(problem.declaration),
        "reference": texts.number(problem.reference),
    }
