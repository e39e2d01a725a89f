"""The tasks of HumanEval+ and MBPP+ from EvalPlus' release files or from the hub, and their prompts.

The hub's datasets, `evalplus/humanevalplus` and `evalplus/mbppplus`, hold a test program in place of the inputs: it
lists the base inputs and then the plus inputs in one `inputs = [...]`, as Python, with the tolerance in the call of
`assertion`. The split is not in the rows: MBPP's base inputs are as many as `test_list` has asserts, HumanEval's are
counted by the table below. Where a row's inputs cannot be read, the release file is the way out.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any

from codea1_cli.errors import UserError
from codea1_cli.evals.evalplus.oracle import arguments_of
from codea1_cli.evals.evalplus.values import NotAnAnswer, value_of
from codea1_cli.evals.registry import BenchmarkRow, benchmark_row
from codea1_cli.extract.source import declaration
from codea1_cli.problems.benchmark_files import PublicTask, docstring_of
from codea1_cli.problems.row_files import whole_rows

NAMES = ("humaneval", "mbpp")
_FIELDS = ("task_id", "prompt", "canonical_solution", "entry_point", "base_input", "plus_input")

# Base inputs of HumanEval/0 to HumanEval/163, as EvalPlus' release v0.1.10 has them.
_BASE_COUNTS = """
7 4 3 6 3 3 3 4 5 4 5 3 3 4 3 3 5 5 4 5 5 5 3 3 5 8 3 3 3 2 4 13 100 10 1 2 8 3 100 10 9 5 3 9 12 3 4 5 7 7
100 7 6 105 7 5 12 8 4 5 5 12 5 7 7 5 8 7 8 25 9 9 6 8 9 4 10 16 13 4 8 6 16 5 5 4 7 6 7 8 7 6 10 5 9 14 10 16 7 5
5 6 8 12 4 5 4 8 8 5 7 8 9 3 12 5 8 14 13 12 11 7 5 4 16 8 13 8 8 10 10 7 14 12 10 5 11 8 8 4 5 26 11 7 13 6 7 4 11 7
10 7 4 9 6 8 14 11 10 6 3 8 4 4
"""


@dataclass(frozen=True)
class PlusTask:
    """One task. `inputs` holds the arguments of each call, by "base" and "plus"; `atol` is the task's own tolerance."""

    id: str
    prompt: str
    canonical: str
    entry_point: str
    inputs: dict[str, list[Any]]
    atol: float

    @property
    def reference(self) -> str:
        """The canonical solution as the whole program that EvalPlus runs."""
        return self.prompt + self.canonical


def load(benchmark: str, data: Path | None) -> tuple[list[PlusTask], str]:
    """The tasks from a release file, or from the hub's file, found as `find_file` does, and the hash of their text.

    Raises:
        UserError: there is no such file, or it holds no tasks of this benchmark.
        EnvironmentFault: it is nowhere here and cannot be fetched.
    """
    about = benchmark_row(benchmark)
    origin = about.file(data)
    rows = [release_row(benchmark, row) for _, row in whole_rows(origin)]
    if not rows or not all(
        isinstance(row, dict) and str(row.get("task_id", "")).startswith(about.prefix) for row in rows
    ):
        raise UserError(f"{origin} holds no tasks of {about.title}", hint="give its release file with --data")
    tasks = [_task(row, str(origin)) for row in rows]
    text = json.dumps(rows, sort_keys=True, default=repr)
    return tasks, hashlib.sha256(text.encode()).hexdigest()[:16]


def public_task(about: BenchmarkRow, row: Mapping[str, Any]) -> PublicTask:
    """A row of a release file, or of the hub, as training data is compared with it; HumanEval's programs are split over
    two fields."""
    row = release_row(about.name, row, plus=False)
    prompt, program, entry = row["prompt"], row["canonical_solution"], row["entry_point"]
    if about.name == "humaneval":
        program, tests = prompt + program, re.sub(r"\bcandidate\b", entry, row["test"])
    else:
        tests = row["assertion"]
    return PublicTask(about.title, row["task_id"], docstring_of(prompt), program, entry, tests)


