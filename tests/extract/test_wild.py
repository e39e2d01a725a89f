"""Whatever a model writes: reading ends, raises nothing, and keeps what is plain to see."""

import ast
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1_cli.extract import extract_code, parse_suite
from codea1_cli.extract.code import defines
from codea1_cli.extract.source import MAX_REPLY_CHARS, parse
from codea1_cli.game.judged_tests import read_book_test

# Pieces of which broken replies are made.
PIECES = [
    "assert ", "assert f(1) == 2", "f(", ")", "[", "]", "{", "}", " == ", "'", '"', '"""', "'''", "\\", "\n", "\r\n",
    "\r", "    ", "\t", "\f", "#", ";", ":", "def test():", "if x:", "else:", "class T:", "for x in y:", "x = ", "x",
    "```", "```python", "````", "~~~", "~~~py", "```json", "<think>", "</think>", "lambda", " is ", " in ", "await ",
    "\0", "\ud800", "\u2028", "ｆ(", "é", "9" * 30, "1e999", "0x", "f'{", "b'", "not ", "-", "*", "**", ",", "@",
    "yield", "del x",
]  # fmt: skip
wild = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
modes = st.sampled_from(["default", "paper"])


@given(wild, modes)
@settings(max_examples=250, deadline=None)
def test_any_text_gives_statements_that_can_be_run(text: str, mode: str) -> None:
    for statement in parse_suite(text, "f", mode=mode):
        assert (statement.call is None) == (statement.invalid is not None)
        if statement.call is not None:
            assert isinstance(ast.parse(statement.call, mode="eval").body, ast.Call)


@given(wild, modes)
@settings(max_examples=250, deadline=None)
def test_any_text_gives_a_program_out_of_it(text: str, mode: str) -> None:
    program = extract_code(text, "f", mode=mode)
    letters = {c for c in program if not c.isspace()}
    assert letters <= set(text)


@given(wild, wild)
@settings(max_examples=120, deadline=None)
def test_a_well_formed_block_is_found_among_noise(before: str, after: str) -> None:
    noise = str.maketrans("", "", "`~<>\r")
    program = "def f(x):\n    return x + 1"
    reply = f"{before.translate(noise)}\n```python\n{program}\n```\n{after.translate(noise)}"
    assert defines(ast.parse(extract_code(reply, "f")), "f")


literals = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@given(st.lists(literals, max_size=3), literals)
@settings(max_examples=120, deadline=None)
def test_what_repr_writes_is_read_back(arguments: list[object], answer: object) -> None:
    line = f"assert f({', '.join(map(repr, arguments))}) == {answer!r}"
    (statement,) = parse_suite(f"```python\n{line}\n```", "f")
    assert statement.invalid is None
    assert statement.stated is not None
    assert statement.stated.value == answer
    assert statement.call is not None
    seen = eval(statement.call, {"f": lambda *args: list(args), "inf": float("inf")})
    assert seen == arguments
    assert read_book_test(f"assert {statement.call} == {answer!r}") is not None


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
@settings(max_examples=120, deadline=None)
def test_one_broken_line_costs_one_line(numbers: list[int], data: st.DataObject) -> None:
    lines = [f"assert f({n}) == {n}" for n in numbers]
    broken = data.draw(
        st.sampled_from(["assert f(", "assert f([1 == 2", "assert f('a) == 1", "x = (", ")", '"""', "if x"])
    )
    at = data.draw(st.integers(0, len(lines)))
    statements = parse_suite("\n".join([*lines[:at], broken, *lines[at:]]), "f")
    assert [s.call for s in statements if s.invalid is None] == [f"f({n})" for n in numbers]
    assert sum(s.invalid is not None for s in statements) == broken.startswith("assert")


HOSTILE = {
    "asserts": "assert f(1) == 2\n" * 11_000,
    "unclosed brackets": "assert f([1 == 2\n" * 11_000,
    "unclosed triple quotes": 'assert f("""x) == 1\n' * 9_000,
    "one unclosed triple quote of each kind": 'assert f("""x) == 1\n' + "assert f('''y) == 1\n" * 9_000,
    "brackets": "assert f(" + "(" * 190_000,
    "unary operators": "assert f(" + "-" * 190_000 + "1) == 2",
    "unary operators within bounds": ("assert f(" + "-" * 31_000 + "1) == 2\n") * 6,
    "not": ("assert f(" + "not " * 7_000 + "1) == 2\n") * 6,
    "a sum": ("assert f(1) == " + "+".join(["1"] * 15_000) + "\n") * 6,
    "a sum of lists": ("assert f(1) == " + "+".join(["[1]"] * 900) + "\n") * 50,
    "powers": ("assert f(1) == " + "//".join(["9**5000"] * 900) + "\n") * 25,
    "attributes": ("assert f(a" + ".a" * 15_000 + ") == 1\n") * 6,
    "lambdas": ("assert f(" + "lambda:" * 4_000 + "1) == 1\n") * 6,
    "fences": "```\n" * 50_000,
    "python fences": "```python\nx = (\n" * 11_000,
    "backticks": "`" * 200_000,
    "think tags": "<think></think>" * 13_000,
    "nested blocks": "".join(" " * depth + "if x:\n" for depth in range(600)),
    "backslashes": "\\\n" * 90_000,
    "quotes": "'" * 200_000,
    "semicolons": ("assert f(1) == 1;" * 1_800 + "\n") * 6,
    "NUL": "assert f('\0') == 1\n" * 9_000,
    "surrogates": "assert f('\ud800') == 1\n" * 9_000,
    "newlines": "\n" * 200_000,
    "carriage returns": "\r" * 200_000,
    "doubling": "a=[0]\n" + "a=[a,a]\n" * 200 + "assert f(a) == a\n" * 9_000,
    "a long integer": ("assert f(0x" + "f" * 31_000 + ") == 1\n") * 6,
}


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_replies_are_read_to_their_end(name: str) -> None:
    """Linear time shows as the absence of a stall: quadratic work on these lengths takes minutes."""
    text = HOSTILE[name][:60_000]
    assert len(parse_suite(text, "f")) <= 4_000
    assert extract_code(f"```python\n{text}\n```", "f") is not None


def test_a_reply_is_read_up_to_a_stated_length() -> None:
    line = "assert f(1) == 2\n"
    assert len(parse_suite(line * 100_000, "f")) == -(-MAX_REPLY_CHARS // len(line))


def test_the_parser_is_contained() -> None:
    for source in ("\0", "'\ud800'", "-" * 50_000 + "1", "(" * 50_000, "1" * 5_000, "x = " + "[" * 150 + "]" * 150):
        tree = parse(source)
        assert tree is None or isinstance(tree, ast.Module)


@given(st.text(alphabet=string.printable, max_size=60))
@settings(max_examples=120, deadline=None)
def test_a_book_test_is_read_or_refused(source: str) -> None:
    for text in (source, f"assert f({source}) == 1", f"assert f(1) == {source}"):
        test = read_book_test(text)
        assert test is None or ast.parse(test.call, mode="eval")
