"""The sandbox-fusion backend: the local sandbox, run on a service's machines.

A request takes the local sandbox there (`fusion_guest`) with as many programs as wait, so that its start is shared;
each program has a jail of its own, as here. Only an answer that the guest signed is one. Whatever else comes is an
outage of the service (`fusion_service`): it is waited for, the programs are asked again, and what has no answer in the
end is unscored.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from codea1_cli.errors import EnvironmentFault
from codea1_cli.sandbox.base import Limits, ProgramRun, SandboxEnvironment, UnitModule, UnitRun
from codea1_cli.sandbox.fusion_service import Service, ServiceFailure
from codea1_cli.sandbox.make import check_endpoint
from codea1_cli.sandbox.verdicts import Answer, AnswerKind, TestOutcome, Value, Verdict

BATCH = 32
"""Programs of one request, at most."""
_SLICE_S = 5.0  # a request begins no further program after this
_START_S = 20.0
_START_PATIENCE_S = 3.0
_LEAST_TRIES = 3
_LARGEST_REQUEST = 8 << 20
_LOADS = 5  # a program is loaded so many times at most, in `run_program`


@dataclass(eq=False, slots=True)
class _Waiting:
    """One program in the queue, or `CALLS` of its calls."""

    fields: dict[str, Any]
    longest_s: float
    text: str
    result: dict[str, Any] | None = None
    failure: str = ""
    most: int = BATCH  # programs of its next request: fewer each time one failed, so that none pays for another
    tries: int = 0
    failing_since: float = 0.0
    not_before: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)


class FusionSandbox:
    """Programs on a sandbox-fusion service. Thread-safe.

    endpoint: the service's address, else SANDBOX_FUSION_ENDPOINT. requests: how many are under way at once, each with
    up to BATCH programs; `workers` is how many callers that keeps busy. patience_s: how long an outage is waited for.
    python, require, without, warm, environment: as LocalSandbox, on the service's machine. `failures` counts by kind
    what went wrong, retried or not.

    Raises:
        UserError: no endpoint is named, it is no address, or the proxy on the way to it is none.
        EnvironmentFault: the service does not answer, its sandbox does not start, or a required layer is missing there.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        requests: int = 8,
        patience_s: float = 60.0,
        python: str | None = None,
        require: Iterable[str] = (),
        without: Iterable[str] = (),
        warm: Iterable[str] = ("numpy",),
        environment: SandboxEnvironment = SandboxEnvironment(),
    ) -> None:
        self.endpoint = check_endpoint(endpoint)
        self.hint = "see that the service runs, or name another with --endpoint or sandbox.endpoint"
        self.requests = max(1, requests)
        self.workers = max(self.requests, min(self.requests * BATCH, 256))
        self.warm = tuple(warm)
        setup = {"python": python, "require": list(require), "without": list(without)}
        self.service = Service(self.endpoint, setup | {"environment": asdict(environment)}, patience_s)
        self.failures = self.service.failures
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._free = self.requests
        hello = self._hello()
        self.hello = {"python": hello["python"]}
        self.layers: dict[str, str] = hello["layers"]

    def _hello(self) -> dict[str, Any]:
        """What the service says of itself; at the start nothing can be lost, so little is waited for."""
        until = time.monotonic() + min(_START_PATIENCE_S, self.service.patience_s)
        while True:
            try:
                return self.service.ask((), 0.0, _START_S, self.warm)
            except ServiceFailure as fault:
                if fault.kind == "sandbox" or time.monotonic() > until:
                    raise self.outage() from None
            time.sleep(0.5)

    def outage(self) -> EnvironmentFault:
        """The service's last failure as an error that names it."""
        return EnvironmentFault(self.trouble, self.hint)

    @property
    def trouble(self) -> str:
        """The service and what went wrong with it last; empty while nothing did."""
        cause = self.service.cause
        return cause and f"{self.service.name} failed: {cause}"

    def run(
        self,
        program: str,
        entry_point: str,
        calls: Sequence[str],
        limits: Limits,
        hash_seed: int = 0,
        *,
        given: str = "null",
    ) -> ProgramRun:
        """Loads a program and evaluates calls in it; `unscored` where the service fails for longer than we wait."""
        fields = {
            "program": program, "entry": entry_point, "calls": list(calls), "limits": asdict(limits), "seed": hash_seed,
            "given": given,
        }  # fmt: skip
        job = _Waiting(fields, _LOADS * limits.load_limit_s + len(calls) * limits.time_s, f"{program} {calls} {given}")
        result = self._result_of(job)
        if result is None:
            return ProgramRun.unscored(len(calls), job.failure)
        answers = [_answer(*answer) for answer in result["answers"]]
        kind = result["kind"] and AnswerKind(result["kind"])
        return ProgramRun(result["loaded"], result["detail"], answers, result["seconds"], kind, result["load_seconds"])

    def run_unit(self, module: UnitModule, limits: Limits, hash_seed: int = 0) -> UnitRun:
        """Runs a program with a unittest module, as LocalSandbox does; needs an environment with `unit`."""
        fields = {
            "program": module.code, "tests": module.tests, "names": module.names, "class": module.class_name,
            "limits": asdict(limits), "seed": hash_seed,
        }  # fmt: skip
        job = _Waiting(fields, 2 * limits.time_s, f"{module.code} {module.tests}")
        result = self._result_of(job)
        if result is None:
            return UnitRun.unscored(module, job.failure)
        whole, *tests = (TestOutcome(Verdict(verdict), detail) for verdict, detail in result["answers"])
        return UnitRun(result["loaded"], tests, whole, result["seconds"])

    def check(self, module: str) -> list[tuple[str, bool, str]]:
        """Has `run_canaries` of a module of ours run on the service: (name, whether it held, what came).

        Raises:
            EnvironmentFault: the service fails.
        """
        try:
            found = self.service.ask((), 0.0, 120.0, check=module)["runs"]
        except ServiceFailure:
            raise self.outage() from None
        return [(name, held, detail) for name, held, detail in found]

    def close(self) -> None:
        """Ends the requests under way; their programs, and any that is asked for afterwards, are unscored."""
        self.service.close()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> FusionSandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- the queue: whoever waits for a program sends the next request, when one may be sent -------------------------
    def _result_of(self, job: _Waiting) -> dict[str, Any] | None:
        """The guest's result of a job; None, with `job.failure`, when there is none."""
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()
        while not job.done.is_set():
            with self._changed:
                batch = self._take()
                while not batch and not job.done.is_set():
                    self._changed.wait(self._pause())
                    batch = self._take()
            if batch:
                try:
                    self._send(batch)
                finally:
                    with self._changed:
                        self._free += 1
                        lost = [one for one in batch if not one.done.is_set() and one not in self._waiting]
                        self._waiting.extendleft(reversed(lost))  # what an interrupt left: others wait for it
                        self._changed.notify_all()
        return job.result

    def _pause(self) -> float | None:
        """Seconds until a job that was put off may be asked again, while there is a place for a request."""
        if not self._free or not self._waiting:
            return None
        return max(0.01, min(job.not_before for job in self._waiting) - time.monotonic())

    def _take(self) -> list[_Waiting]:
        """The next request's jobs, the longest waiting first: alike, and no more than a free request's share."""
        now = time.monotonic()
        ripe = [job for job in self._waiting if job.not_before <= now] if self._free else []
        if not ripe:
            return []
        first = ripe[0]
        like = [job for job in ripe if (job.fields["seed"], job.most) == (first.fields["seed"], first.most)]
        batch = like[: min(first.most, -(-len(ripe) // self._free))]
        size = 0
        for count, job in enumerate(batch):
            size += len(job.text)
            if count and size > _LARGEST_REQUEST:
                batch = batch[:count]
                break
        for job in batch:
            self._waiting.remove(job)
        self._free -= 1
        return batch

    def _send(self, batch: list[_Waiting]) -> None:
        warm = [name for name in self.warm if any(name.partition(".")[0] in job.text for job in batch)]
        run_s = _START_S + _SLICE_S + 1.5 * max(job.longest_s for job in batch)
        try:
            self.service.wait_until_up()
            found = self.service.ask([job.fields for job in batch], _SLICE_S, run_s, warm)["runs"]
        except ServiceFailure as fault:
            self._failed(batch, fault)
            return
        for job, result in zip(batch, found, strict=False):
            if result["loaded"] is None:
                self.failures["unscored"] += 1
                self._put_off([job], ServiceFailure("unscored", result["detail"]))
            else:
                job.result = result
                job.done.set()
        with self._changed:
            self._waiting.extendleft(reversed(batch[len(found) :]))  # there was no time for them

    def _failed(self, batch: list[_Waiting], fault: ServiceFailure) -> None:
        """After a request without an answer: when the service runs programs again, these are asked in smaller ones."""
        try:
            self.service.wait_until_up()
        except ServiceFailure as lasting:
            for job in batch:
                self._give_up(job, lasting)
            return
        self._put_off(batch, fault)

    def _put_off(self, batch: list[_Waiting], fault: ServiceFailure) -> None:
        now = time.monotonic()
        pause_s = random.uniform(0.25, 0.5) * min(2 ** batch[0].tries, 16)
        for job in batch:
            job.most, job.tries, job.not_before = max(1, len(batch) // 4), job.tries + 1, now + pause_s
            job.failing_since = job.failing_since or now
            tried = len(batch) == 1 and job.tries >= _LEAST_TRIES
            if self.service.closed or (tried and now - job.failing_since >= self.service.patience_s):
                self._give_up(job, fault)
            else:
                with self._changed:
                    self._waiting.append(job)

    def _give_up(self, job: _Waiting, fault: ServiceFailure) -> None:
        job.failure = f"{self.service.name} failed: {fault}"
        job.done.set()


def _answer(kind: str, text: str, seconds: float) -> Answer:
    if kind == AnswerKind.VALUE:
        return Answer(AnswerKind.VALUE, Value(wire=text), seconds=seconds)
    return Answer(AnswerKind(kind), detail=text, seconds=seconds)
