"""Written tasks in BigCodeBench's published form."""

TESTS = """
import os
import socket
import unittest


class TestCases(unittest.TestCase):
    def test_value(self):
        self.assertEqual(task_func(2), 3)

    def test_negative(self):
        self.assertEqual(task_func(-2), -1)

    def test_error(self):
        with self.assertRaises(TypeError):
            task_func("a")
"""
PROMPT = 'import os\n\ndef task_func(number):\n    """Adds one."""\n'


def row(number: int = 0, **changes: object) -> dict[str, object]:
    """A task in the published form."""
    made = {
        "task_id": f"BigCodeBench/{number}",
        "complete_prompt": PROMPT,
        "instruct_prompt": "Adds one.\nYou should write self-contained code starting with:\n```\nimport os\n```",
        "canonical_solution": "    return number + 1",
        "code_prompt": "import os\ndef task_func(number):",
        "test": TESTS,
        "entry_point": "task_func",
        "libs": "['os']",
        "hard": False,
    }
    return {**made, **changes}
