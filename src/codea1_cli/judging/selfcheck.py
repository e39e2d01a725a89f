"""Canaries: small programs that try to cheat, hang or break out, and what must come of each."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from codea1_cli.judging.canaries import KNOWN, verdicts_of_known
from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import AnswerKind

_LIMITS = Limits(time_s=1.0, memory_mb=256, processes=32, output_kb=1024)
# name: an expression that is true when the program was kept from what it tried
_KEPT_OUT = {
    "the parent lives": "kill(os.getppid(), 9) or True",
    "no network, not even loopback": "refused(lambda: socket.create_connection(('127.0.0.1', 9), 0.2), ConnectionRefusedError)",
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


def run_canaries(sandbox: LocalSandbox) -> list[Canary]:
    """Runs every canary; takes a few seconds."""
    return [*_judged(sandbox), *_kept_out(sandbox), _swarm(sandbox), _survivors(sandbox), _numpy(sandbox)]


def _judged(sandbox: LocalSandbox) -> list[Canary]:
    found = verdicts_of_known(Judge(sandbox, limits=_LIMITS), KNOWN)
    held = {name: verdict in KNOWN[name].verdicts for name, verdict in found.items()}
    return [
        Canary(KNOWN[name].shows, held[name], "" if held[name] else verdict.value) for name, verdict in found.items()
    ]


def _kept_out(sandbox: LocalSandbox) -> list[Canary]:
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


def _swarm(sandbox: LocalSandbox) -> Canary:
    """Forks up to a bound of its own, not for ever: without a limit nothing else would stop it."""
    name = "the number of processes is bounded"
    program = (
        "import os, time\ndef f():\n    for n in range(200):\n        try:\n            if os.fork() == 0:\n"
        "                time.sleep(5)\n                os._exit(0)\n        except OSError: return n\n    return 200\n"
    )
    answer = sandbox.run(program, "f", ["f()"], _LIMITS).answers[0]
    held = answer.value is not None and isinstance(answer.value.data, int) and answer.value.data < 200
    return Canary(name, held, "" if held else answer.text)


def _survivors(sandbox: LocalSandbox) -> Canary:
    """A process that detaches itself twice, under a name of its own, must end with its program."""
    mark = f"c{secrets.token_hex(6)}"
    program = (
        "import ctypes, os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        ctypes.CDLL(None).prctl(15, b'{mark}', 0, 0, 0)\n        time.sleep(30)\n    os._exit(0)\n"
        "def f(): return 1\n"
    )
    sandbox.run(program, "f", ["f()"], _LIMITS)
    sandbox.run("def f(): return 1\n", "f", ["f()"], _LIMITS)
    deadline = time.monotonic() + 3
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


def _numpy(sandbox: LocalSandbox) -> Canary:
    program = "def f():\n    try: import numpy\n    except ImportError: return 'not installed'\n    return float(numpy.ones(9).sum())\n"
    answer = sandbox.run(program, "f", ["f()"], Limits()).answers[0]
    held = answer.value is not None
    return Canary("numpy imports under the default limits", held, answer.text if answer.text != "9.0" else "")
