"""Rows that are tasks of a benchmark, or too close to one, and the thresholds of that and of deduplication.

Each threshold has a name and is adjusted with `--threshold NAME=VALUE`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from codea1_cli.data.program import stated_facts
from codea1_cli.data.similarity import (
    NUM_PERM,
    Signer,
    bands,
    blind_hash,
    blind_tokens,
    jaccard,
    prose,
    question_set,
    shingles,
    telling,
    words,
)
from codea1_cli.errors import UserError
from codea1_cli.evals import registry
from codea1_cli.problems.benchmark_files import Task, shared_folder
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import whole_rows

Share = Annotated[float, Field(gt=0.0, le=1.0)]


class Thresholds(BaseModel):
    """Jaccard similarities from 0 to 1 at and above which two rows collide, and one length in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    near_question: Share = Field(0.85, description="questions of two rows")
    near_code: Share = Field(0.95, description="references of two rows, names apart")
    bench_question: Share = Field(0.72, description="a row's question and a benchmark's")
    bench_name: Share = Field(0.5, description="the same, where the function's name is the same too")
    bench_code: Share = Field(0.85, description="a row's reference and a benchmark's, names apart")
    bench_overlap: Annotated[int, Field(ge=3)] = Field(
        10, description="telling words in a row that a question shares with a benchmark's"
    )


def read_thresholds(settings: Iterable[str]) -> Thresholds:
    """Thresholds from `name=value` texts.

    Raises:
        UserError: an unknown name, or a value out of range.
    """
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in Thresholds.model_fields:
            raise UserError(f"no threshold {setting!r}", hint=f"NAME=VALUE with {', '.join(Thresholds.model_fields)}")
        values[name] = value
    try:
        return Thresholds.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"threshold {first['loc'][0]}: {first['msg']}", hint="a share from 0 to 1") from None


CODE_SHINGLE = 3
_SMALL = 12  # a reference of fewer distinct runs of tokens is too short to be like another by accident or otherwise


@dataclass(frozen=True)
class Collision:
    """What a row collides with: `other` names it, `score` is the similarity and `detail` what is shared, where there
    is one."""

    reason: str
    other: str
    text: str = ""
    score: float | None = None
    detail: str = ""


def benchmark_folder(folder: Path | None) -> Path:
    """`folder`, else the benchmarks below CODEA1_SHARED.

    Raises:
        UserError: there is no such folder.
    """
    chosen = folder or shared_folder()
    if chosen is None or not chosen.is_dir():
        where = f"no folder {chosen}" if chosen else "no folder of benchmarks given"
        raise UserError(
            f"{where}: nothing to decontaminate against",
            hint=f"--benchmarks DIR with {_file_names()}; or --no-decontaminate",
        )
    return chosen


def load_benchmarks(folder: Path | None) -> list[Task]:
    """Every task of the benchmarks that lie in the folder (`benchmark_folder`).

    Raises:
        UserError: the folder holds none of them, or one that cannot be read.
    """
    chosen = benchmark_folder(folder)
    tasks = [task for row in registry.ROWS.values() for task in _published(row, chosen / row.files[0])]
    if not tasks:
        raise UserError(f"{chosen} holds no benchmark", hint=f"it should hold {_file_names()}")
    return tasks


def missing_benchmarks(folder: Path | None) -> list[str]:
    """Titles of the benchmarks that the folder lacks."""
    chosen = benchmark_folder(folder)
    return [row.title for row in registry.ROWS.values() if not (chosen / row.files[0]).is_file()]


def _file_names() -> str:
    return ", ".join(row.files[0] for row in registry.ROWS.values())


def _published(row: registry.BenchmarkRow, file: Path) -> Iterator[Task]:
    if not file.is_file():
        return
    benchmark = row.open("full")
    for place, published in whole_rows(file):
        try:
            yield benchmark.public_task(published)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{place}: no row of {row.title}: {error}", hint="fetch the file again") from None


