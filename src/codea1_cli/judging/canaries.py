"""Programs whose verdict is known: what a sandbox says of them shows whether it can judge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.verdicts import Verdict

REFERENCE = "def f(x):\n    return x + 1\n"
_CALL = "f(1)"


@dataclass(frozen=True, slots=True)
class Known:
    """A program, the verdicts on f(1) that are right, and what they show."""

    program: str
    verdicts: frozenset[Verdict]
    shows: str


KNOWN = {
    "right": Known("def f(x):\n    return 1 + x\n", frozenset({Verdict.PASSED}), "a right program passes"),
    "wrong": Known("def f(x):\n    return x\n", frozenset({Verdict.FAILED}), "a wrong one fails"),
    "lying": Known(
        "class Any:\n    def __eq__(self, other):\n        return True\n\ndef f(x):\n    return Any()\n",
        frozenset({Verdict.FAILED}),
        "an object equal to everything fails",
    ),
    "raising": Known(
        "def f(x):\n    raise ValueError(x)\n", frozenset({Verdict.RAISED}), "an exception is told from a wrong answer"
    ),
    "exiting": Known("import os\n\ndef f(x):\n    os._exit(0)\n", frozenset({Verdict.CRASHED}), "an exit is no pass"),
    "looping": Known("def f(x):\n    while True:\n        pass\n", frozenset({Verdict.TIMEOUT}), "a loop is ended"),
    "hoarding": Known(
        "def f(x):\n    a = []\n    while True:\n        a.append(bytearray(1 << 24))\n",
        frozenset({Verdict.MEMORY}),
        "memory is bounded",
    ),
    "printing": Known(
        "def f(x):\n    while True:\n        print('x' * 65536)\n",
        frozenset({Verdict.OUTPUT_LIMIT}),
        "output is bounded",
    ),
    "forging": Known(
        "import os\n\ndef f(x):\n    for fd in range(3, 64):\n        try:\n            os.write(fd, b'passed' * 9)\n"
        "        except OSError:\n            pass\n    return 0\n",
        frozenset({Verdict.FAILED, Verdict.CRASHED}),
        "a forged result is no pass",
    ),
}


def verdicts_of_known(judge: Judge, names: Iterable[str]) -> dict[str, Verdict]:
    """What `judge` says of the named programs; `unscored` where the sandbox failed, on the reference already or later."""
    expected = judge.expected(REFERENCE, "f", [_CALL])
    found = {}
    for name in names:
        tests = judge.check(KNOWN[name].program, "f", [_CALL], expected).verdicts if expected[_CALL].valid else {}
        found[name] = tests[_CALL].verdict if _CALL in tests else Verdict.UNSCORED
    return found
