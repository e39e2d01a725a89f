"""The folder that a preparation leaves: its files appear together, `card.json` last."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from codea1_cli import __version__
from codea1_cli.data import Card, WorkFolder
from codea1_cli.data.stages import Line, Prepared
from codea1_cli.durable import fsync_folder
from codea1_cli.errors import UserError, counted
from codea1_cli.problems.problem import Problem, parquet_table
from codea1_cli.recipe.data_options import Options

CARD, WORK = "card.json", ".work"
REMOVED, SLOW = "removed.jsonl", "slow.jsonl"
_SPLITS = (f"{split}.{kind}" for split in ("train", "val", "test") for kind in ("jsonl", "parquet"))
_OURS = {WORK, CARD, "README.md", REMOVED, SLOW, *_SPLITS}
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

            self._parquet = pq.ParquetWriter(self.paths["parquet"].absolute(), parquet_table([]).schema)

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


def check_out(out: Path, ours: Collection[str] = _OURS) -> None:
    """Raises UserError when the folder holds what no command left that writes files of these names, a card among
    them."""
    strangers = sorted(p.name for p in out.iterdir() if p.name not in ours) if out.is_dir() else []
    if strangers or (out.is_dir() and any(out.iterdir()) and not (out / WORK).is_dir() and not (out / CARD).is_file()):
        raise UserError(
            f"{out} holds other files{': ' + ', '.join(strangers[:3]) if strangers else ''}", hint="give a new folder"
        )


def write_folder(prepared: Prepared, card: Card, options: Options, work: WorkFolder) -> Card:
    """Writes the splits, what was removed, the slow references and the card.

    Raises:
        UserError: no problem is left; the first removed rows are named.
    """
    card.read = len(prepared.rows.stage)
    for line in prepared.rows.stage:
        if "problem" not in line:
            card.removed.setdefault("read", Counter())[line["reason"]] += 1
    for stage, lines in prepared.removed.items():
        card.removed[stage] = Counter(line["reason"] for line in lines)
    card.benchmarks = prepared.benchmarks
    card.extra_tests_dropped = prepared.extra_dropped
    if not prepared.rows.count():
        reasons = Counter[str]()
        for counts in card.removed.values():
            reasons += counts
        why = ", ".join(f"{reason} {n}" for reason, n in reasons.most_common(4))
        first = [
            f"{line['where']}: {line['reason']}" + (f", {line['detail']}" if line.get("detail") else "")
            for _, line in islice(removed(prepared), 3)
        ]
        named = f"; the first: {'; '.join(first)}" if first else ""
        raise UserError(
            f"no problem is left of {counted(card.read, 'row')} ({why or 'the source is empty'}){named}",
            hint="--min-tests 0 keeps rows without tests, which are asserts of a row, or doctests of a function"
            if reasons["too_few_tests"]
            else None,
        )
    final = work.folder / "final"
    shutil.rmtree(final, ignore_errors=True)
    final.mkdir()
    _write_splits(prepared, card, options, final)
    rows = prepared.rows
    found = _write_lines(final / REMOVED, ({"stage": stage, **shown(line)} for stage, line in removed(prepared)))
    _write_lines(final / SLOW, ({"id": rows.get(row).id, "seconds": s} for row, s in prepared.slow if rows.alive[row]))
    card.files[REMOVED] = {"rows": sum(sum(counts.values()) for counts in card.removed.values()), **found}
    (final / "README.md").write_text(card.markdown(), encoding="utf-8")
    (final / CARD).write_text(card.json(), encoding="utf-8")
    for name in ("README.md", CARD):
        sealed(final / name)
    _move(final, work.folder.parent)
    return card


def removed(prepared: Prepared) -> Iterator[tuple[str, Line]]:
    """(stage, removed row) with its id, its place, and the row it collides with; stage by stage, rows in order."""
    rows = prepared.rows
    yield from (("read", line) for line in rows.stage if "problem" not in line)
    for stage, lines in prepared.removed.items():
        for line in lines:
            raw = rows.stage.at(line["row"])
            full = {**line, "id": raw["problem"]["id"], "where": raw["where"], "text": _short(raw["problem"])}
            if isinstance(line.get("other"), int):
                other = rows.stage.at(line["other"])["problem"]
                full |= {"other": other["id"], "other_text": _short(other)}
            yield stage, full


def shown(line: Line) -> Line:
    """A removed row as `removed.jsonl` holds it."""
    order = ("reason", "id", "where", "detail", "other", "score", "text", "other_text")
    return {key: line[key] for key in order if line.get(key) not in (None, "")}


def _short(problem: Line) -> str:
    return " ".join(problem["question"].split())[:300]


def _write_splits(prepared: Prepared, card: Card, options: Options, final: Path) -> None:
    names = ["train", *(["val"] if options.val else []), *(["test"] if options.test else [])]
    writers = {name: SplitWriter(final, name, options.formats) for name in names}
    for row, problem in prepared.rows.living():
        problem = _final(prepared, row, problem)
        writers[split_of(problem.id, options.seed, options.val, options.test)].add(problem)
        card.kept += 1
        card.licenses[problem.license] += 1
        card.sources[problem.source.partition("/")[0]] += 1
        card.tests[len(problem.tests)] += 1
        if row in prepared.tokens:
            card.prompt_tokens[prepared.tokens[row]] += 1
        if row in prepared.rates:
            card.solve_rates[prepared.rates[row]] += 1
    for name, writer in writers.items():
        card.files.update(writer.close())
        card.splits[name] = writer.count


def _final(prepared: Prepared, row: int, problem: Problem) -> Problem:
    """The problem with what the stages found out."""
    changes: dict[str, Any] = {}
    meta = {key: value for key, value in problem.meta.items() if key != "calls"}
    if row in prepared.rates:
        meta["solve_rate"] = prepared.rates[row]
    if row in prepared.extra and prepared.verify_stage is not None:
        changes["extra_tests"] = prepared.verify_stage.at(prepared.extra[row])["extra_tests"]
    return problem.model_copy(update={**changes, "meta": meta})


def _write_lines(path: Path, lines: Iterator[Line]) -> dict[str, Any]:
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=True) + "\n")
    return sealed(path)


def _move(final: Path, out: Path) -> None:
    """Without `card.json` a folder is not whole: it goes first and comes last."""
    (out / CARD).unlink(missing_ok=True)
    made = sorted(path.name for path in final.iterdir())
    for name in _OURS - {WORK, *made}:  # of an earlier preparation with other splits
        (out / name).unlink(missing_ok=True)
    for name in sorted(made, key=lambda name: name == CARD):
        (final / name).replace(out / name)
    fsync_folder(out)
    final.rmdir()


def new_card(title: str, command: str, options: Options, identity: dict[str, Any]) -> Card:
    """An empty card that says where the rows come from and what was asked."""
    return Card(title, command, __version__, options.seed, identity, options.on_the_card())
