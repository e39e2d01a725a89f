"""The best of n solutions by a Test LLM's suites: what is sampled, run and kept for `evals.selection`.

Nothing here sees a reference or a benchmark's tests: a task is what its prompt says (`statement`). Two files lie beside
the result of a sample file NAME.jsonl: `NAME.TAG.suites.jsonl` has the replies and `NAME.TAG.matrix.jsonl` what every
candidate made of them; TAG says who wrote the tests and how many. Both get a line per task, when it is there.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codea1_cli.durable import append_row, write_rows
from codea1_cli.errors import UserError, some
from codea1_cli.evals.benchmark import CodeTask, Sample, statement
from codea1_cli.evals.results import passed_by_task
from codea1_cli.evals.samples import as_file_name, keep_settings
from codea1_cli.evals.selection import SELECTORS, Assert, Matrix, choose, gains
from codea1_cli.evals.test_generation.sampling import sample_replies
from codea1_cli.extract import AssertStatement, Stated, parse_suite
from codea1_cli.files import kept_rows
from codea1_cli.judging.compare import numbered, same
from codea1_cli.models.sampler import REPLIES, ModelRef, SamplingSettings, context_of, open_sampler
from codea1_cli.problems.problem import Problem
from codea1_cli.sandbox.base import Limits, Sandbox, in_order
from codea1_cli.sandbox.values import Unreadable, show
from codea1_cli.sandbox.verdicts import Answer, AnswerKind

LIMITS = Limits(time_s=4.0, cpu_s=1.0, patience=1)
"""Of a call: no reference says how long it may take."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Candidates:
    """A task as its prompt states it, and its solutions by number."""

    problem: Problem
    programs: tuple[str, ...]


def candidates_of(tasks: Iterable[CodeTask], samples: Iterable[Sample]) -> list[Candidates]:
    """The tasks that have samples, with these by number."""
    programs: dict[str, list[str]] = {}
    for one in sorted(samples, key=lambda one: one.number):
        programs.setdefault(one.task_id, []).append(one.solution)
    return [
        Candidates(statement(task.id, task.entry_point, task.prompt), tuple(programs[task.id]))
        for task in tasks
        if task.id in programs
    ]


@dataclass(frozen=True)
class Plan:
    """What candidates are told apart by.

    model: the Test LLM; None: what it wrote before. It writes `sampling.n` suites of `tests` asserts from the statement
    alone or, with `each`, against each distinct program of a task.
    """

    model: ModelRef | None
    sampling: SamplingSettings
    tests: int = 8
    each: bool = False
    engine: str = "auto"

    def tag(self, result: Path) -> str:
        """What the names of the files beside a result have of this plan; without a model that of the files there.

        Raises:
            UserError: there are none, or several.
        """
        if self.model is not None:
            how = f"m{self.sampling.n}{'-each' if self.each else ''}-s{self.sampling.seed}"
            return f"{as_file_name(self.model.label)}-{how}"
        head, tail = f"{_stem(result)}.", ".matrix.jsonl"
        names = sorted(file.name for file in result.parent.glob(f"*{tail}") if file.name.startswith(head))
        if not names:
            raise UserError(f"no tests are kept beside {result}", hint="--test-model MODEL writes them")
        if len(names) > 1:
            raise UserError(f"tests of several are kept: {some(names)}", hint="--test-model says whose, with --suites")
        return names[0].removeprefix(head).removesuffix(tail)


def _stem(result: Path) -> str:
    return result.name.removesuffix(".json").removesuffix(".results")


def beside(result: Path, tag: str, what: str) -> Path:
    """The file of a plan beside a result file: `suites`, `matrix`, or a selector's chosen solutions."""
    return result.with_name(f"{_stem(result)}.{tag}.{what}.jsonl")


