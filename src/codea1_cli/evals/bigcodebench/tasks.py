"""BigCodeBench's tasks as published, from a file or the hub, and its prompts as its generator writes them.

A chat model gets a user turn and the beginning of its own answer, up to the opening fence; a base model gets the task's
text alone.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.evalplus.tasks import INSTRUCTION, STOPS, begun_answer
from codea1_cli.evals.registry import benchmark_row
from codea1_cli.extract.source import parse
from codea1_cli.problems.benchmark_files import PublicTask
from codea1_cli.problems.row_files import whole_rows

CLASS = "TestCases"
_FIELDS = ("task_id", "complete_prompt", "instruct_prompt", "canonical_solution", "code_prompt", "test", "entry_point")
SPLITS = ("complete", "instruct")
MODEL_STOPS = ("<|endoftext|>", "<|endofmask|>", "</s>", *STOPS)
CHAT_STOPS = (*MODEL_STOPS, "\n```\n")
BASE_STOPS = (*MODEL_STOPS, "\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert ")


@dataclass(frozen=True)
class BigCodeTask:
    """One task. `names`: its test methods, sorted as unittest runs them; `libs`: the libraries that it names."""

    task_id: str
    complete_prompt: str
    instruct_prompt: str
    canonical_solution: str
    code_prompt: str
    test: str
    entry_point: str
    libs: tuple[str, ...] = ()
    hard: bool = False
    names: tuple[str, ...] = field(default=())

    @property
    def reference(self) -> str:
        """The canonical solution as a whole program, joined as the benchmark's checker joins it."""
        return f"{self.complete_prompt}\n{self.canonical_solution}"

    def calibrated(self, solution: str) -> str:
        """`solution` behind the imports and the head of the task's function, as the checker's default has it."""
        return f"{self.code_prompt}\n    pass\n{solution}"


def read_task(row: Mapping[str, Any]) -> BigCodeTask:
    """A published row. Raises ValueError when a field is missing or the tests hold no class `TestCases`."""
    missing = [name for name in _FIELDS if not isinstance(row.get(name), str)]
    if missing:
        raise ValueError(f"no task of BigCodeBench: it lacks {', '.join(missing)}")
    values = {name: row[name] for name in _FIELDS}
    return BigCodeTask(**values, libs=_libs(row.get("libs")), hard=bool(row.get("hard")), names=methods_of(row["test"]))


def _libs(value: object) -> tuple[str, ...]:
    if isinstance(value, str):  # published as the text of a list
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return ()
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def methods_of(source: str, class_name: str = CLASS) -> tuple[str, ...]:
    """The test methods of a test class, its bases in the same source included, sorted as unittest runs them.

    Raises ValueError when the source does not parse or has no such class.
    """
    tree = parse(source)
    if tree is None:
        raise ValueError("the tests do not parse")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if class_name not in classes:
        raise ValueError(f"the tests have no class {class_name}")
    found: set[str] = set()
    queue, seen = [class_name], set()
    while queue:
        name = queue.pop()
        if name in seen or name not in classes:
            continue
        seen.add(name)
        body = classes[name].body
        defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        found.update(name for name in defined if name.startswith("test"))
        queue += [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
    return tuple(sorted(found))


@dataclass(frozen=True)
class TaskSet:
    """Tasks in their published order; `digest` is a hash of their content."""

    tasks: tuple[BigCodeTask, ...]
    digest: str


def load_tasks(data: Path | None = None, subset: str = "full") -> TaskSet:
    """The tasks of a file, found as `find_file` does; the hard ones are marked in it, or are the only ones.

    Raises:
        UserError: an unknown subset, no data, or a row that is not a task (file and line are named).
    """
    about = benchmark_row("bigcodebench")
    if subset not in about.subsets:
        raise UserError(f"no subset {subset!r} of {about.title}", hint=f"one of {', '.join(about.subsets)}")
    source = about.file(data, subset)
    rows = list(whole_rows(source))
    tasks = []
    digest = hashlib.sha256()
    known_hard = len(rows) == about.published["hard"].tasks and not any("hard" in row for _, row in rows)
    for where, row in rows:
        try:
            task = read_task({**row, "hard": True} if known_hard else row)
        except ValueError as fault:
            raise UserError(f"{where}: {fault}", hint="fetch the data again") from None
        if subset == "hard" and not task.hard:
            continue
        tasks.append(task)
        digest.update(json.dumps([getattr(task, name) for name in _FIELDS]).encode())
    if not tasks:
        hint = "the file needs the field `hard`" if subset == "hard" else "fetch the data again"
        raise UserError(f"{source} holds no task of BigCodeBench ({subset})", hint=hint)
    return TaskSet(tuple(tasks), digest.hexdigest()[:16])


def public_task(row: Mapping[str, Any]) -> PublicTask:
    """A published row as training data is compared with it; its tests are methods of a class, which are not read."""
    code = row["complete_prompt"] + row["canonical_solution"]
    return PublicTask(
        benchmark_row("bigcodebench").title, row["task_id"], row["instruct_prompt"], code, row["entry_point"]
    )


def user_turn(task: BigCodeTask, split: str = "complete") -> str:
    """The user's turn of a split. Raises ValueError for an unknown one."""
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}: one of {', '.join(SPLITS)}")
    if split == "complete":
        return f"{INSTRUCTION}\n```\n{task.complete_prompt.strip()}\n```\n"
    return f"{INSTRUCTION}\n{task.instruct_prompt.strip()}\n"


def prompt_text(task: BigCodeTask, tokenizer: Any, split: str = "complete") -> str:
    """The text that the model continues.

    With a chat template: the user's turn and the head of the answer up to its opening fence. Without one the complete
    prompt as it is; the instruct split then is not defined. Raises ValueError for that and for an unknown split.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        if split != "complete":
            raise ValueError("a model without a chat template has no instruct split")
        return task.complete_prompt
    return begun_answer(tokenizer, user_turn(task, split))