def _task(row: dict[str, Any], origin: str) -> PlusTask:
    missing = [name for name in _FIELDS if name not in row]
    if missing:
        raise UserError(f"a task of {origin} lacks {', '.join(missing)}", hint="give a release file of EvalPlus")
    wrong = [name for name in _FIELDS[:4] if not isinstance(row[name], str)]
    atol = row.get("atol") or 0
    if not isinstance(atol, int | float) or not 0 <= atol < 1e300:
        wrong.append("atol")
    if wrong:
        what = f"{origin}: {row['task_id']}: field {wrong[0]}: of a wrong type"
        raise UserError(what, hint="give a release file of EvalPlus")
    inputs = {}
    for name in ("base", "plus"):
        stored = row[f"{name}_input"]
        stored = stored if isinstance(stored, list) else []  # a task without plus inputs stores {}
        try:
            inputs[name] = stored if row.get("decoded") else arguments_of(row["task_id"], stored)
        except (TypeError, ValueError, LookupError, AttributeError) as fault:
            raise UserError(f"{row['task_id']} of {origin} has unreadable inputs: {fault}") from None
    return PlusTask(row["task_id"], row["prompt"], row["canonical_solution"], row["entry_point"], inputs, float(atol))


def release_row(benchmark: str, row: Mapping[str, Any], plus: bool = True) -> dict[str, Any]:
    """A row in the shape of the release file. One of the hub has its inputs as Python values then (`decoded`), and its
    base inputs with their answers as asserts. Without `plus` the base inputs alone are read.

    Raises:
        UserError: the test program of a row of the hub is not of the known shape.
    """
    listed = benchmark != "humaneval" or "inputs = " in str(row.get("test"))
    if "base_input" in row or "test" not in row or not listed:
        return dict(row)
    task_id = str(row.get("task_id"))
    if benchmark == "humaneval":
        made = {"prompt": row["prompt"], "canonical_solution": row["canonical_solution"], "task_id": task_id}
        entry = row["entry_point"]
        base = int(_BASE_COUNTS.split()[int(task_id.rpartition("/")[2])])
    else:
        asserts = row.get("test_list") or []
        base, task_id = len(asserts), f"Mbpp/{task_id.rpartition('/')[2]}"
        prompt = '"""\n' + str(row["prompt"]).strip() + "\n" + (asserts[0] if asserts else "") + '\n"""\n'
        made = {"prompt": prompt, "canonical_solution": "\n" + row["code"] + "\n", "task_id": task_id}
        entry = _called(task_id, asserts, row["code"])
        made["assertion"] = "\n".join(asserts)
    inputs, results, atol = _inputs(task_id, str(row.get("test", "")), None if plus else base)
    if benchmark == "humaneval":
        pairs = zip(inputs[:base], results, strict=False)
        made["test"] = "\n".join(
            f"assert {entry}({', '.join(map(repr, args))}) == {answer!r}" for args, answer in pairs
        )
    return {
        **made, "entry_point": entry, "base_input": inputs[:base], "plus_input": inputs[base:], "atol": atol,
        "decoded": True,
    }  # fmt: skip


def _inputs(task_id: str, test: str, most: int | None) -> tuple[list[Any], list[Any], float]:
    """The first `most` inputs of a test program, or all, their answers as far as they are listed, and the tolerance.

    The lists are read where they stand: together they are several megabytes.
    """
    fault = UserError(
        f"the tests of {task_id} on the hub are not of the known shape", hint="give EvalPlus' release file with --data"
    )
    try:
        body = ast.parse(test).body
    except SyntaxError:
        raise fault from None
    found: dict[str, list[Any]] = {}
    atol = 0.0
    for statement in [*body, *(inner for outer in body if isinstance(outer, ast.FunctionDef) for inner in outer.body)]:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in ("inputs", "results") and isinstance(statement.value, ast.List):
                try:
                    found[name] = [value_of(part) for part in statement.value.elts[:most]]
                except NotAnAnswer:
                    if name == "inputs":
                        raise fault from None
        elif isinstance(statement, ast.For):
            calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.args]
            for last in (node.args[-1] for node in calls if getattr(node.func, "id", "") == "assertion"):
                if isinstance(last, ast.Constant) and isinstance(last.value, int | float):
                    atol = float(last.value)
    if "inputs" not in found:
        raise fault
    return found["inputs"], found.get("results", []), atol


