"""BigCodeBench's prompts as its generator writes them.

A chat model gets a user turn and the beginning of its own answer, up to the opening fence; a base model gets the task's
text alone.
"""

from __future__ import annotations

from typing import Any

from codea1_cli.evals.bigcodebench.tasks import BigCodeTask

SPLITS = ("complete", "instruct")
INSTRUCTION = (
    "Please provide a self-contained Python script that solves the following problem in a markdown code block:"
)
RESPONSE = (
    "Below is a Python script with a self-contained function that solves the problem and passes corresponding tests:"
)
STOPS = ("<|endoftext|>", "<|endofmask|>", "</s>", "\nif __name__", "\ndef main(", "\nprint(")
CHAT_STOPS = (*STOPS, "\n```\n")
BASE_STOPS = (*STOPS, "\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert ")
_CUT = "-[[CUT-HERE]]-"


def user_turn(task: BigCodeTask, split: str = "complete") -> str:
    """The user's turn of a split. Raises ValueError for an unknown one."""
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}: one of {', '.join(SPLITS)}")
    if split == "complete":
        return f"{INSTRUCTION}\n```\n{task.complete_prompt.strip()}\n```\n"
    return f"{INSTRUCTION}\n{task.instruct_prompt.strip()}\n"


def render(task: BigCodeTask, tokenizer: Any, split: str = "complete") -> str:
    """The text that the model continues.

    With a chat template: the user's turn and the head of the answer up to its opening fence. Without one the complete
    prompt as it is; the instruct split then is not defined. Raises ValueError for that and for an unknown split.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        if split != "complete":
            raise ValueError("a model without a chat template has no instruct split")
        return task.complete_prompt
    turns = [
        {"role": "user", "content": user_turn(task, split)},
        {"role": "assistant", "content": f"{RESPONSE}\n```python\n{_CUT}\n```\n"},
    ]
    text: str = tokenizer.apply_chat_template(turns, tokenize=False)
    return text.split(_CUT)[0]
