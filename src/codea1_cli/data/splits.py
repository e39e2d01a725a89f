"""The splits of a preparation: which problem goes where, and each one's files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codea1_cli.problems.problem import Problem, parquet_table

_GROUP = 1024  # rows of a parquet row group; fixed, since the bytes depend on it


def split_of(id: str, seed: int, val: float, test: float = 0.0) -> str:
    """`train`, `val` or `test`, of which the latter two hold the given shares of all ids."""
    digest = hashlib.sha256(f"{seed}\0{id}".encode("utf-8", "surrogatepass")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    if place < val:
        return "val"
    return "test" if place < val + test else "train"


class SplitWriter:
    """`NAME.jsonl` and `NAME.parquet` in a folder; the bytes depend on the rows alone."""

    def __init__(self, folder: Path, name: str, formats: Sequence[str]) -> None:
        self.name, self.count = name, 0
        self.paths = {kind: folder / f"{name}.{kind}" for kind in formats}
        self._jsonl = self.paths["jsonl"].open("wb") if "jsonl" in formats else None
        self._parquet: Any = None
        self._group: list[dict[str, Any]] = []
        if "parquet" in formats:
            import pyarrow.parquet as pq

            self._parquet = pq.ParquetWriter(self.paths["parquet"], parquet_table([]).schema)

    def add(self, problem: Problem) -> None:
        """Writes one row; in parquet `meta` is JSON text."""
        row = problem.model_dump()
        self.count += 1
        if self._jsonl is not None:
            self._jsonl.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        if self._parquet is not None:
            self._group.append(row)
            if len(self._group) >= _GROUP:
                self._write_group()

    def _write_group(self) -> None:
        self._parquet.write_table(parquet_table(self._group))
        self._group = []

    def close(self) -> dict[str, dict[str, Any]]:
        """Flushes to disk; returns rows, bytes and SHA-256 by file name."""
        if self._jsonl is not None:
            self._jsonl.close()
        if self._parquet is not None:
            if self._group:
                self._write_group()
            self._parquet.close()
        return {path.name: {"rows": self.count, **sealed(path)} for path in self.paths.values()}


def sealed(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file, which is on disk when this returns."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
