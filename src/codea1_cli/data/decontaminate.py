"""Rows that are tasks of a benchmark, or too close to one; and rows that repeat an earlier one: by id, by text, by
code, and nearly."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from codea1_cli.data import Rows, similarity
from codea1_cli.errors import EnvironmentFault, Unreachable, UserError
from codea1_cli.evals import registry
from codea1_cli.extract.source import parse, unparse
from codea1_cli.problems.benchmark_files import PublicTask
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.row_files import whole_rows
from codea1_cli.recipe.data_options import Thresholds

CODE_SHINGLE = 3
_BRACKETS = re.compile(r"\b(?:set|frozenset|tuple|list)\b(?=\()|[\[\](){}]")
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


def load_benchmarks(folder: Path | None) -> tuple[list[PublicTask], dict[str, str]]:
    """Every task of the benchmarks that are found, and by title why another is not, in the same words where one cause
    keeps several away: in `folder`, else as `find_file` finds them.

    Raises:
        UserError: a folder that is given holds none of them, or a file is none that can be read.
    """
    tasks: list[PublicTask] = []
    missing: dict[str, str] = {}
    if folder is not None and not folder.is_dir():
        raise UserError(f"no folder {folder}: nothing to decontaminate against", hint=_WITHOUT)
    for row in registry.ROWS.values():
        try:
            file = row.file(folder)
        except (UserError, EnvironmentFault) as fault:
            missing[row.title] = fault.why if isinstance(fault, Unreachable) else fault.what
        else:
            published = list(_published(row, file))
            tasks += published
            if not published:
                missing[row.title] = f"{file} holds no task"
    if folder is not None and not tasks:
        raise UserError(f"{folder} holds no benchmark: {', '.join(missing)} were looked for", hint=_WITHOUT)
    return tasks, missing


_WITHOUT = "--benchmarks DIR with their files; or --no-decontaminate"


def _published(row: registry.BenchmarkRow, file: Path) -> Iterator[PublicTask]:
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

    def __init__(self, tasks: Iterable[PublicTask], thresholds: Thresholds) -> None:
        self.limits = thresholds
        self.signer = similarity.Signer()
        self.tasks = list(tasks)
        self.by_id = {task.id.casefold(): task for task in self.tasks}
        self.by_hash: dict[str, PublicTask] = {}
        self.by_name: dict[str, list[int]] = defaultdict(list)
        self.by_run: dict[str, PublicTask] = {}
        self.questions = [similarity.question_set(task.question) for task in self.tasks]
        self.codes = [code_set(task.code) for task in self.tasks]
        self.facts = [stated_facts(task.tests, task.entry_point) for task in self.tasks]
        self.question_index = self._index(thresholds.bench_question, self.questions)
        self.code_index = self._index(thresholds.bench_code, self.codes)
        for number, task in enumerate(self.tasks):
            self.by_name[folded(task.entry_point)].append(number)
            if (digest := similarity.blind_hash(task.code)) is not None:
                self.by_hash.setdefault(digest, task)
            for run in _runs(task.question, thresholds.bench_overlap):
                self.by_run.setdefault(run, task)

    def _index(self, threshold: float, sets: list[set[str]]) -> Any:
        from datasketch import MinHashLSH

        index = MinHashLSH(num_perm=similarity.NUM_PERM, params=similarity.bands(threshold))
        for number, elements in enumerate(sets):
            if elements:
                index.insert(number, self.signer.sign(elements))
        return index

    def collision(self, problem: Problem) -> Collision | None:
        """What the problem collides with, None for a clean one."""
        if (task := self.by_id.get(problem.id.casefold())) is not None:
            return _hit("same_id", task)
        digest = similarity.blind_hash(problem.reference)
        if digest is not None and (task := self.by_hash.get(digest)) is not None:
            return _hit("same_code", task)
        question = similarity.question_set(problem.question)
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
        scored = [(similarity.jaccard(elements, sets[number]), -number) for number in numbers]
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
    tokens = similarity.blind_tokens(program)
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
    kept = similarity.telling(similarity.words(similarity.prose(question)))
    return similarity.shingles(kept, length) if len(kept) >= length else set()


def _hit(reason: str, task: PublicTask, score: float | None = None) -> Collision:
    text = " ".join(similarity.prose(task.question).split())
    return Collision(reason, f"{task.benchmark} {task.id}", text, None if score is None else round(score, 3))


def stated_facts(source: str, name: str) -> set[str]:
    """What the asserts of `source` state about `name`, as `arguments -> answer`; lists, tuples and sets have one form.

    `assert f(x) == y`, `assert set(f(x)) == set(y)`, `assert f(x)`, `assert not f(x)` and `assert isclose(f(x), y)`.
    """
    tree = parse(source)
    facts: set[str] = set()
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, ast.Assert):
            continue
        test, answer = node.test, "True"
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            answer = "False"
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            answer = _content(test.comparators[0])
            test = test.left
        elif isinstance(test, ast.Call) and getattr(test.func, "attr", "") == "isclose" and len(test.args) > 1:
            answer = _content(test.args[1])
        for call in ast.walk(test):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name and call.args:
                arguments = ", ".join(map(_content, call.args))
                if arguments.strip(" ,'\""):  # that nothing becomes nothing says little about a function
                    facts.add(f"{arguments} -> {answer}")
    return facts


def _content(node: ast.expr) -> str:
    return _BRACKETS.sub("", unparse(node) or "").strip(" ,")


# -- rows that repeat an earlier one ----------------------------------------------------------------------------------
Found = tuple[int, str, int, float | None]
"""(row, reason, the earlier row, similarity or None)"""


def exact_duplicates(rows: Rows, contaminated: Iterable[int] = ()) -> Iterator[Found]:
    """Rows with the id (same_id), the texts (same_text) or the code (same_code, names apart) of an earlier row.

    A row like one that was removed for a benchmark goes too, wherever it stands: that benchmark may hold another
    solution of the same task.
    """
    seen: dict[bytes, int] = {}
    for number in contaminated:
        _, *keys = _keys(rows.get(number))
        for _, key in keys:
            seen.setdefault(key, number)
    for number, problem in rows.living():
        keys = _keys(problem)
        hit = next(((reason, seen[key]) for reason, key in keys if key in seen), None)
        if hit is not None:
            yield number, *hit, None
            continue
        seen.update((key, number) for _, key in keys)


def _keys(problem: Problem) -> list[tuple[str, bytes]]:
    """(reason, key) of a problem; the id comes first."""
    keys = [
        ("same_id", b"i" + similarity.text_hash(problem.id).encode()),
        ("same_text", b"t" + similarity.text_hash(problem.question, problem.reference).encode()),
    ]
    if (digest := similarity.blind_hash(problem.reference)) is not None:
        keys.append(("same_code", b"c" + digest.encode()))
    return keys


def near_duplicates(rows: Rows, thresholds: Thresholds) -> Iterator[Found]:
    """Rows whose question or code is nearly an earlier row's; the earlier one is one that stays."""
    signer = similarity.Signer()
    by_question = similarity.Bands(thresholds.near_question, signer)
    by_code = similarity.Bands(thresholds.near_code, signer)
    for number, problem in rows.living():
        by_question.add(number, similarity.question_set(problem.question))
        code = code_set(problem.reference)
        by_code.add(number, code if len(code) >= _SMALL else set())

    @lru_cache(maxsize=4096)
    def questions(number: int) -> set[str]:
        return similarity.question_set(rows.get(number).question)

    @lru_cache(maxsize=4096)
    def codes(number: int) -> set[str]:
        return code_set(rows.get(number).reference)

    gone: set[int] = set()
    for reason, bands, sets, threshold in (
        ("near_question", by_question, questions, thresholds.near_question),
        ("near_code", by_code, codes, thresholds.near_code),
    ):
        for number, earlier in bands.candidates():
            if number in gone:
                continue
            scored = [(similarity.jaccard(sets(number), sets(other)), -other) for other in earlier if other not in gone]
            score, other = max(scored, default=(0.0, 0))
            if score >= threshold:
                gone.add(number)
                yield number, reason, -other, round(score, 3)