def _called(task_id: str, asserts: list[str], code: str) -> str:
    """The function of `code` that an assert calls, the outermost of its left side; it may bear a builtin's name."""
    try:
        there = {node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)}
        calls = [node for text in asserts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    except SyntaxError:
        there, calls = set(), []
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id in there:
            return call.func.id
    raise UserError(f"no assert of {task_id} calls its function", hint="give EvalPlus' release file with --data")


# -- prompts -----------------------------------------------------------------------------------------------------------
# The published protocols:
# - `evalplus`: EvalPlus' chat (its `codegen`, 0.3.1): an instruction with the task in a fence, and the answer begun for
#   the model up to the open fence; greedy, or top-p 0.95; 768 new tokens; a text ends with the fence.
# - `completion`: EvalPlus' protocol for base models: the task's prompt as it stands, continued.
# - `codea1`: the chat that this project trains on; the program is found in the reply as in training.
STYLES = ("evalplus", "completion", "codea1")
MAX_NEW_TOKENS = 768
# Both are the protocol's, word for word.
INSTRUCTION = (
    "Please provide a self-contained Python script that solves the following problem in a markdown code block:"
)
RESPONSE = (
    "Below is a Python script with a self-contained function that solves the problem and passes corresponding tests:"
)
_MARK = "\N{BLACK SQUARE}\N{WHITE SQUARE} here the answer begins \N{WHITE SQUARE}\N{BLACK SQUARE}"
STOPS = ("\nif __name__", "\ndef main(", "\nprint(")
_COMPLETION_STOPS = {
    "humaneval": ("\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert "),
    "mbpp": ('\n"""', "\nassert"),
}


def stops(benchmark: str, style: str) -> tuple[str, ...]:
    """The strings before which a text ends."""
    if style == "codea1":
        return ()
    return (*STOPS, *(_COMPLETION_STOPS[benchmark] if style == "completion" else ("\n```\n",)))


def prompt_ids(task: PlusTask, tokenizer: Any, style: str) -> list[Any]:
    """The prompt's token ids; for a server (no tokenizer) the text, or the chat without the answer's beginning."""
    text = task.prompt.strip() + "\n"
    if style == "completion":
        return [text] if tokenizer is None else list(tokenizer(text)["input_ids"])
    if style == "codea1":
        from codea1_cli.models.loading import render

        return render(tokenizer, _training_chat(task))
    turn = f"{INSTRUCTION}\n```\n{text.strip()}\n```\n"
    if tokenizer is None:
        return [{"role": "user", "content": turn}]
    rendered = begun_answer(tokenizer, turn)
    return list(tokenizer(rendered, add_special_tokens=False)["input_ids"])


def begun_answer(tokenizer: Any, user_turn: str) -> str:
    """The chat as text: the user's turn and the answer begun for the model, up to its open fence."""
    from codea1_cli.models.loading import DAY

    turns = [
        {"role": "user", "content": user_turn},
        {"role": "assistant", "content": f"{RESPONSE}\n```python\n{_MARK}\n```\n"},
    ]
    text: str = tokenizer.apply_chat_template(turns, tokenize=False, strftime_now=DAY.strftime)
    return text.partition(_MARK)[0]


def raw_solution(task: PlusTask, text: str, style: str) -> str:
    """What the sample file holds as the raw solution."""
    if style == "codea1":
        return text
    text = text.replace("\t", "    ")
    return task.prompt.strip() + "\n" + text if style == "completion" else text


def _training_chat(task: PlusTask) -> list[dict[str, str]]:
    from codea1_cli.problems.problem import Problem
    from codea1_cli.problems.prompts import code_messages

    problem = Problem(
        id=task.id,
        question=cleandoc(docstring_of(task.prompt)),
        declaration=_declaration(task),
        entry_point=task.entry_point,
        reference=task.reference,
    )
    return code_messages(problem)


def _declaration(task: PlusTask) -> str:
    """The reference's imports and the head of the function asked for."""
    tree = ast.parse(task.reference)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == task.entry_point]
    return declaration(functions[-1])
