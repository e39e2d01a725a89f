"""What references answered, kept in memory within bounds and, where a folder is given, on disk."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import OrderedDict
from pathlib import Path

from codea1_cli.sandbox.values import decode, show
from codea1_cli.sandbox.verdicts import Expected

FILE = "references.sqlite"


class ReferenceCache:
    """Answers by reference, entry point, call and settings (the judge's tolerance and limits).

    Thread-safe; several processes may share a folder.

    folder: where `references.sqlite` lies, made when needed; None keeps answers in memory alone. memory_entries: how
    many answers stay in memory. tag: what else answers depend on (the interpreter, say).
    """

    def __init__(self, folder: Path | None = None, memory_entries: int = 100_000, tag: str = "") -> None:
        self._memory: OrderedDict[str, Expected] = OrderedDict()
        self._limit = memory_entries
        self._tag = tag
        self._lock = threading.Lock()
        self._disk: sqlite3.Connection | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._disk = sqlite3.connect(folder / FILE, check_same_thread=False, timeout=30, isolation_level=None)
            self._disk.execute("PRAGMA journal_mode=WAL")
            self._disk.execute("PRAGMA synchronous=NORMAL")
            self._disk.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT) WITHOUT ROWID")

    def program_key(self, reference: str, entry_point: str) -> str:
        """A digest of the reference and its entry point."""
        return _digest(reference, entry_point, self._tag)

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
            known = _read(call, row[0])
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


def _read(call: str, row: str) -> Expected:
    fields = json.loads(row)
    if "wire" not in fields:
        return Expected(call, False, reason=fields["reason"])
    value = decode(fields["wire"])
    return Expected(call, True, value, show(value), wire=fields["wire"])
