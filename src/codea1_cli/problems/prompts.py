"""The chat messages of the two roles. Models are trained on exactly these strings: a change here unlearns them."""

from codea1_cli.problems.problem import Problem

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
    user = f"Write this function.\n\n{problem.question.rstrip()}\n\n{_block(problem.declaration)}"
    return _chat(CODE_SYSTEM, user)


def test_messages(problem: Problem, candidate: str | None, tests_per_suite: int) -> list[Message]:
    """The Test LLM's prompt for one suite of `tests_per_suite` asserts: [system, user].

    `candidate` is the source under attack; None (white-box off) shows the declaration in its place.
    """
    system = TEST_SYSTEM.format(count=tests_per_suite, entry_point=problem.entry_point)
    question = problem.question.rstrip()
    if candidate is None:
        user = f"Write tests for this function.\n\n{question}\n\n{_block(problem.declaration)}"
    else:
        user = f"Write tests that break this solution.\n\n{question}\n\n{_block(candidate)}"
    return _chat(system, user)


test_messages.__test__ = False  # type: ignore[attr-defined]  # pytest collects imported test_* names


def _block(source: str) -> str:
    return f"```python\n{source.rstrip()}\n```"


def _chat(system: str, user: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
