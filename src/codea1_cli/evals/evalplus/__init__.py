"""HumanEval+ and MBPP+ as `evals.benchmark.CodeBenchmark`s."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import platform
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from inspect import cleandoc
from pathlib import Path
from typing import Any

from codea1_cli.environment import cache_folder
from codea1_cli.errors import EnvironmentFault, UserError, first_line
from codea1_cli.evals.benchmark import CodeTask, Progress, ReferenceReport, Sample, Scored, ScoreOptions, Status
from codea1_cli.evals.evalplus.checking import PARTS, Checker, PartAnswers, environment, in_jail_source
from codea1_cli.evals.evalplus.tasks import (
    MAX_NEW_TOKENS,
    STYLES,
    PlusTask,
    load,
    prompt_ids,
    public_task,
    raw_solution,
    release_row,
    stops,
)
from codea1_cli.evals.registry import benchmark_row
from codea1_cli.evals.samples import sanitize_evalplus
from codea1_cli.extract.source import parse, unparse
from codea1_cli.problems.benchmark_files import PublicTask, docstring_of
from codea1_cli.problems.row_files import Skipped, no_text
from codea1_cli.sandbox.base import as_ended

MAX_PLUS = 32
"""Plus inputs of a task that become calls of a problem, at most."""
_MAX_CALL = 2_000  # characters of one of these calls
_KEEP_EVERY = 20  # references between two saves of the cache


class EvalPlusBenchmark:
    """One of the two, by its name: "humaneval" or "mbpp"."""

    columns: tuple[str, ...] = PARTS
    styles: tuple[str, ...] = STYLES
    max_new_tokens = MAX_NEW_TOKENS

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = benchmark_row(name).title
        self._hash, self._whole = "", False  # whether a reply comes with its own fence
        self._tasks: dict[str, PlusTask] = {}
        self._expected: dict[str, dict[str, PartAnswers]] = {}
        self._checker: Checker | None = None
        self._sandbox: Any = None

    def load(self, data: Path | None) -> list[CodeTask]:
        """The tasks, from the release file or the hub. Raises UserError or EnvironmentFault with the way out."""
        tasks, self._hash = load(self.name, data)
        self._tasks = {task.id: task for task in tasks}
        return [CodeTask(task.id, task.entry_point, task.prompt, task.reference, task) for task in tasks]

    def public_task(self, row: Mapping[str, Any]) -> PublicTask:
        """A row of the release file as training data is compared with it."""
        return public_task(benchmark_row(self.name), row)

    def problem(self, row: Mapping[str, Any]) -> dict[str, Any] | Skipped:
        """What a problem is made of: id, question, reference, entry point, the base tests, and as `calls` up to
        `MAX_PLUS` of the plus inputs."""
        humaneval = self.name == "humaneval"
        try:
            row = release_row(self.name, row)
        except (UserError, KeyError, ValueError, SyntaxError) as error:
            return Skipped("bad_field", first_line(error))
        tests_in = "test" if humaneval else "assertion"
        for name in ("task_id", "prompt", "canonical_solution", "entry_point", tests_in):
            if (why := no_text(name, row.get(name))) is not None:
                return why
        inputs = row.get("plus_input") or []
        if not isinstance(inputs, list):
            return Skipped("bad_field", "plus_input is no list")
        entry, prompt, program, tests = row["entry_point"], row["prompt"], row["canonical_solution"], row[tests_in]
        if humaneval:
            program, tests = prompt + program, _top_level(re.sub(r"\bcandidate\b", lambda _: entry, tests))
        return {
            "id": row["task_id"],
            "question": cleandoc(docstring_of(prompt)),
            "reference": program,
            "tests": tests,
            "entry_point": entry,
            # What JSON cannot hold (tuples, sets, complex numbers) MBPP+ rebuilds by rules of its own, task by task.
            "calls": _calls(entry, inputs) if humaneval else [],
        }

    def data_hash(self) -> str:
        """The hash of the loaded rows."""
        return self._hash

    def prompts(self, tasks: Sequence[CodeTask], tokenizer: Any, style: str) -> list[list[Any]]:
        """Token ids of each task's prompt in one of the styles."""
        self._whole = tokenizer is None and style != "completion"
        return [prompt_ids(task.data, tokenizer, style) for task in tasks]

    def stop(self, style: str) -> tuple[str, ...]:
        """Strings that end a sampled text; none of a reply that begins with its own fence, as a server's does."""
        return () if self._whole else stops(self.name, style)

    def sample(self, task: CodeTask, text: str, number: int, style: str) -> Sample:
        """A sampled text as a sample; `codea1` finds the program as training does, the others as EvalPlus does."""
        raw = raw_solution(task.data, text, style)
        if style == "codea1":
            from codea1_cli.extract import extract_code

            return Sample(task.id, extract_code(raw, task.entry_point), raw, number)
        return Sample(task.id, sanitize_evalplus(raw, task.entry_point), raw, number)

    def read(self, row: dict[str, Any], task: CodeTask, number: int) -> Sample:
        """A row of a sample file: `solution`, or `completion` behind the prompt. Raises UserError."""
        if isinstance(row.get("solution"), str):
            return Sample(task.id, row["solution"], row["solution"], number)
        if isinstance(row.get("completion"), str):
            return Sample(task.id, task.prompt + row["completion"], task.prompt + row["completion"], number)
        raise UserError(f"a sample of {task.id} has neither a solution nor a completion")

    def sanitize(self, task: CodeTask, raw: str) -> str:
        """The program in a raw solution, as EvalPlus' sanitiser finds it."""
        return sanitize_evalplus(raw, task.entry_point)

    def missing(self, tasks: Sequence[CodeTask], options: ScoreOptions) -> dict[str, int]:
        """None: the tasks need the standard library alone."""
        return {}

    def check_references(
        self, options: ScoreOptions, progress: Progress, ids: Collection[str] | None = None
    ) -> ReferenceReport:
        """Runs these tasks' references, or takes their answers from the cache."""
        checker = self._open(options)
        cache = _Cache(options.cache, self._hash, checker.python)
        wanted = [task for task in self._tasks.values() if ids is None or task.id in ids]
        self._expected = self._expected or cache.read()
        left = [task for task in wanted if task.id not in self._expected]
        done = len(wanted) - len(left)
        progress(done, len(wanted))
        try:
            for task, expected in as_ended(checker.expected, left, checker.sandbox.workers):
                done += 1
                progress(done, len(wanted))
                if expected is not None:
                    self._expected[task.id] = expected
                    if done % _KEEP_EVERY == 0:
                        cache.write(self._expected)
        finally:
            if left:
                cache.write(self._expected)
        failing = {}
        for task in wanted:
            expected = self._expected.get(task.id)
            fault = "the sandbox failed" if expected is None else checker.reference_fault(task, expected)
            if fault:
                failing[task.id] = fault
        return ReferenceReport(len(wanted), failing)

    def score(self, samples: Sequence[Sample], options: ScoreOptions, progress: Progress) -> list[Scored]:
        """Verdicts in the order of the samples, after `check_references`. Equal programs of a task run once."""
        checker = self._open(options)
        jobs = list(dict.fromkeys((sample.task_id, sample.solution) for sample in samples))
        # The longest first, so that none of them is left when the others are done.
        jobs.sort(key=lambda job: -self.seconds_of(job[0]))
        waiting: dict[tuple[str, str], int] = dict.fromkeys(jobs, 0)
        for sample in samples:
            waiting[sample.task_id, sample.solution] += 1
        found: dict[tuple[str, str], dict[str, Status]] = {}
        done = 0

        def check(job: tuple[str, str]) -> dict[str, Status]:
            expected = self._expected.get(job[0])
            if expected is None:
                return dict.fromkeys(PARTS, Status.UNSCORED)
            return checker.check(self._tasks[job[0]], job[1], expected)

        # One thread more than programs run at once, so that none waits while answers are judged.
        for job, verdicts in as_ended(check, jobs, checker.sandbox.workers + 1):
            found[job] = verdicts
            done += waiting[job]
            progress(done, len(samples))
        return [Scored(s.task_id, s.number, found[s.task_id, s.solution]) for s in samples]

    def close(self) -> None:
        """Ends the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = self._checker = None

    def seconds_of(self, task_id: str) -> float:
        """CPU seconds, to a good approximation, that the reference took on all inputs of a task."""
        return sum(sum(part.seconds) for part in self._expected.get(task_id, {}).values())

    def _open(self, options: ScoreOptions) -> Checker:
        if self._checker is None:
            from codea1_cli.sandbox.make import make_sandbox

            self._sandbox = make_sandbox(options.of_sandbox(environment=environment()))
            self._checker = Checker(self.name, self._sandbox)
        return self._checker


def _top_level(source: str) -> str:
    """The asserts inside `check(candidate)`, which by its name is not a test function."""
    tree = parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] if tree else []
    bodies = [node.body for node in functions if node.name == "check"]
    return "\n".join(unparse(statement) or "" for body in bodies for statement in body)


def _calls(entry_point: str, inputs: list[Any]) -> list[str]:
    calls = (f"{entry_point}({', '.join(map(repr, arguments))})" for arguments in inputs if isinstance(arguments, list))
    return [call for call in dict.fromkeys(calls) if len(call) <= _MAX_CALL][:MAX_PLUS]


class _Cache:
    """Expected answers on disk, by the hash of the data, of the code that writes them, and the interpreter."""

    _guard = threading.Lock()

    def __init__(self, folder: Path | None, data_hash: str, python: str) -> None:
        code = hashlib.sha256(in_jail_source().encode()).hexdigest()[:12]
        self.path = (
            folder or cache_folder()
        ) / f"expected-{data_hash}-{code}-{python or platform.python_version()}.json"

    def read(self) -> dict[str, dict[str, PartAnswers]]:
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            return {
                task: {name: PartAnswers(**part) for name, part in parts.items()}
                for task, parts in stored["tasks"].items()
            }
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def write(self, expected: dict[str, dict[str, PartAnswers]]) -> None:
        from codea1_cli.durable import write_atomic

        tasks = {task: {name: asdict(part) for name, part in parts.items()} for task, parts in expected.items()}
        with self._guard, contextlib.suppress(EnvironmentFault, OSError):  # a cache that cannot be kept is none
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, json.dumps({"tasks": tasks}))
