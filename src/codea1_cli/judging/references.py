"""What a reference answers, and how long its calls and those of its candidates may take.

What references answered is kept: in memory within bounds and, where a folder is given, on disk.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from codea1_cli.judging.compare import same
from codea1_cli.sandbox.base import Limits, ProgramRun
from codea1_cli.sandbox.values import Unreadable, decode, show
from codea1_cli.sandbox.verdicts import Answer, AnswerKind, Expected

HASH_SEEDS = (0, 1)
NEED_FACTOR = 10.0
"""How many times the processor time that a reference needs a call may take."""
VARIES = "differs between runs"
"""Why a call has no answer whose value hangs on the hash seed, or on more."""
CACHE_FILE = "references.sqlite"
_LATE = f"{AnswerKind.TIMEOUT.value}: time limit"


def call_limit(time_s: float, slowest: float | None, least: float) -> float:
    """The processor time that one call may take, in seconds: `least`, doubled until it is NEED_FACTOR times `slowest`,
    what the reference's slowest answer took (0 while it is not known). Infinite where that comes to `time_s` or more,
    and where no call has an answer (`slowest` None): then the clock alone limits the call.

    Doubling makes few limits of many measured times, so that a time measured again gives the same one.
    """
    limit = least
    while slowest is not None and limit < min(time_s, NEED_FACTOR * slowest):
        limit *= 2
    return limit if slowest is not None and limit < time_s else math.inf


class References:
    """Answers of references, each asked once. Thread-safe; every method blocks.

    `limits.time_s` bounds a call by the clock, `call_limit` its processor time: a reference's has an eighth of `time_s`
    at least (0.25 s), a candidate's twice that.
    """

    def __init__(self, run: Callable[..., ProgramRun], limits: Limits, tolerance: float, cache: ReferenceCache) -> None:
        self.run, self.limits, self.tolerance, self.cache = run, limits, tolerance, cache
        self.least_s = max(limits.time_s / 8, 0.25)
        self._settings = f"{tolerance!r} {limits.time_s!r} {limits.memory_mb} cpu"
        self._guard = threading.Lock()
        self._asked: dict[tuple[str, str, str, float], Future[Expected]] = {}  # what is being answered

    def answers(
        self, reference: str, entry_point: str, calls: Sequence[str], own: Iterable[str] = ()
    ) -> dict[str, Expected]:
        """The reference's answer to each distinct call.

        A call is answered twice, in interpreters of different hash seeds, unless the first has no value; it is a test
        only when both give the same one. Answers come from the cache where it has them; what another caller has asked
        is waited for, not asked again.

        own: calls that the problem's own tests make. The clock alone limits them; what they take says what the
        reference needs, and limits the others. Without any that has an answer, the quick ones among `calls` say it.
        """
        distinct, own = list(dict.fromkeys(calls)), list(dict.fromkeys(own))
        found = self._answers(reference, entry_point, own, math.inf)
        others = [call for call in distinct if call not in found]
        if others:
            needed = _slowest(found.values())
            limit = call_limit(self.limits.time_s, needed or 0.0, self.least_s)
            found |= self._answers(reference, entry_point, others, limit)
            late = [call for call in others if not found[call].valid and found[call].seconds]
            if late and needed is None:
                limit = call_limit(self.limits.time_s, _slowest(found.values()), self.least_s)
                found |= self._answers(reference, entry_point, late, limit)
        return {call: found[call] for call in distinct}

    def _answers(self, reference: str, entry_point: str, calls: Sequence[str], limit: float) -> dict[str, Expected]:
        """The answers to distinct calls that may take `limit` seconds of processor time each."""
        asked: dict[str, Future[Expected]] = {}
        mine: dict[str, Future[Expected]] = {}
        found: dict[str, Expected] = {}
        with self._guard:
            for call in calls:
                known = self.cache.get(reference, entry_point, call, self._settings)
                if known is not None and (within := _within(known, limit)) is not None:
                    found[call] = within
                    continue
                key = (reference, entry_point, call, limit)
                if key not in self._asked:
                    self._asked[key] = mine[call] = Future()
                asked[call] = self._asked[key]
        if mine:
            self._ask(_Question(reference, entry_point, limit, mine))
        return found | {call: future.result() for call, future in asked.items()}

    def _ask(self, question: _Question) -> None:
        """Has the reference answer a question's calls; those that have a value again, under the second hash seed."""
        limits, first = replace(self.limits, cpu_s=question.limit), dict[str, list[Answer]]()
        try:
            for seed in HASH_SEEDS:
                calls = list(first or question.futures)
                run = self.run(question.reference, question.entry_point, calls, limits, len(calls), seed)
                for call, answer in zip(calls, run.answers, strict=True):
                    answers = [*first.pop(call, []), answer]
                    if len(answers) < len(HASH_SEEDS) and answer.kind is AnswerKind.VALUE:
                        first[call] = answers
                    else:
                        self._settle(question, call, answers, run.load_seconds)
                if not first:
                    return
        except BaseException as fault:
            self._drop(question, fault)
            raise

    def _drop(self, question: _Question, fault: BaseException) -> None:
        """A fault of ours: whoever waits for the question gets it too."""
        with self._guard:
            for call, future in question.futures.items():
                self._asked.pop(question.key(call), None)
                if not future.done():
                    future.set_exception(fault)

    def _settle(self, question: _Question, call: str, answers: list[Answer], load_seconds: float) -> None:
        known = replace(self._expected(call, answers, question.limit), load_seconds=load_seconds)
        self.cache.put(question.reference, question.entry_point, call, self._settings, known, _lasting(answers))
        with self._guard:
            self._asked.pop(question.key(call), None)
            if not question.futures[call].done():
                question.futures[call].set_result(_within(known, question.limit) or known)

    def _expected(self, call: str, answers: list[Answer], limit: float) -> Expected:
        kinds = [answer.kind for answer in answers]
        if AnswerKind.UNSCORED in kinds:
            return Expected(call, False, reason="unscored")
        for answer in answers:
            if answer.value is None:
                reason = f"{answer.kind.value}: {answer.detail}".rstrip(": ")
                return Expected(call, False, reason=reason, seconds=_out_of_time(answer) and limit)
            if isinstance(answer.value.data, Unreadable):
                return Expected(call, False, reason=f"unencodable: {answer.value.data.reason}")
        first, second = (answer.value for answer in answers if answer.value is not None)
        if not same(first.data, second.data, self.tolerance):
            return Expected(call, False, reason=VARIES)
        seconds = max(answer.seconds for answer in answers)
        return Expected(call, True, first.data, answers[0].text, wire=first.wire, seconds=seconds)