class Decontaminator:
    """Compares problems with the tasks of benchmarks. The first rule that holds names the collision:

    same_id: the row is the task by its id (`mbpp/2` is `Mbpp/2`). same_code: equal references, names apart.
    same_test: the same function's name, and one test of it, arguments and answer. question: similar questions.
    name: the same function's name and less similar questions. code: similar references, names apart. overlap: a long
    run of telling words shared.
    """

    def __init__(self, tasks: Iterable[Task], thresholds: Thresholds) -> None:
        self.limits = thresholds
        self.signer = Signer()
        self.tasks = list(tasks)
        self.by_id = {task.id.casefold(): task for task in self.tasks}
        self.by_hash: dict[str, Task] = {}
        self.by_name: dict[str, list[int]] = defaultdict(list)
        self.by_run: dict[str, Task] = {}
        self.questions = [question_set(task.question) for task in self.tasks]
        self.codes = [code_set(task.code) for task in self.tasks]
        self.facts = [stated_facts(task.tests, task.entry_point) for task in self.tasks]
        self.question_index = self._index(thresholds.bench_question, self.questions)
        self.code_index = self._index(thresholds.bench_code, self.codes)
        for number, task in enumerate(self.tasks):
            self.by_name[folded(task.entry_point)].append(number)
            if (digest := blind_hash(task.code)) is not None:
                self.by_hash.setdefault(digest, task)
            for run in _runs(task.question, thresholds.bench_overlap):
                self.by_run.setdefault(run, task)

    def _index(self, threshold: float, sets: list[set[str]]) -> Any:
        from datasketch import MinHashLSH

        index = MinHashLSH(num_perm=NUM_PERM, params=bands(threshold))
        for number, elements in enumerate(sets):
            if elements:
                index.insert(number, self.signer.sign(elements))
        return index

    def collision(self, problem: Problem) -> Collision | None:
        """What the problem collides with, None for a clean one."""
        if (task := self.by_id.get(problem.id.casefold())) is not None:
            return _hit("same_id", task)
        digest = blind_hash(problem.reference)
        if digest is not None and (task := self.by_hash.get(digest)) is not None:
            return _hit("same_code", task)
        question = question_set(problem.question)
        named = self.by_name.get(folded(problem.entry_point), [])
        if named:
            facts = stated_facts("\n".join(problem.tests), problem.entry_point)
            for number in named:
                if shared := facts & self.facts[number]:
                    return replace(_hit("same_test", self.tasks[number]), detail=min(shared)[:200])
        return (
            self._like("question", question, self.question_index, self.questions, self.limits.bench_question)
            or self._best("name", question, named, self.questions, self.limits.bench_name)
            or self._like_code(problem)
            or self._overlap(problem)
        )

    def _like(
        self, reason: str, elements: set[str], index: Any, sets: list[set[str]], threshold: float
    ) -> Collision | None:
        found = index.query(self.signer.sign(elements)) if elements else []
        return self._best(reason, elements, found, sets, threshold)

    def _best(
        self, reason: str, elements: set[str], numbers: Iterable[int], sets: list[set[str]], threshold: float
    ) -> Collision | None:
        scored = [(jaccard(elements, sets[number]), -number) for number in numbers]
        score, number = max(scored, default=(0.0, 0))
        return _hit(reason, self.tasks[-number], score) if score >= threshold else None

    def _like_code(self, problem: Problem) -> Collision | None:
        elements = code_set(problem.reference)
        if len(elements) < _SMALL:
            return None
        return self._like("code", elements, self.code_index, self.codes, self.limits.bench_code)

    def _overlap(self, problem: Problem) -> Collision | None:
        for run in sorted(_runs(problem.question, self.limits.bench_overlap)):
            if (task := self.by_run.get(run)) is not None:
                return replace(_hit("overlap", task), detail=run)
        return None


def code_set(program: str) -> set[str]:
    """What a program is compared by: runs of its tokens, names numbered, and how often each run occurs."""
    tokens = blind_tokens(program)
    counts: Counter[str] = Counter()
    found: set[str] = set()
    for start in range(max(1, len(tokens) - CODE_SHINGLE + 1)) if tokens else ():
        run = " ".join(tokens[start : start + CODE_SHINGLE])
        counts[run] += 1
        found.add(f"{counts[run]} {run}")
    return found


def folded(name: str) -> str:
    """A function's name without case and underscores."""
    return name.replace("_", "").casefold()


def _runs(question: str, length: int) -> set[str]:
    kept = telling(words(prose(question)))
    return shingles(kept, length) if len(kept) >= length else set()


def _hit(reason: str, task: Task, score: float | None = None) -> Collision:
    text = " ".join(prose(task.question).split())
    return Collision(reason, f"{task.benchmark} {task.id}", text, None if score is None else round(score, 3))
