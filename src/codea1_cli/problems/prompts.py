"""The chat messages of the two roles, and how a problem is shown to a model that has seen few names.

Models are trained on exactly these strings: a change here unlearns them.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codea1_cli.extract.source import parse
from codea1_cli.problems.problem import Problem, argument_types
from codea1_cli.tiny import model_path, unseen

Message = dict[str, str]

CODE_SYSTEM = (
    "You write Python functions. Reply with one fenced python block that holds the complete function, "
    "its imports included, and nothing else."
)
TEST_SYSTEM = (
    "You write tests for Python functions. Reply with one fenced python block of exactly {count} lines, each of the "
    "form `assert {entry_point}(arguments) == value` with literal arguments and the value that a correct solution "
    "returns. Make every call different and put the most revealing one first."
)


def code_messages(problem: Problem) -> list[Message]:
    """The Code LLM's prompt: [system, user]."""
    user = f"Write this function.\n\n{problem.question.rstrip()}\n\n{code_block(problem.declaration)}"
    return _chat(CODE_SYSTEM, user)


def test_messages(problem: Problem, candidate: str | None, tests_per_suite: int) -> list[Message]:
    """The Test LLM's prompt for one suite of `tests_per_suite` asserts: [system, user].

    `candidate` is the source under attack; None (white-box off) shows the declaration in its place.
    """
    system = TEST_SYSTEM.format(count=tests_per_suite, entry_point=problem.entry_point)
    question = problem.question.rstrip()
    if candidate is None:
        user = f"Write tests for this function.\n\n{question}\n\n{code_block(problem.declaration)}"
    else:
        user = f"Write tests that break this solution.\n\n{question}\n\n{code_block(candidate)}"
    return _chat(system, user)


test_messages.__test__ = False  # type: ignore[attr-defined]  # pytest collects imported test_* names


FRAME = Problem(id="frame", question="QUESTION", declaration="DECLARATION", entry_point="ENTRY_POINT")
"""A problem of placeholders."""


def role_messages(role: str, tests_per_suite: int, white_box: bool = True) -> list[Message]:
    """What a role (`code` or `test`) is asked, with capitals for a problem's own words."""
    if role == "code":
        return code_messages(FRAME)
    return test_messages(FRAME, "CANDIDATE" if white_box else None, tests_per_suite)


# -- a model that has seen few names -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class KnownNames:
    """The only names of a function and of its parameters that a model has seen, the latter by the argument's type
    (`list`, `str`, ...), in their order. Problems are shown to it under these, and its replies get the real one back.
    """

    entry_point: str
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict)


def known_names(tokenizer: Any) -> KnownNames | None:
    """What the model's tokenizer_config.json says in `known_names`, as the embedded model's does; None for every other
    model, whose problems are shown as they are."""
    named = getattr(tokenizer, "init_kwargs", {}).get("known_names")
    return KnownNames(**named) if isinstance(named, dict) else None


def shown_problem(problem: Problem, names: KnownNames | None) -> Problem:
    """The problem as a model sees it. One of few names sees those, no annotations and no doctests.

    In the question, the function's name and parameters of one letter are changed only where they are code: in
    backticks, or with an opening parenthesis behind them.
    """
    if names is None:
        return problem
    question = _DOCTESTS.sub("", problem.question).strip() or problem.question
    question = _named(question, problem.entry_point, names.entry_point)
    declaration = _named(problem.declaration, problem.entry_point, names.entry_point)
    tree = parse(f"{problem.declaration.rstrip()} ...")
    if tree is not None and isinstance(head := tree.body[0], ast.FunctionDef):
        renamed = dict(_renamed(head, argument_types(problem) or _annotated(head), names))
        for old, new in renamed.items():
            question = _named(question, old, new) if len(old) == 1 else re.sub(rf"\b{re.escape(old)}\b", new, question)
        head.name, head.body = names.entry_point, [ast.Expr(ast.Constant(...))]
        _strip(head, renamed)
        declaration = ast.unparse(head).partition("\n")[0]
    shown = {"question": question, "declaration": declaration, "entry_point": names.entry_point}
    return problem.model_copy(update=shown)


def unseen_words(problem: Problem) -> list[str]:
    """The words of a problem's question that the embedded model has not seen, see `tiny.unseen`."""
    named = json.loads((model_path() / "tokenizer_config.json").read_text(encoding="utf-8"))["known_names"]
    return unseen(shown_problem(problem, KnownNames(**named)).question)


def shown_code(source: str, entry_point: str, names: KnownNames | None) -> str:
    """A program as a model sees it; variables that are called as the function is stay."""
    if names is None:
        return source
    renamed = _named(source, entry_point, names.entry_point)
    tree = parse(renamed) if '"""' in renamed or "->" in renamed or re.search(r"def .*\w:", renamed) else None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)] if tree is not None else []
    if tree is None or not functions:
        return renamed
    for node in functions:
        _strip(node, {})
    return ast.unparse(tree)


def real_reply(text: str, entry_point: str, names: KnownNames | None) -> str:
    """A model's reply, in which the function has its own name again."""
    if names is None:
        return text
    return re.sub(rf"(?<![\w.'\"]){re.escape(names.entry_point)}\b", lambda _: entry_point, text)


_DOCTESTS = re.compile(r"^[ \t]*>>>.*(?:\n[ \t]*\S.*)*\n?", re.MULTILINE)


def _named(text: str, old: str, new: str) -> str:
    code = re.escape(old)
    return re.sub(rf"(?<![\w.]){code}(?=\s*\()|(?<=`){code}(?=`)", new, text)


def _renamed(head: ast.FunctionDef, types: Sequence[str], names: KnownNames) -> Iterator[tuple[str, str]]:
    """(old, new) names of parameters, as far as their types are known and there are names for them."""
    left = {kind: list(known) for kind, known in names.parameters.items()}
    own = {argument.arg for argument in [*head.args.posonlyargs, *head.args.args, *head.args.kwonlyargs]}
    for argument, kind in zip([*head.args.posonlyargs, *head.args.args], types, strict=False):
        name = next(iter(left.get(kind, ())), None)
        if name is not None:
            left[kind].remove(name)
            if name not in own:
                yield argument.arg, name


def _annotated(head: ast.FunctionDef) -> list[str]:
    """The types of the arguments by their annotations, `list` for `List[int]`; empty texts where there are none."""
    arguments = [*head.args.posonlyargs, *head.args.args]
    return [ast.unparse(a.annotation).partition("[")[0].lower() if a.annotation else "" for a in arguments]


def _strip(function: ast.FunctionDef, renamed: Mapping[str, str]) -> None:
    """Takes annotations, decorators and the docstring off, and renames parameters of the head."""
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if argument is not None:
            argument.annotation, argument.arg = None, renamed.get(argument.arg, argument.arg)
    function.returns, function.decorator_list = None, []
    if ast.get_docstring(function) is not None and len(function.body) > 1:
        function.body = function.body[1:]


def code_block(source: str) -> str:
    """A program or a suite as prompts show it, and as replies shall hold it."""
    return f"```python\n{source.rstrip()}\n```"


def _chat(system: str, user: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
