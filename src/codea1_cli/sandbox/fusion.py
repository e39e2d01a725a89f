"""The sandbox-fusion backend: the same child and the same verdicts, on a service's machines.

Its own failures (refused, 5xx, time-outs, garbage, half an answer) are retried with back-off and counted; what stays
without an answer is unscored. The service isolates its runs as it is configured to: see the threat model.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codea1_cli.errors import EnvironmentFault
from codea1_cli.sandbox.base import Limits, ProgramRun
from codea1_cli.sandbox.local.child_monitor import ChildReport, FrameReader, Garbage
from codea1_cli.sandbox.local.programs import run_program

ENDPOINT = "SANDBOX_FUSION_ENDPOINT"
_JAILED = Path(__file__).parent / "local" / "jailed"
_UPLOADS = ("fusion_guest", "module_loader", "kernel", "encode", "statelessness", "bytecode", "child")
ANSWERS, END = "answers.bin", "end.json"  # the files that fusion_guest leaves
_LONGEST_RUN_S = 300.0
_SPARE_S = 20.0


class ServiceFailure(Exception):
    """The service gave no usable answer; `kind` is a word for the counters."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}"[:300])
        self.kind = kind


class FusionSandbox:
    """Programs on a sandbox-fusion service. Thread-safe.

    endpoint: the service's address, else SANDBOX_FUSION_ENDPOINT. workers: requests at once. attempts and patience_s:
    how often, and for how many seconds in all, a failed request is tried again. `failures` counts by kind what went
    wrong, retried or not. Raises EnvironmentFault when no endpoint is named.
    """

    def __init__(
        self, endpoint: str | None = None, workers: int = 8, attempts: int = 5, patience_s: float = 60.0
    ) -> None:
        self.endpoint = endpoint or os.environ.get(ENDPOINT) or ""
        if not self.endpoint:
            raise EnvironmentFault("no sandbox-fusion endpoint", f"set sandbox.endpoint or {ENDPOINT}")
        self.attempts = attempts
        self.patience_s = patience_s
        self.failures: Counter[str] = Counter()
        self.layers: dict[str, str] = {}
        self._places = threading.BoundedSemaphore(max(1, workers))
        self._counting = threading.Lock()
        self._down = False
        logging.getLogger("sandbox_fusion").setLevel(logging.CRITICAL)  # its failures are told by ours
        self._files = {f"{name}.py": _base64((_JAILED / f"{name}.py").read_bytes()) for name in _UPLOADS}

    def run(
        self, program: str, entry_point: str, calls: Sequence[str], limits: Limits, hash_seed: int = 0
    ) -> ProgramRun:
        """Loads a program and evaluates calls in it; `unscored` where the service fails for longer than we wait."""
        began = time.monotonic()
        job = {"program": program, "entry": entry_point, "calls": list(calls), "apart": False}
        with self._places:
            try:
                run = run_program(_Remote(self, job, hash_seed).watch, len(calls), limits)
            except ServiceFailure as fault:
                run = ProgramRun.unscored(len(calls), f"the sandbox service failed: {fault}")
        run.seconds = time.monotonic() - began
        return run

    def ask(self, request: dict[str, Any], run_s: float) -> dict[str, bytes]:
        """The files of one run on the service. Raises ServiceFailure when it goes on failing."""
        began = time.monotonic()
        for attempt in range(self.attempts):
            try:
                files = self._ask_once(request, run_s)
                self._down = False
                return files
            except ServiceFailure as fault:
                with self._counting:
                    self.failures[fault.kind] += 1
                wait = random.uniform(0.5, 1.0) * min(0.5 * 2**attempt, 10.0)
                # While the service is down every other caller asks once, so that an outage costs one wait, not many.
                over = time.monotonic() + wait - began > self.patience_s
                if self._down or attempt + 1 == self.attempts or over:
                    self._down = True
                    raise
                time.sleep(wait)
        raise AssertionError("at least one attempt")

    def _ask_once(self, request: dict[str, Any], run_s: float) -> dict[str, bytes]:
        import requests
        from sandbox_fusion import RunCodeRequest, run_code
        from sandbox_fusion.models import CommandRunStatus

        message = RunCodeRequest(
            code="import fusion_guest\nfusion_guest.main()\n",
            language="python",
            run_timeout=run_s,
            files=self._files | {"request.json": _base64(json.dumps(request).encode())},
            fetch_files=[ANSWERS, END],
        )
        try:
            reply = run_code(message, endpoint=self.endpoint, max_attempts=1, client_timeout=run_s + _SPARE_S)
        except requests.Timeout as fault:
            raise ServiceFailure("timeout", str(fault)) from fault
        except requests.ConnectionError as fault:
            raise ServiceFailure("refused", str(fault)) from fault
        except Exception as fault:  # the client raises bare Exceptions, and pydantic's for half an answer
            said = str(fault)
            kind = "error" if "responded with" in said else "garbage"
            raise ServiceFailure(kind, said) from fault
        if reply.run_result is None:
            raise ServiceFailure("garbage", "an answer without a run")
        if reply.run_result.status == CommandRunStatus.TimeLimitExceeded:
            raise ServiceFailure("slow", "the service ended the run at its own limit")
        try:
            files = {name: base64.b64decode(text or "", validate=True) for name, text in reply.files.items()}
        except ValueError as fault:
            raise ServiceFailure("garbage", "a file that is no base64") from fault
        if reply.run_result.return_code == 0 and END not in files:
            raise ServiceFailure("garbage", "a run that ended well, without its files")
        return files

    def works(self) -> bool:
        """Whether the service runs a program that does nothing."""
        job = {"program": "def f(): return 1", "entry": "f", "calls": ["f()"], "apart": False}
        request = {"memory_mb": 256, "output_kb": 64, "processes": 32, "cpu_s": 10, "again": False}
        try:
            seen = _Remote(self, job, 0).watch(0, 1, request, 5.0, 5.0, probe=False)
        except ServiceFailure:
            return False
        return bool(seen.answers)

    def close(self) -> None:
        """Nothing is held."""


class _Remote:
    """One program's runs, in the shape of a local worker."""

    def __init__(self, sandbox: FusionSandbox, job: dict[str, Any], hash_seed: int) -> None:
        self.sandbox, self.job, self.hash_seed = sandbox, job, hash_seed

    def watch(
        self, start: int, calls: int, request: dict[str, Any], load_s: float, call_s: float, probe: bool = True
    ) -> ChildReport:
        run_s = min(load_s + (calls - start) * call_s + 5.0, _LONGEST_RUN_S)
        message = {
            **request, "job": self.job, "start": start, "hash_seed": self.hash_seed, "load_s": load_s, "call_s": call_s
        }  # fmt: skip
        seen = ChildReport(FrameReader(start, calls))
        try:
            files = self.sandbox.ask(message, run_s)
        except ServiceFailure as fault:
            if fault.kind != "slow" or not probe or not self.sandbox.works():
                raise
            # The service runs other programs in time: this one has stopped the process that was to hold it.
            seen.ended = "timeout"
            return seen
        try:
            seen.answers = seen.reader.feed(files.get(ANSWERS, b""))
        except Garbage as fault:
            seen.ended, seen.detail = "garbage", str(fault)
            return seen
        if seen.reader.done or seen.reader.load_failure is not None:
            seen.ended = "done"
            return seen
        try:
            end = json.loads(files.get(END, b""))
            seen.ended = "timeout" if end["ended"] == "timeout" else "exited"
            seen.status = int(end["status"])
        except (ValueError, KeyError, TypeError):
            seen.ended = "exited"  # the run ended well for the service, without our last word: the program's doing
        return seen


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
