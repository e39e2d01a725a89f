"""Prompts of the published protocols, and from a sampled text to a sample.

- `evalplus`: EvalPlus' chat (its `codegen`, 0.3.1): an instruction with the task in a fence, and the answer begun for
  the model up to the open fence; greedy, or top-p 0.95; 768 new tokens; a text ends with the fence.
- `completion`: EvalPlus' protocol for base models: the task's prompt as it stands, continued.
- `codea1`: the chat that this project trains on; the program is found in the reply as in training.
"""

from __future__ import annotations

import ast
from inspect import cleandoc
from typing import Any

from codea1_cli.evals.evalplus.tasks import PlusTask
from codea1_cli.extract.source import declaration

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


def prompt_ids(task: PlusTask, tokenizer: Any, style: str) -> list[int]:
    """The prompt's token ids."""
    text = task.prompt.strip() + "\n"
    if style == "completion":
        return list(tokenizer(text)["input_ids"])
    if style == "codea1":
        from codea1_cli.models.loading import render

        return render(tokenizer, _training_chat(task))
    rendered = begun_answer(tokenizer, f"{INSTRUCTION}\n```\n{text.strip()}\n```\n")
    return list(tokenizer(rendered, add_special_tokens=False)["input_ids"])


def begun_answer(tokenizer: Any, user_turn: str) -> str:
    """The chat as text: the user's turn and the answer begun for the model, up to its open fence."""
    turns = [
        {"role": "user", "content": user_turn},
        {"role": "assistant", "content": f"{RESPONSE}\n```python\n{_MARK}\n```\n"},
    ]
    text: str = tokenizer.apply_chat_template(turns, tokenize=False)
    return text.partition(_MARK)[0]


def raw_solution(task: PlusTask, text: str, style: str) -> str:
    """What the sample file holds as the raw solution."""
    if style == "codea1":
        return text
    text = text.replace("\t", "    ")
    return task.prompt.strip() + "\n" + text if style == "completion" else text


def _training_chat(task: PlusTask) -> list[dict[str, str]]:
    from codea1_cli.problems.benchmark_files import docstring_of
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
