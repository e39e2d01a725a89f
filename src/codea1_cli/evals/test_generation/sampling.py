"""Suites of tests: sampled from a model, in rounds of one test each (published protocol) or whole (one-shot), or read
from a file that holds one JSON line per function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_rows
from codea1_cli.errors import UserError
from codea1_cli.evals.test_generation import Function
from codea1_cli.evals.test_generation.entries import entry_as_test
from codea1_cli.evals.test_generation.split_tests import first_test, split_suite
from codea1_cli.files import kept_rows
from codea1_cli.models.loading import render
from codea1_cli.models.sampler import Sampler, SamplingSettings, fits
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import Message, known_names, real_reply, shown_code, shown_problem, test_messages
from codea1_cli.problems.row_files import whole_rows

CHAT_SYSTEM = (
    "You write unit tests in Python. Answer with exactly one assert statement in a python code block and nothing else: "
    "no explanation, no second assert."
)
CHAT_FIRST = (
    "Write one test for the function `{name}`.\n\nWhat it does: {description}\n\n```python\n{code}\n```\n\n"
    "The function is already there, do not repeat it. Answer with one line that begins with `assert {name}(`."
)
CHAT_NEXT = (
    "Write another assert statement for `{name}`. It must differ from all those before it, and reach statements and "
    "branches that they do not. Answer with one line that begins with `assert {name}(`."
)
Progress = Callable[[str, int, int], None]  # what, done, of all


@dataclass(frozen=True)
class Suite:
    """A function's suite: `tests` one by one (None where a reply or an entry holds none), and as one `text`; `given`
    are the entries that the tests were read from, where they were given one by one."""

    id: str
    tests: tuple[str | None, ...]
    text: str
    given: tuple[str, ...] = ()


def suite_of_replies(task_id: str, replies: Iterable[str]) -> Suite:
    """A suite written in rounds: the first test of each reply."""
    tests = tuple(first_test(reply) for reply in replies)
    return Suite(task_id, tests, "\n".join(test for test in tests if test is not None))


def suite_of_entries(task_id: str, entries: Sequence[str]) -> Suite:
    """A suite given test by test: each entry runs whole, be it asserts, a block, test functions or a test class."""
    tests = tuple(entry_as_test(entry) or first_test(entry) for entry in entries)
    return Suite(task_id, tests, "\n".join(entries), tuple(entries))


def suite_of_text(task_id: str, text: str) -> Suite:
    """A suite written at once: its asserts, one by one."""
    return Suite(task_id, tuple(split_suite(text)), text)


def read_suites(file: Path) -> dict[str, Suite]:
    """The suites of a file by task id. A row holds `task_id` and one of `suite` (text), `asserts` (a list of
    statements) or `replies` (a list of a model's replies, one test each); other fields are ignored.

    Raises:
        UserError: it cannot be read, or a line is not such a row or repeats an id (file and line named).
    """
    found: dict[str, Suite] = {}
    for place, row in whole_rows(file, _SUITE_ROW):
        try:
            suite = _suite(row)
        except (KeyError, TypeError) as error:
            what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{place}: no suite: {what}", hint=_SUITE_ROW) from None
        if suite.id in found:
            raise UserError(f"{place}: a second suite for {suite.id}", hint="keep one of them")
        found[suite.id] = suite
    if not found:
        raise UserError(f"{file} holds no suite", hint=_SUITE_ROW)
    return found


_SUITE_ROW = '{"task_id": "7", "suite": "assert f(1) == 2"}, or "asserts": [...], or "replies": [...]'


def _suite(row: dict[str, Any]) -> Suite:
    task_id = str(row["task_id"])
    for field, made in (("replies", suite_of_replies), ("asserts", suite_of_entries)):
        if field in row:
            if not isinstance(row[field], list):
                raise TypeError(f"{field} is not a list")
            return made(task_id, [part if isinstance(part, str) else "" for part in row[field]])
    if not isinstance(row["suite"], str):
        raise TypeError("suite is not a text")
    return suite_of_text(task_id, row["suite"])


def chat_messages(function: Function, replies: Sequence[str]) -> list[Message]:
    """The chat up to the next round: system, the first question, and each earlier reply with the question after it."""
    first = CHAT_FIRST.format(
        name=function.name, description=function.description.strip(), code=function.shown.rstrip()
    )
    messages = [{"role": "system", "content": CHAT_SYSTEM}, {"role": "user", "content": first}]
    for reply in replies:
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": CHAT_NEXT.format(name=function.name)})
    return messages


def fitting_prompt(tokenizer: Any, function: Function, replies: Sequence[str], room: int) -> list[Any] | None:
    """The chat as token ids; rounds are forgotten, oldest first, until it fits in `room`. None when it never does."""
    for forgotten in range(len(replies) + 1):
        ids = render(tokenizer, chat_messages(function, replies[forgotten:]))
        if fits(ids, room):
            return ids
    return None


def sample_in_rounds(
    sampler: Sampler,
    functions: Sequence[Function],
    rounds: int,
    settings: SamplingSettings,
    file: Path,
    *,
    chunk: int = 256,
    context: int = 16_384,
    progress: Progress | None = None,
) -> dict[str, list[str]]:
    """`rounds` replies for each function, kept in `file` after every chunk; what it already holds is not sampled again.

    All functions go through a round together, `chunk` prompts at a time. A chat that does not fit in `context` tokens
    gets an empty reply, which holds no test.
    """
    replies: dict[str, list[str]] = {function.id: [] for function in functions}
    for row in kept_rows(file):
        if row.get("task_id") in replies:
            replies[row["task_id"]] = [str(reply) for reply in row["replies"]][:rounds]
    for number in range(rounds):
        due = [function for function in functions if len(replies[function.id]) == number]
        for at in range(0, len(due), chunk):
            part, room = due[at : at + chunk], context - settings.max_new_tokens
            prompts = [fitting_prompt(sampler.tokenizer, function, replies[function.id], room) for function in part]
            for function, text in zip(part, _texts(sampler, prompts, settings), strict=True):
                replies[function.id].append(text)
            write_rows(file, ({"task_id": name, "protocol": "rounds", "replies": r} for name, r in replies.items()))
            if progress is not None:
                done = sum(map(len, replies.values()))
                progress("rounds", done, rounds * len(functions))
    return replies


def _texts(sampler: Sampler, prompts: Sequence[list[Any] | None], settings: SamplingSettings) -> list[str]:
    """A text per prompt; an empty one for None."""
    fitting = [prompt for prompt in prompts if prompt is not None]
    texts = iter(sampler.generate(fitting, settings) if fitting else [])
    return [next(texts)[0] if prompt is not None else "" for prompt in prompts]


def sample_suites(
    sampler: Sampler,
    functions: Sequence[Function],
    tests_per_suite: int,
    settings: SamplingSettings,
    file: Path,
    *,
    chunk: int = 256,
    context: int = 16_384,
    progress: Progress | None = None,
) -> dict[str, str]:
    """One suite for each function, asked for exactly as in training; kept in `file` after every chunk. A prompt that
    does not fit in `context` tokens gets an empty reply."""
    texts = {row["task_id"]: str(row["suite"]) for row in kept_rows(file)}
    due = [function for function in functions if function.id not in texts]
    for at in range(0, len(due), chunk):
        part = due[at : at + chunk]
        asked, room = suite_prompts(sampler.tokenizer, part, tests_per_suite), context - settings.max_new_tokens
        prompts = [prompt if fits(prompt, room) else None for prompt in asked]
        names, replies = known_names(sampler.tokenizer), _texts(sampler, prompts, settings)
        texts |= {f.id: real_reply(reply, f.name, names) for f, reply in zip(part, replies, strict=True)}
        write_rows(file, ({"task_id": name, "protocol": "one-shot", "suite": text} for name, text in texts.items()))
        if progress is not None:
            progress("suites", len(functions) - len(due) + at + len(part), len(functions))
    return {function.id: texts[function.id] for function in functions}


def sample_replies(
    sampler: Sampler,
    shown: Sequence[tuple[Problem, str | None]],
    tests_per_suite: int,
    settings: SamplingSettings,
    room: int,
    chunk: int = 16,
) -> Iterator[list[str]]:
    """`settings.n` suites against each program, or of the problem where it is None, asked for as in training; none
    where a prompt is longer than `room`. Prompts are sampled `chunk` at a time, as they are asked for."""
    names, chunk = known_names(sampler.tokenizer), max(chunk, getattr(sampler, "batch", 0) // settings.n)
    for at in range(0, len(shown), chunk):
        part = shown[at : at + chunk]
        prompts = attack_prompts(sampler.tokenizer, part, tests_per_suite)
        fitting = [prompt for prompt in prompts if fits(prompt, room)]
        texts = iter(sampler.generate(fitting, settings) if fitting else [])
        for (problem, _), prompt in zip(part, prompts, strict=True):
            replies = next(texts) if fits(prompt, room) else []
            yield [real_reply(reply, problem.entry_point, names) for reply in replies]


def suite_prompts(tokenizer: Any, functions: Sequence[Function], tests_per_suite: int) -> list[list[Any]]:
    """The training's white-box prompt for each function, as token ids."""
    return attack_prompts(tokenizer, [(f.problem, f.shown or f.program) for f in functions], tests_per_suite)


def attack_prompts(
    tokenizer: Any, shown: Sequence[tuple[Problem, str | None]], tests_per_suite: int
) -> list[list[Any]]:
    """The training's prompt for tests of each program, or for tests without one, as token ids."""
    names, prompts = known_names(tokenizer), []
    for problem, code in shown:
        program = None if code is None else shown_code(code, problem.entry_point, names)
        prompts.append(render(tokenizer, test_messages(shown_problem(problem, names), program, tests_per_suite)))
    return prompts