def write_suites(every: Sequence[Candidates], plan: Plan, file: Path, progress: Progress) -> dict[str, list[str]]:
    """The suites of each task, by its id; sampled as far as `file` lacks them.

    Raises:
        UserError: the file holds suites that were sampled otherwise, or lacks some and the plan names no model.
    """
    shown = {one.problem.id: _shown(one, plan.each) for one in every}
    if plan.model is not None:
        about = {key: value for key, value in asdict(plan.sampling).items() if key != "stop"}
        about |= {**plan.model.identity(), "tests": plan.tests, "each": plan.each}
        keep_settings(file, file.with_suffix(".settings.json"), about, "choose another --out, or delete the file")
    found = {row["task_id"]: row for row in kept_rows(file)}
    keys = {one.problem.id: _digest([one.problem.question, *shown[one.problem.id]]) for one in every}

    def there(task: str) -> bool:
        return task in found and (plan.model is None or found[task]["key"] == keys[task])

    left = [one for one in every if not there(one.problem.id)]
    done = len(every) - len(left)
    progress("suites", done, len(every))
    if left and plan.model is None:
        raise UserError(
            f"{file} lacks the suites of {some([one.problem.id for one in left])}", hint="--test-model writes them"
        )
    if left and plan.model is not None:
        room = (context_of(plan.model) or 16_384) - plan.sampling.max_new_tokens
        asked = [(one.problem, program) for one in left for program in shown[one.problem.id]]
        kept = file.with_name(file.name.removesuffix(".jsonl") + REPLIES)
        with closing(open_sampler(plan.model, plan.engine, kept)) as sampler:
            replies = sample_replies(sampler, asked, plan.tests, plan.sampling, room)
            for one in left:
                task = one.problem.id
                suites = [text for _ in shown[task] for text in next(replies)]
                found[task] = {"task_id": task, "key": keys[task], "suites": suites}
                append_row(file, found[task])
                done += 1
                progress("suites", done, len(every))
        kept.unlink(missing_ok=True)
    return {one.problem.id: found[one.problem.id]["suites"] for one in every}


def _shown(one: Candidates, each: bool) -> list[str | None]:
    return [*dict.fromkeys(program for program in one.programs if program and each)] or [None]


def _digest(parts: Iterable[Any]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:16]


def fill_matrices(
    every: Sequence[Candidates],
    suites: Mapping[str, Sequence[str]],
    file: Path,
    open_sandbox: Callable[[], Sandbox],
    progress: Progress,
) -> dict[str, Matrix]:
    """The matrix of each task, run as far as `file` lacks it; a task on which the sandbox fails has none."""
    keys = {one.problem.id: _digest([one.programs, suites[one.problem.id]]) for one in every}
    found = {row["task_id"]: _read(row) for row in kept_rows(file) if keys.get(row["task_id"]) == row["key"]}
    left = [one for one in every if one.problem.id not in found]
    progress("running", len(found), len(every))
    if left:
        with closing(open_sandbox()) as sandbox:

            def run(one: Candidates) -> tuple[Matrix, tuple[str, ...]] | None:
                return matrix_of(sandbox, one, suites[one.problem.id])

            for done, (one, made) in enumerate(in_order(run, left, sandbox.workers), len(every) - len(left) + 1):
                if made is not None:
                    task = one.problem.id
                    found[task], calls = made
                    append_row(file, _row(task, keys[task], found[task], calls))
                progress("running", done, len(every))
    return {one.problem.id: found[one.problem.id] for one in every if one.problem.id in found}


def matrix_of(sandbox: Sandbox, one: Candidates, suites: Sequence[str]) -> tuple[Matrix, tuple[str, ...]] | None:
    """Runs each distinct program once on all calls of the suites; with the calls' texts. None: the sandbox failed."""
    entry = one.problem.entry_point
    read = [[a for a in parse_suite(text, entry) if a.invalid is None and a.call] for text in suites]
    calls = tuple(dict.fromkeys(str(statement.call) for suite in read for statement in suite))
    given: dict[str, list[Stated | None]] = {}
    for program in dict.fromkeys(one.programs):
        answers = sandbox.run(program, entry, calls, LIMITS).answers if program and calls else []
        if any(answer.kind is AnswerKind.UNSCORED for answer in answers):
            return None
        given[program] = [*map(_value, answers), *[None] * (len(calls) - len(answers))]
    numbers, asserts = [], []
    for place, call in enumerate(calls):
        mine = [given[program][place] for program in one.programs]
        numbers.append(tuple(numbered(mine, _equal)))
        stated = [first for suite in read if (first := _stated(suite, call)) is not None]
        kinds = numbered(stated, _equal)
        for kind, suites_of_it in Counter(kinds).items():
            value = stated[kinds.index(kind)].value
            passed = tuple(answer is not None and _equal(answer.value, value) for answer in mine)
            asserts.append(Assert(f"assert {call} == {show(value)}", suites_of_it, passed))
    return Matrix(len(one.programs), tuple(asserts), tuple(numbers)), calls


