"""Canaries: small programs that are right, wrong or hostile, and what must come of each.

The verdicts on a few of them show whether a sandbox can judge at all; `run_canaries` tries all of them and what a
program could do beyond its answer: break out, survive, swarm.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import Limits, Sandbox
from codea1_cli.sandbox.verdicts import AnswerKind, Verdict

REFERENCE = "def f(x):\n    return x + 1\n"
_CALL = "f(1)"


@dataclass(frozen=True, slots=True)
class JudgedCanary:
    """A program, the verdicts on f(1) that are right, and what they show."""

    program: str
    verdicts: frozenset[Verdict]
    shows: str


JUDGED = {
    "right": JudgedCanary("def f(x):\n    return 1 + x\n", frozenset({Verdict.PASSED}), "a right program passes"),
    "wrong": JudgedCanary("def f(x):\n    return x\n", frozenset({Verdict.FAILED}), "a wrong one fails"),
    "lying": JudgedCanary(
        "class Any:\n    def __eq__(self, other):\n        return True\n\ndef f(x):\n    return Any()\n",
        frozenset({Verdict.FAILED}),
        "an object equal to everything fails",
    ),
    "raising": JudgedCanary(
        "def f(x):\n    raise ValueError(x)\n", frozenset({Verdict.RAISED}), "an exception is told from a wrong answer"
    ),
    "exiting": JudgedCanary(
        "import os\n\ndef f(x):\n    os._exit(0)\n", frozenset({Verdict.CRASHED}), "an exit is no pass"
    ),
    "looping": JudgedCanary(
        "def f(x):\n    while True:\n        pass\n", frozenset({Verdict.TIMEOUT}), "a loop is ended"
    ),
    "hoarding": JudgedCanary(
        "def f(x):\n    a = []\n    while True:\n        a.append(bytearray(1 << 24))\n",
        frozenset({Verdict.MEMORY}),
        "memory is bounded",
    ),
    "printing": JudgedCanary(
        "def f(x):\n    while True:\n        print('x' * 65536)\n",
        frozenset({Verdict.OUTPUT_LIMIT}),
        "output is bounded",
    ),
    "forging": JudgedCanary(
        "import os\n\ndef f(x):\n    for fd in range(3, 64):\n        try:\n            os.write(fd, b'passed' * 9)\n"
        "        except OSError:\n            pass\n    return 0\n",
        frozenset({Verdict.FAILED, Verdict.CRASHED}),
        "a forged result is no pass",
    ),
}


_LIMITS = Limits(time_s=4.0, memory_mb=256, processes=32, output_kb=1024)
# name: an expression that is true when the program was kept from what it tried
_KEPT_OUT = {
    "the parent lives": "kill(os.getppid(), 9) or True",
    "no network, not even loopback":
    "refused(lambda: socket.create_connection(('127.0.0.1', 9), 0.2), ConnectionRefusedError)",
    "no file can be changed": "refused(lambda: open({canary!r}, 'w')) and refused(lambda: os.remove({canary!r}))",
    "the account's files are out of reach": "refused(lambda: open({canary!r}).read())",
    "limits cannot be raised": "refused(lambda: resource.setrlimit(resource.RLIMIT_CPU, (-1, -1)))",
    "no other process can be traced": "ctypes.CDLL(None).ptrace(16, os.getppid() or 1, 0, 0) < 0",
    "no new namespace": "ctypes.CDLL(None).unshare(0x10000000) < 0",
}  # fmt: skip
_TOOLS = """import ctypes, os, resource, socket
def kill(pid, signal):
    try: os.kill(pid, signal)
    except OSError: pass
def refused(action, but=()):
    try: action()
    except but: return False
    except (OSError, ValueError): return True
    return False