@dataclass(frozen=True)
class _Question:
    """Calls of one reference that are being answered, each with what waits for its answer."""

    reference: str
    entry_point: str
    limit: float
    futures: dict[str, Future[Expected]]

    def key(self, call: str) -> tuple[str, str, str, float]:
        return self.reference, self.entry_point, call, self.limit


def _slowest(known: Iterable[Expected]) -> float | None:
    return max((answer.seconds for answer in known if answer.valid), default=None)


def _within(known: Expected, limit: float) -> Expected | None:
    """What a kept answer says under a limit of processor time; None where the call has to be asked again."""
    if known.valid and known.seconds > limit:
        return Expected(known.call, False, reason=_LATE, seconds=limit)
    if not known.valid and 0 < known.seconds < limit:
        return None
    return known


def _lasting(answers: list[Answer]) -> bool:
    """Whether the outcome would be the same on another day: a time-out may only say that the machine was busy, unless
    it was processor time that ran out."""
    lasting = (AnswerKind.VALUE, AnswerKind.RAISED, AnswerKind.UNENCODABLE)
    return all(answer.kind in lasting or _out_of_time(answer) for answer in answers)


def _out_of_time(answer: Answer) -> bool:
    """Whether a call ran out of processor time."""
    return answer.kind is AnswerKind.TIMEOUT and answer.seconds > 0


class ReferenceCache:
    """Answers by reference, entry point, call and settings (the judge's tolerance and limits).

    Thread-safe; several processes may share a folder.

    folder: where `references.sqlite` lies, made when needed; None keeps answers in memory alone. memory_entries: how
    many answers stay in memory.
    """

    def __init__(self, folder: Path | None = None, memory_entries: int = 100_000) -> None:
        self._memory: OrderedDict[str, Expected] = OrderedDict()
        self._limit = memory_entries
        self._lock = threading.Lock()
        self._disk: sqlite3.Connection | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._disk = sqlite3.connect(folder / CACHE_FILE, check_same_thread=False, timeout=30, isolation_level=None)
            self._disk.execute("PRAGMA journal_mode=WAL")
            self._disk.execute("PRAGMA synchronous=NORMAL")
            self._disk.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT) WITHOUT ROWID")

    def get(self, reference: str, entry_point: str, call: str, settings: str) -> Expected | None:
        """The kept answer, or None."""
        key = _key(reference, entry_point, call, settings)
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
            if self._disk is None:
                return None
            row = self._disk.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            known = _read_answer(call, row[0])
            self._remember(key, known)
            return known

    def put(self, reference: str, entry_point: str, call: str, settings: str, known: Expected, lasting: bool) -> None:
        """Keeps an answer, on disk too when it is `lasting`. What is unscored is never kept."""
        if known.reason == "unscored":
            return
        key = _key(reference, entry_point, call, settings)
        with self._lock:
            self._remember(key, known)
            if self._disk is not None and lasting:
                kept = {"wire" if known.valid else "reason": known.wire or known.reason, "seconds": known.seconds}
                answer = json.dumps(kept | {"load_seconds": known.load_seconds})
                self._disk.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer))

    def _remember(self, key: str, known: Expected) -> None:
        self._memory[key] = known
        self._memory.move_to_end(key)
        while len(self._memory) > self._limit:
            self._memory.popitem(last=False)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._disk is not None:
                self._disk.close()
                self._disk = None


def _key(reference: str, entry_point: str, call: str, settings: str) -> str:
    program = _digest(reference, entry_point, "")  # the empty part keeps the keys of files that exist
    return _digest(program, call, settings)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read_answer(call: str, row: str) -> Expected:
    fields = json.loads(row)
    if "wire" not in fields:
        return Expected(call, False, reason=fields["reason"], seconds=fields["seconds"])
    value = decode(fields["wire"])
    load = fields.get("load_seconds", 0.0)  # files of earlier versions have none
    return Expected(call, True, value, show(value), wire=fields["wire"], seconds=fields["seconds"], load_seconds=load)
