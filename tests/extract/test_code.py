"""Golden corpus: what models write, and the program it must come to."""

from pathlib import Path

import pytest

from codea1_cli.extract import extract_code
from codea1_cli.extract.source import MAX_REPLY_CHARS

CODE = "def f(x):\n    return x + 1"
OTHER = "def g(x):\n    return x"
BROKEN = "def f(x:\n    return"
DOCSTRING_WITH_FENCES = 'def f(x):\n    """Add one.\n\n    ```python\n    f(1)\n    ```\n    """\n    return x + 1'
DEFAULT = {
    "bare code": (CODE, CODE),
    "bare code with newlines around": (f"\n\n{CODE}\n\n", CODE),
    "python fence": (f"```python\n{CODE}\n```", CODE),
    "py fence": (f"```py\n{CODE}\n```", CODE),
    "python3 fence": (f"```python3\n{CODE}\n```", CODE),
    "upper case": (f"```Python\n{CODE}\n```", CODE),
    "no language": (f"```\n{CODE}\n```", CODE),
    "language with attributes": (f'```python title="a.py"\n{CODE}\n```', CODE),
    "language with braces": (f"```python {{.line-numbers}}\n{CODE}\n```", CODE),
    "space before the language": (f"``` python\n{CODE}\n```", CODE),
    "tilde fence": (f"~~~python\n{CODE}\n~~~", CODE),
    "tilde fence around backticks": (f"~~~python\n{DOCSTRING_WITH_FENCES}\n~~~", DOCSTRING_WITH_FENCES),
    "four backticks": (f"````python\n{CODE}\n````", CODE),
    "four backticks around three": (f"````python\n{DOCSTRING_WITH_FENCES}\n````", DOCSTRING_WITH_FENCES),
    "fences inside a docstring": (f"```python\n{DOCSTRING_WITH_FENCES}\n```\nDone.", DOCSTRING_WITH_FENCES),
    "two replies with fences in docstrings": (
        f"```python\n{OTHER}\n```\nor\n```python\n{DOCSTRING_WITH_FENCES}\n```",
        DOCSTRING_WITH_FENCES,
    ),
    "unclosed fence": (f"Sure!\n```python\n{CODE}\n", CODE),
    "missing opening fence": (f"{CODE}\n```\nThis adds one.", CODE),
    "missing opening fence after prose": (f"Here it is:\n\n{CODE}\n```\nThis adds one.", CODE),
    "missing opening fence, then an example": (f"{CODE}\n```\nUse it:\n```python\nprint(f(1))\n```", CODE),
    "prose, then bare code": (f"Here it is:\n{CODE}", CODE),
    "code on the fence's line": (f"```{CODE}\n```", CODE),
    "code on the fence's line after the language": (f"```python {CODE}\n```", CODE),
    "closing fence on the last line of code": (f"```python\n{CODE}```", CODE),
    "opening fence after prose": (f"Here: ```python\n{CODE}\n```", CODE),
    "crlf": (f"```python\n{CODE}\n```\n".replace("\n", "\r\n"), CODE),
    "tabs": ("```python\ndef f(x):\n\treturn x\n```", "def f(x):\n\treturn x"),
    "fence inside a list": ("1. Code:\n   ```python\n   def f(x):\n       return x\n   ```", "def f(x):\n    return x"),
    "indented body": ("```python\n    def f(x):\n        return x\n```", "def f(x):\n    return x"),
    "a multi-line string keeps its indentation": (
        '```python\ndef f(x):\n    return """\n  a\n b"""\n```',
        'def f(x):\n    return """\n  a\n b"""',
    ),
    "the last block that defines it": (
        f"```python\nx = 1\n{CODE}\n```\n```python\n{CODE}\n```\n```python\n{OTHER}\n```",
        CODE,
    ),
    "an example after the code": (f"```python\n{CODE}\n```\n```python\nassert f(1) == 2\n```", CODE),
    "blocks are not joined": (f"```python\n{OTHER}\n```\n```python\n{CODE}\n```", CODE),
    "a broken last block": (f"```python\n{CODE}\n```\n```python\n{BROKEN}\n```", CODE),
    "output after the code": (f"```python\n{CODE}\n```\nIt prints\n```\n2\n```", CODE),
    "another language": (f"```bash\npip install x\n```\n```python\n{CODE}\n```\n```json\n[1]\n```", CODE),
    "none defines it: the last that parses": (f"```python\n{OTHER}\n```\n```python\n{BROKEN}\n```", OTHER),
    "none parses: the last as it stands": (f"```python\n{BROKEN}\n```", BROKEN),
    "a class is a definition": ("```python\nclass f:\n    pass\n```\n```python\ny = 1\n```", "class f:\n    pass"),
    "an assigned lambda is a definition": ("```python\nf = lambda x: x\n```\n```python\ny = 1\n```", "f = lambda x: x"),
    "a conditional definition": (
        "```python\ntry:\n    from m import f\nexcept ImportError:\n    f = None\n```\n```python\ny = 1\n```",
        "try:\n    from m import f\nexcept ImportError:\n    f = None",
    ),
    "a nested definition is none": (
        f"```python\n{CODE}\n```\n```python\ndef g():\n    def f(x): return x\n```",
        CODE,
    ),
    "thinking": (f"<think>\n```python\n{OTHER}\n```\n</think>\n```python\n{CODE}\n```", CODE),
    "thinking opened by the template": (f"First\n```python\ndef f(x): pass\n```\n</think>\n{CODE}", CODE),
    "thinking about tags": (f"<think>what does </think> do?</think>\n```python\n{CODE}\n```", CODE),
    "unclosed thinking is a truncation": (f"<think>\n```python\n{CODE}\n```", ""),
    "a tag inside the code": (
        '```python\ndef f(x):\n    return "<think>" + x\n```',
        'def f(x):\n    return "<think>" + x',
    ),
    "an unclosed block, then another": (f"```python\n{OTHER}\n```python\n{CODE}\n```", CODE),
    "empty": ("", ""),
    "an empty block": ("```python\n```", ""),
    "prose": ("I cannot do that.", "I cannot do that."),
}