def f(): return bool({expression})
"""


@dataclass(frozen=True, slots=True)
class Canary:
    """One canary: whether what must hold did, and what came instead."""

    name: str
    held: bool
    detail: str = ""


def verdicts_of_canaries(judge: Judge, names: Iterable[str]) -> dict[str, Verdict]:
    """The verdict of `judge` on each named program; `unscored` where the sandbox failed, on the reference or later."""
    expected = judge.expected(REFERENCE, "f", [_CALL])
    found = {}
    for name in names:
        tests = judge.check(JUDGED[name].program, "f", [_CALL], expected).verdicts if expected[_CALL].valid else {}
        found[name] = tests[_CALL].verdict if _CALL in tests else Verdict.UNSCORED
    return found


def canaries_of(sandbox: Sandbox) -> list[Canary]:
    """Every canary's outcome, run where the sandbox is: what one changes or leaves behind is looked for there.

    Raises:
        EnvironmentFault: a service fails.
    """
    check = getattr(sandbox, "check", None)
    return run_canaries(sandbox) if check is None else [Canary(*found) for found in check(__name__)]


def run_canaries(sandbox: Sandbox) -> list[Canary]:
    """Runs every canary on this machine; takes a few seconds."""
    return [*_judged(sandbox), *_kept_out(sandbox), _swarm(sandbox), _survivors(sandbox), _numpy(sandbox)]


def _judged(sandbox: Sandbox) -> list[Canary]:
    found = verdicts_of_canaries(Judge(sandbox, limits=_LIMITS), JUDGED)
    held = {name: verdict in JUDGED[name].verdicts for name, verdict in found.items()}
    return [
        Canary(JUDGED[name].shows, held[name], "" if held[name] else verdict.value) for name, verdict in found.items()
    ]


def _kept_out(sandbox: Sandbox) -> list[Canary]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary.txt"
        canary.write_text("intact", encoding="ascii")
        os.chmod(folder, 0o777)
        canary.chmod(0o666)
        for name, expression in _KEPT_OUT.items():
            program = _TOOLS.replace("{expression}", expression.format(canary=str(canary)))
            answer = sandbox.run(program, "f", ["f()"], _LIMITS).answers[0]
            held = answer.kind is AnswerKind.CRASHED or (answer.value is not None and answer.value.data is True)
            found.append(Canary(name, held, "" if held else answer.text))
        intact = canary.exists() and canary.read_text(encoding="ascii") == "intact"
        found.append(Canary("the canary file is intact", intact))
    return found


def _swarm(sandbox: Sandbox) -> Canary:
    """Forks up to a bound of its own, not for ever: without a limit nothing else would stop it."""
    name = "the number of processes is bounded"
    program = (
        "import os, time\ndef f():\n    for n in range(200):\n        try:\n            if os.fork() == 0:\n"
        "                time.sleep(5)\n                os._exit(0)\n        except OSError: return n\n    return 200\n"
    )
    answer = sandbox.run(program, "f", ["f()"], _LIMITS).answers[0]
    held = answer.value is not None and isinstance(answer.value.data, int) and answer.value.data < 200
    return Canary(name, held, "" if held else answer.text)


def _survivors(sandbox: Sandbox) -> Canary:
    """A process that detaches itself twice, under a name of its own, must end with its program."""
    mark = f"c{secrets.token_hex(6)}"
    program = (
        "import ctypes, os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        ctypes.CDLL(None).prctl(15, b'{mark}', 0, 0, 0)\n        time.sleep(30)\n    os._exit(0)\n"
        "def f(): return 1\n"
    )
    sandbox.run(program, "f", ["f()"], _LIMITS)
    sandbox.run("def f(): return 1\n", "f", ["f()"], _LIMITS)
    deadline = time.monotonic() + 20
    while (left := _named(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return Canary("nothing lives on", not left, f"processes {left}" if left else "")


def _named(name: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text(encoding="utf-8", errors="replace").strip() == name:
                found.append(int(folder.name))
    return found


def _numpy(sandbox: Sandbox) -> Canary:
    program = (
        "def f():\n    try: import numpy\n    except ImportError: return 'not installed'\n"
        "    return float(numpy.ones(9).sum())\n"
    )
    answer = sandbox.run(program, "f", ["f()"], Limits()).answers[0]
    held = answer.value is not None
    return Canary("numpy imports under the default limits", held, answer.text if answer.text != "9.0" else "")
