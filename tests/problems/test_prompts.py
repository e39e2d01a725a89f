from codea1_cli.problems import prompts
from codea1_cli.problems.problem import Problem

PROBLEM = Problem(
    id="1",
    question="Double it.  \n",
    declaration="def double(x):\n",
    entry_point="double",
    reference="def double(x):\n    return 2 * x",
    tests=["assert double(4) == 8"],
)


def test_the_user_turns_are_these_strings() -> None:
    """Shipped weights were trained on them; the strings are an interface."""
    code = prompts.code_messages(PROBLEM)
    white_box = prompts.test_messages(PROBLEM, "def double(x):\n    return x\n\n", 8)
    blind = prompts.test_messages(PROBLEM, None, 8)
    assert [m["role"] for m in code + white_box + blind] == ["system", "user"] * 3
    assert code[1]["content"] == "Write this function.\n\nDouble it.\n\n```python\ndef double(x):\n```"
    assert white_box[1]["content"] == (
        "Write tests that break this solution.\n\nDouble it.\n\n```python\ndef double(x):\n    return x\n```"
    )
    assert blind[1]["content"] == "Write tests for this function.\n\nDouble it.\n\n```python\ndef double(x):\n```"


def test_the_test_role_is_told_how_many_asserts_of_which_form() -> None:
    system = prompts.test_messages(PROBLEM, None, 5)[0]["content"]
    assert "exactly 5" in system
    assert "`assert double(arguments) == value`" in system


def test_no_prompt_gives_away_the_reference_or_the_tests() -> None:
    for messages in (prompts.code_messages(PROBLEM), prompts.test_messages(PROBLEM, None, 8)):
        text = "".join(m["content"] for m in messages)
        assert "2 * x" not in text
        assert "double(4)" not in text