@pytest.mark.parametrize("name", DEFAULT)
def test_default(name: str) -> None:
    reply, program = DEFAULT[name]
    assert extract_code(reply, "f") == program


PAPER = {
    "the first python block": (f"```python\n{OTHER}\n```\n```python\n{CODE}\n```", OTHER),
    "a python block before any other": (f"```\nx\n```\n```python\n{CODE}\n```", CODE),
    "else the first block": (f"```\n{OTHER}\n```\n```\n{CODE}\n```", OTHER),
    "else the whole text": (f"\n{CODE}\n", CODE),
    "an unclosed block is the whole text": (f"```python\n{CODE}", f"```python\n{CODE}"),
}


@pytest.mark.parametrize("name", PAPER)
def test_paper(name: str) -> None:
    reply, program = PAPER[name]
    assert extract_code(reply, "f", mode="paper") == program


def test_identifiers_compare_as_python_compares_them() -> None:
    program = "def \uff46(x):\n    return x"  # a full-width f
    assert extract_code(f"```python\n{program}\n```\n```python\ny = 1\n```", "f") == program


def test_what_lies_past_the_cap_is_not_read() -> None:
    reply = f"```python\n{CODE}\n```\n" + "x" * MAX_REPLY_CHARS + f"\n```python\n{OTHER}\n```"
    assert extract_code(reply, "g") == CODE


@pytest.mark.shared
def test_every_reference_survives_its_fence(shared: Path) -> None:
    from codea1_cli.problems.problem import read_problems

    for problem in read_problems(shared / "data/train.jsonl"):
        reply = f"Here is the solution.\n\n```python\n{problem.reference}\n```\n\nUse it:\n```python\nx = 1\n```"
        assert extract_code(reply, problem.entry_point) == problem.reference.strip("\n").rstrip(), problem.id


def test_a_fence_that_names_a_language_closes_one_block_and_opens_the_next() -> None:
    reply = "```text\na plan\n```python\ndef f(x):\n    return x\n```\n"
    assert extract_code(reply, "f") == "def f(x):\n    return x"


def test_an_underline_hides_no_block() -> None:
    reply = "Solution\n~~~~~~~~\nAs asked:\n```python\ndef f(x):\n    return x\n```\n"
    assert extract_code(reply, "f") == "def f(x):\n    return x"
