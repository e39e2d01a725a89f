"""Runs on a sandbox-fusion service: the local sandbox over there, on the programs of one request.

Uploaded with the modules of `sandbox/`, and Python 3.10 is enough for it. What it leaves is signed with the request's
secret, which this process alone holds: it takes the request off the disk before the first program starts, no other
process may look into it, and nothing that it starts inherits the secret. So a program can forge no answer and no end of
itself, and an answer that does not bear the signature says that the service failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import hashlib
import importlib
import json
import os
import tempfile
import time
from dataclasses import astuple
from typing import Any

if not hasattr(enum, "StrEnum"):  # Python 3.10

    class _StrEnum(str, enum.Enum):  # noqa: UP042
        __str__ = str.__str__

    enum.StrEnum = _StrEnum  # type: ignore[assignment, misc]

REQUEST, ANSWER = "request.json", "answer.bin"
MAC_BYTES = 32
_PR_SET_DUMPABLE = 4
_LARGEST_ANSWER = 16 << 20


def sign(secret: bytes, payload: bytes) -> bytes:
    """The mark of an answer: a keyed BLAKE2b digest (RFC 7693) of all of it."""
    return hashlib.blake2b(payload, key=secret, digest_size=MAC_BYTES).digest()


def main() -> None:
    """Answers the request in the current folder; leaves the file ANSWER when every program has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    with open(REQUEST, encoding="utf-8") as file:
        request = json.load(file)
    os.remove(REQUEST)
    secret = bytes.fromhex(request.pop("secret"))
    payload = json.dumps(answer(request)).encode()
    with open(ANSWER + ".part", "wb") as out:
        out.write(sign(secret, payload) + payload)
    os.replace(ANSWER + ".part", ANSWER)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What comes of a request: about the sandbox over there, and the runs of the jobs that it came to within its time.

    A job that is begun is ended. `fault` says why there is no sandbox.
    """
    from codea1_cli.errors import CodeA1Error
    from codea1_cli.sandbox.base import Limits, SandboxEnvironment
    from codea1_cli.sandbox.local import LocalSandbox

    tempfile.tempdir = os.getcwd()  # what lies elsewhere may be seen, or swept, by those of other process tables
    setup = request["setup"]
    setup["environment"] = SandboxEnvironment(**setup["environment"])
    try:
        sandbox = LocalSandbox(1, **setup, compiling=False)  # a request's time is bounded
    except CodeA1Error as fault:
        return {"fault": fault.what}
    runs: list[Any] = []
    with contextlib.closing(sandbox):
        if request["check"]:
            runs = [list(astuple(found)) for found in importlib.import_module(request["check"]).run_canaries(sandbox)]
        for seed in {job["seed"] for job in request["jobs"]}:  # the interpreter's start is no program's time
            sandbox.run("def f(): pass", "f", [], Limits(), seed)
        began, size = time.monotonic(), 0
        for job in request["jobs"]:
            if runs and (time.monotonic() - began > request["seconds"] or size > _LARGEST_ANSWER):
                break
            runs.append(run(sandbox, job))
            size += sum(len(part[1]) for part in runs[-1]["answers"])
        python = sandbox.hello["python"]
    return {"fault": None, "python": python, "layers": sandbox.layers, "runs": runs}


def run(sandbox: Any, job: dict[str, Any]) -> dict[str, Any]:
    """One job's run, as JSON has it: an answer is its kind, its value's encoding or its detail, its seconds."""
    from codea1_cli.sandbox.base import Limits, UnitModule

    limits = Limits(**job["limits"])
    if "tests" in job:
        module = UnitModule(job["program"], job["tests"], tuple(job["names"]), job["class"])
        unit = sandbox.run_unit(module, limits, job["seed"])
        outcomes = [[one.verdict.value, one.detail] for one in (unit.whole, *unit.tests)]
        return {"loaded": unit.loaded, "detail": unit.whole.detail, "answers": outcomes, "seconds": unit.seconds}
    seen = sandbox.run(job["program"], job["entry"], job["calls"], limits, job["seed"], given=job["given"])
    answers = [
        [one.kind.value, one.value.wire if one.value is not None else one.detail, one.seconds] for one in seen.answers
    ]
    kind = seen.load_kind.value if seen.load_kind is not None else None
    return {
        "loaded": seen.loaded, "detail": seen.load_detail, "kind": kind, "answers": answers, "seconds": seen.seconds,
        "load_seconds": seen.load_seconds,
    }  # fmt: skip
