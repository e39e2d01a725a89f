"""Compares what candidates answer with what the reference answers; all comparing happens here, in the parent.

What references answered is kept: in memory within bounds and, where a folder is given, on disk.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codea1_cli.judging.compare import same
from codea1_cli.sandbox.base import Limits, ProgramRun, Sandbox
from codea1_cli.sandbox.values import Unreadable, decode, show
from codea1_cli.sandbox.verdicts import Answer, AnswerKind, Expected, Value, Verdict, verdict_of

__all__ = ["CandidateResult", "Expected", "Judge", "ReferenceCache", "TestVerdict"]

HASH_SEEDS = (0, 1)
CACHE_FILE = "references.sqlite"


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """One test's verdict, and what the candidate gave, to show."""

    __test__ = False
    verdict: Verdict
    got: str = ""


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """One candidate's verdicts by call.

    `loaded` is None when the sandbox failed, False when the program did not load, for the reason in `load_verdict`
    (which its tests have too) and `load_detail`.
    """

    loaded: bool | None
    load_detail: str = ""
    verdicts: dict[str, TestVerdict] = field(default_factory=dict)
    load_verdict: Verdict | None = None


class Judge:
    """The one judge of training and evaluation. Thread-safe; every method blocks.

    tolerance: floats differ only beyond it, absolutely and relatively. cache: where the reference's answers are kept.
    """

    def __init__(
        self, sandbox: Sandbox, *, limits: Limits, tolerance: float = 1e-6, cache: ReferenceCache | None = None
    ) -> None:
        self.sandbox = sandbox
        self.limits = limits
        self.tolerance = tolerance
        self.cache = cache if cache is not None else ReferenceCache()
        self._settings = f"{tolerance!r} {limits.time_s!r} {limits.memory_mb}"
        self._guard = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}

    def loads(self, program: str, entry_point: str) -> bool | None:
        """Whether a program loads and defines its entry point; None when the sandbox failed."""
        return self.sandbox.run(program, entry_point, [], self.limits).loaded

    def expected(self, reference: str, entry_point: str, calls: Sequence[str]) -> dict[str, Expected]:
        """The reference's answer to each distinct call.

        Every call is answered twice, in interpreters of different hash seeds; it is a test only when both give the
        same value. Answers come from the cache where it has them; concurrent callers do not compute them twice.
        """
        with self._guard:
            lock = self._busy.setdefault(self.cache.program_key(reference, entry_point), threading.Lock())
        with lock:
            distinct = list(dict.fromkeys(calls))
            found = {call: self.cache.get(reference, entry_point, call, self._settings) for call in distinct}
            fresh = [call for call, known in found.items() if known is None]
            if fresh:
                runs = [self.sandbox.run(reference, entry_point, fresh, self.limits, seed) for seed in HASH_SEEDS]
                for call, *answers in zip(fresh, *(run.answers for run in runs), strict=True):
                    found[call] = known = self._settle(call, answers)
                    self.cache.put(reference, entry_point, call, self._settings, known, _lasting(answers))
            return {call: known for call, known in found.items() if known is not None}

    def _settle(self, call: str, answers: list[Answer]) -> Expected:
        kinds = [answer.kind for answer in answers]
        if AnswerKind.UNSCORED in kinds:
            return Expected(call, False, reason="unscored")
        for answer in answers:
            if answer.value is None:
                return Expected(call, False, reason=f"{answer.kind.value}: {answer.detail}".rstrip(": "))
            if isinstance(answer.value.data, Unreadable):
                return Expected(call, False, reason=f"unencodable: {answer.value.data.reason}")
        first, second = (answer.value for answer in answers if answer.value is not None)
        if not same(first.data, second.data, self.tolerance):
            return Expected(call, False, reason="differs between runs")
        return Expected(call, True, first.data, answers[0].text, wire=first.wire)

    def check(
        self, candidate: str, entry_point: str, calls: Sequence[str], expected: Mapping[str, Expected]
    ) -> CandidateResult:
        """Runs a candidate once on the distinct calls and judges each against `expected`.

        A call whose expected answer is not valid is not run and has no verdict.
        """
        distinct = [call for call in dict.fromkeys(calls) if call in expected and expected[call].valid]
        return self._judge(self.sandbox.run(candidate, entry_point, distinct, self.limits), distinct, expected)

    def _judge(self, run: ProgramRun, calls: list[str], expected: Mapping[str, Expected]) -> CandidateResult:
        verdicts = {}
        for call, answer in zip(calls, run.answers, strict=True):
            wanted = expected[call]
            if answer.value is not None and answer.value.wire and answer.value.wire == getattr(wanted, "wire", ""):
                verdicts[call] = TestVerdict(Verdict.PASSED, wanted.text)  # most answers: nothing to rebuild
                continue
            equal = answer.value is not None and same(answer.value.data, wanted.value, self.tolerance)
            verdicts[call] = TestVerdict(verdict_of(answer, equal), answer.text)
        if run.loaded:
            fault = None
        elif run.loaded is None:
            fault = Verdict.UNSCORED
        else:
            fault = run.load_kind.verdict if run.load_kind is not None else Verdict.LOAD_ERROR
        return CandidateResult(run.loaded, run.load_detail, verdicts, fault)

    def equal(self, value: object, stated: object) -> bool:
        """Whether an answer that a test states is the reference's value (an array may be stated as nested lists)."""
        plain = [part.data if isinstance(part, Value) else part for part in (value, stated)]
        return same(plain[0], plain[1], self.tolerance, arrays_as_lists=True)


def _lasting(answers: list[Answer]) -> bool:
    """Whether the outcome would be the same on another day: a time-out may only say that the machine was busy."""
    return all(answer.kind in (AnswerKind.VALUE, AnswerKind.RAISED, AnswerKind.UNENCODABLE) for answer in answers)


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

    def program_key(self, reference: str, entry_point: str) -> str:
        """A digest of the reference and its entry point."""
        return _digest(reference, entry_point, "")  # the empty part keeps the keys of files that exist

    def _key(self, reference: str, entry_point: str, call: str, settings: str) -> str:
        return _digest(self.program_key(reference, entry_point), call, settings)

    def get(self, reference: str, entry_point: str, call: str, settings: str) -> Expected | None:
        """The kept answer, or None."""
        key = self._key(reference, entry_point, call, settings)
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
        key = self._key(reference, entry_point, call, settings)
        with self._lock:
            self._remember(key, known)
            if self._disk is not None and lasting:
                answer = json.dumps({"wire": known.wire} if known.valid else {"reason": known.reason})
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


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read_answer(call: str, row: str) -> Expected:
    fields = json.loads(row)
    if "wire" not in fields:
        return Expected(call, False, reason=fields["reason"])
    value = decode(fields["wire"])
    return Expected(call, True, value, show(value), wire=fields["wire"])