def _value(answer: Answer) -> Stated | None:
    plain = answer.value is not None and not isinstance(answer.value.data, Unreadable)
    return Stated(answer.value.data) if answer.value is not None and plain else None


def _equal(a: Any, b: Any) -> bool:
    return same(a, b, arrays_as_lists=True)


def _stated(suite: Sequence[AssertStatement], call: str) -> Stated | None:
    """What a suite states of a call: the first value, if it states several."""
    return next((one.stated for one in suite if one.call == call and one.stated is not None), None)


def _row(task: str, key: str, matrix: Matrix, calls: Sequence[str]) -> dict[str, Any]:
    asserts = [{"assert": a.text, "suites": a.suites, "passed": list(map(int, a.passed))} for a in matrix.asserts]
    answers = dict(zip(calls, matrix.answers, strict=True))
    return {"task_id": task, "key": key, "candidates": matrix.candidates, "asserts": asserts, "answers": answers}


def _read(row: Mapping[str, Any]) -> Matrix:
    asserts = tuple(Assert(a["assert"], a["suites"], tuple(map(bool, a["passed"]))) for a in row["asserts"])
    return Matrix(row["candidates"], asserts, tuple(map(tuple, row["answers"].values())))


# -- the whole ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Choice:
    """What was chosen: the number of the chosen solution by selector and task. `files`: the suites, the matrix and the
    chosen solutions; unscored: tasks on which the sandbox failed, of which nothing is chosen."""

    tag: str
    selector: str
    chosen: dict[str, dict[str, int]]
    asserts: int
    unscored: tuple[str, ...]
    files: dict[str, str]

    def record(self, verdicts: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
        """What a result file has of it; verdicts: that file's own."""
        by_column = {column: passed_by_task(verdicts, columns[: at + 1]) for at, column in enumerate(columns)}
        figures = {
            name: {column: gains(passed, chosen) for column, passed in by_column.items()}
            for name, chosen in self.chosen.items()
        }
        about = {"tag": self.tag, "selector": self.selector, "asserts": self.asserts, "unscored": list(self.unscored)}
        return {**about, **self.files, "figures": figures}


def choose_all(
    every: Sequence[Candidates],
    plan: Plan,
    selector: str,
    result: Path,
    open_sandbox: Callable[[], Sandbox],
    progress: Progress,
) -> Choice:
    """Chooses a solution of each task, and writes the chosen ones as a sample file. `result`: the file beside which all
    is kept.

    Raises:
        UserError: as `Plan.tag` and `write_suites`.
    """
    tag = plan.tag(result)
    files = {what: beside(result, tag, what) for what in ("suites", "matrix")} | {
        "chosen": beside(result, tag, selector)
    }
    suites = write_suites(every, plan, files["suites"], progress)
    matrices = fill_matrices(every, suites, files["matrix"], open_sandbox, progress)
    chosen = {name: {task: choose(matrix, name) for task, matrix in matrices.items()} for name in SELECTORS}
    rows = [
        {"task_id": one.problem.id, "solution": one.programs[chosen[selector][one.problem.id]]}
        for one in every
        if one.problem.id in matrices
    ]
    write_rows(files["chosen"], rows)
    unscored = tuple(one.problem.id for one in every if one.problem.id not in matrices)
    asserts = sum(len(matrix.asserts) for matrix in matrices.values())
    return Choice(tag, selector, chosen, asserts, unscored, {name: str(file) for name, file in files.items()})
