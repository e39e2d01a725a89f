"""What is kept of a model's text."""

import pytest

from codea1_cli.evals.bigcodebench.sanitize import longest_program, sanitize

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
def test_sanitize(name):
    text, expected = CASES[name]
    assert sanitize(text, "task_func") == expected


def test_nothing_to_keep_leaves_the_longest_program():
    assert sanitize("x.y = 1\nz.a = 2\nand so on, and on", "task_func") == "x.y = 1\nz.a = 2"
    assert sanitize("", "task_func") == ""
    assert sanitize("just words here", "task_func") == "just words here"


def test_wild_texts_do_not_stall():
    assert longest_program("word word\n" * 400).startswith("word word")
    assert longest_program("x = (\n" * 100 + FUNCTION).endswith(FUNCTION)
    assert longest_program("x = 1\n" * 300 + "and so on, then").count("x = 1") == 300
    assert longest_program("\0\n" + FUNCTION) == FUNCTION
