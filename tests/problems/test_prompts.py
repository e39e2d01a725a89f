import pytest

from codea1_cli.models.loading import load_tokenizer
from codea1_cli.problems import prompts
from codea1_cli.problems.problem import Problem, public_problem, read_problems
from codea1_cli.tiny import problems_path

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


NAMES = prompts.KnownNames("solve", {"list": ["xs", "ys"], "str": ["s"], "int": ["n"]})
NAMED = Problem(
    id="2",
    question="Return the total of the values, `total` of none is 0. A total is no mean.\n\n>>> total([1])\n1\n\nNot less.",
    declaration="def total(values: list[int], a: str, *, more=True) -> int:",
    entry_point="total",
    reference="def total(values): ...",
    tests=["assert total(list(range(9)), 'b') == 36", "assert total([1], 'c') == 1"],
)


def test_a_model_of_few_names_sees_problems_under_them() -> None:
    shown = prompts.shown_problem(public_problem(NAMED), NAMES)
    assert shown.declaration == "def solve(xs, s, *, more=True):"
    assert shown.question == "Return the total of the xs, `solve` of none is 0. A total is no mean.\n\n\nNot less."
    assert "`assert solve(arguments) == value`" in prompts.test_messages(shown, None, 4)[0]["content"]
    assert prompts.shown_problem(NAMED, None) is NAMED


@pytest.mark.parametrize(
    ("declaration", "tests", "shown"),
    [
        ("def total(values):", [], "def solve(values):"),
        ("def total(values: List[int], by: str, n: 'int' = 0):", [], "def solve(xs, s, n=0):"),
        ("def total(a, b, c):", ["assert total([1], [2], [3]) == 6"], "def solve(xs, ys, c):"),
        ("def total(n, xs):", ["assert total([1], 2) == 3"], "def solve(n, xs):"),
        ("class Total:", ["assert total(1) == 3"], "class Total:"),
        ("def total(", ["assert total(1) == 3"], "def solve("),
        ("def total(*, key=None):", ["assert total(key=1) == 3", "assert total("], "def solve(*, key=None):"),
    ],
)
def test_parameters_go_by_the_types_of_the_tests(declaration: str, tests: list[str], shown: str) -> None:
    problem = NAMED.model_copy(update={"declaration": declaration, "tests": tests})
    assert prompts.shown_problem(problem, NAMES).declaration == shown


def test_every_embedded_problem_is_shown_as_it_is() -> None:
    names = prompts.known_names(load_tokenizer("builtin:tiny"))
    assert names is not None
    for split in ("train", "heldout"):
        for problem in read_problems(problems_path(split)):
            shown = prompts.shown_problem(public_problem(problem), names)
            assert (shown.question, shown.declaration) == (problem.question, problem.declaration)
            for code in [problem.reference, *problem.meta["wrong"]]:
                assert prompts.shown_code(code, "solve", names) == code
    assert prompts.known_names(object()) is None


def test_variables_and_attributes_of_the_name_stay() -> None:
    code = (
        "def total(xs):\n    total = 0\n    for x in xs:\n        total += x.total()\n    return total or subtotal(xs)"
    )
    shown = prompts.shown_code(code, "total", NAMES)
    assert shown == code.replace("def total", "def solve")
    assert prompts.real_reply(shown, "total", NAMES) == code


def test_a_program_is_shown_without_annotations_and_docstring() -> None:
    code = 'def total(values: list[int]) -> int:\n    """Add."""\n    return total(values[1:])\n'
    assert prompts.shown_code(code, "total", NAMES) == "def solve(values):\n    return solve(values[1:])"
    assert prompts.shown_code(code[:-4], "total", NAMES).startswith("def solve(values: list[int])")


def test_a_reply_gets_the_real_name_back() -> None:
    reply = (
        "```python\nassert solve([1]) == 1\nassert solve(['solve', \"solve\"]) == resolve(map(solve, [x.solve]))\n```"
    )
    assert prompts.real_reply(reply, "total", NAMES) == (
        "```python\nassert total([1]) == 1\nassert total(['solve', \"solve\"]) == resolve(map(total, [x.solve]))\n```"
    )
    assert prompts.real_reply(reply, "total", None) == reply
