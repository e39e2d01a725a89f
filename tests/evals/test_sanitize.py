"""What is kept of a model's text."""

import pytest

from codea1_cli.evals.samples import longest_program, sanitize_bigcodebench, sanitize_evalplus

FUNCTION = "def task_func(n):\n    return n + 1"

CASES = {
    "bare": (FUNCTION, FUNCTION),
    "a fence": (f"Sure, here it is:\n```python\n{FUNCTION}\n```\nIt adds one.", FUNCTION),
    "an unclosed fence": (f"Well then:\n```python\n{FUNCTION}", FUNCTION),
    "imports stay, futures go": (
        f"from __future__ import annotations\nimport os\nfrom a.b import c\n{FUNCTION}",
        f"import os\nfrom a.b import c\n{FUNCTION}",
    ),
    "what it needs stays": (
        "LIMIT = 3\nOTHER = 4\ndef helper():\n    return LIMIT\n\n\ndef task_func(n):\n    return helper()",
        "LIMIT = 3\ndef helper():\n    return LIMIT\ndef task_func(n):\n    return helper()",
    ),
    "a name in an f-string counts": (
        'LIMIT = 3\ndef task_func(n):\n    return f"{LIMIT}"',
        'LIMIT = 3\ndef task_func(n):\n    return f"{LIMIT}"',
    ),
    "the first definition of a name": (f"{FUNCTION}\ndef task_func(n):\n    return 0", FUNCTION),
    "decorated definitions go": (f"@cache\ndef helper():\n    return 1\n{FUNCTION}", FUNCTION),
    "a script's end goes": (f"{FUNCTION}\nif __name__ == '__main__':\n    task_func(1)\nprint(task_func(2))", FUNCTION),
    "a result of a call goes": (f"{FUNCTION}\nresult = task_func(1)", FUNCTION),
    "the longer of two programs": (
        f"import os\nx = 1\n```\n\nand better:\n```python\nimport re\n{FUNCTION}\n```", f"import re\n{FUNCTION}"
    ),
    "no entry point leaves imports": ("import os\ndef other():\n    pass", "import os"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bigcodebench(name):
    text, expected = CASES[name]
    assert sanitize_bigcodebench(text, "task_func") == expected


def test_nothing_to_keep_leaves_the_longest_program():
    assert sanitize_bigcodebench("x.y = 1\nz.a = 2\nand so on, and on", "task_func") == "x.y = 1\nz.a = 2"
    assert sanitize_bigcodebench("", "task_func") == ""
    assert sanitize_bigcodebench("just words here", "task_func") == "just words here"


def test_wild_texts_do_not_stall():
    assert longest_program("word word\n" * 400).startswith("word word")
    assert longest_program("x = (\n" * 100 + FUNCTION).endswith(FUNCTION)
    assert longest_program("x = 1\n" * 300 + "and so on, then").count("x = 1") == 300
    assert longest_program("\0\n" + FUNCTION) == FUNCTION


def test_evalplus():
    text = (
        "Here it is:\n```python\nimport math\nfrom __future__ import annotations\nLIMIT = 3\na, b = 1, 2\n\n\n"
        "def helper(x):\n    return x + LIMIT\n\n\ndef unused(x):\n    print(x)\n\n\n@cached\ndef decorated():\n    return 1\n\n\n"
        "def f(x):\n    return helper(x)\n\n\nprint(f(1))\n```\nIt works."
    )
    kept = "import math\nLIMIT = 3\ndef helper(x):\n    return x + LIMIT\ndef f(x):\n    return helper(x)"
    assert sanitize_evalplus(text, "f") == kept
    assert sanitize_evalplus("def f(:\n", "f") == "def f(:"
    assert sanitize_evalplus("", "f") == ""
    assert longest_program("this is no code\nx = 1\ny = 2\nnor that either") == "x = 1\ny = 2"
    assert longest_program('"""\nopen text\nx = 1') == '"""'
    assert longest_program("x = (\n1\n)\n)") == "x = (\n1\n)"


def test_both_read_lines_as_python_does():
    text = "import math\r\r\ndef f(x):\r    return helper(x)\r\ndef helper(x):\n    return x"
    kept = "import math\ndef f(x):\r    return helper(x)\ndef helper(x):\n    return x"
    assert sanitize_evalplus(text, "f") == sanitize_bigcodebench(text, "f") == kept


def test_names_within_texts_and_patterns_are_needed():
    text = "a = 1\nb = 2\nc = 3\ndef f(x):\n    match x:\n        case P(a=1):\n            return f'{x.b}'"
    kept = text.replace("c = 3\n", "")
    assert sanitize_evalplus(text, "f") == sanitize_bigcodebench(text, "f") == kept
