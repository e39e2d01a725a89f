"""One sandbox-fusion service: a request to it, and whether it is there at all.

The request has the form of the service's own client. It is not sent by that client, which waits as long as an answer
drips in and asks again by rules of its own.

An answer counts when it bears the request's signature (`fusion_guest`). All else, from a refused connection to an
answer that drips in byte by byte, is a ServiceFailure.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from hmac import compare_digest
from pathlib import Path
from typing import Any

import codea1_cli
from codea1_cli.network import Client, NoResponse
from codea1_cli.sandbox.fusion_guest import ANSWER, MAC_BYTES, REQUEST, sign

_log = logging.getLogger(__name__)

PROBE_S = 15.0  # for a request that runs nothing
_ASK_AGAIN_S = 5.0  # how long a service that is down is not asked again
_LARGEST = 512 << 20
_MAIN = "from codea1_cli.sandbox.fusion_guest import main\n\nmain()\n"
_MODULES = (
    "__init__.py", "errors.py", "environment.py", "sandbox/__init__.py", "sandbox/base.py",
    "sandbox/verdicts.py", "sandbox/values.py", "sandbox/fusion_guest.py",
)  # fmt: skip


class ServiceFailure(Exception):
    """The service gave no usable answer; `kind` is a word for the counters."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what[:300])
        self.kind = kind


class Service:
    """Thread-safe. `failures` counts by kind what went wrong; `cause` is what did last.

    setup: what the local sandbox over there is made with. patience_s: how long an outage is waited for.
    """

    def __init__(self, endpoint: str, setup: Mapping[str, Any], patience_s: float) -> None:
        self.endpoint, self.setup, self.patience_s = endpoint, dict(setup), patience_s
        self._client = Client(endpoint)
        self.name = f"the sandbox-fusion service at {self._client.name}"
        self.failures: Counter[str] = Counter()
        self.cause = ""
        self.down: ServiceFailure | None = None  # since an outage was longer than our patience
        self._since: float | None = None  # when the first request of an outage began
        self._asked = 0.0
        self._probing = threading.Lock()
        self._guard = threading.Lock()

    def ask(
        self, jobs: Iterable[Mapping[str, Any]], seconds: float, run_s: float, warm: Iterable[str] = (), check: str = ""
    ) -> dict[str, Any]:
        """What the guest answers to these jobs; it begins none after `seconds`. Raises ServiceFailure.

        check: a module of ours whose `run_canaries` is run too; its package goes there with it.
        """
        from sandbox_fusion.models import RunCodeRequest

        began, secret = time.monotonic(), secrets.token_bytes(32)
        request = {
            "secret": secret.hex(), "setup": self.setup | {"warm": list(warm)}, "jobs": list(jobs), "seconds": seconds,
            "check": check,
        }  # fmt: skip
        files = _uploads(check) | {REQUEST: _base64(json.dumps(request).encode())}
        wish = RunCodeRequest(code=_MAIN, language="python", run_timeout=run_s, files=files, fetch_files=[ANSWER])
        try:
            found = _signed_answer(self._post(wish.json().encode(), run_s + PROBE_S), secret)
        except ServiceFailure as fault:
            with self._guard:
                self.failures[fault.kind] += 1
                self.cause = str(fault)
                fresh, self._since = self._since is None, min(began, self._since or began)
            if fresh and not self.closed:
                _log.warning("%s failed: %s", self.name, fault)
            raise
        with self._guard:
            if self._since is not None and self.down is not None:
                _log.warning("%s answers again", self.name)
            self._since = self.down = None
        return found

    def wait_until_up(self) -> None:
        """Returns when the service answers; at once where it did last time.

        Raises:
            ServiceFailure: the outage has lasted `patience_s`. After that the service is asked now and then.
        """
        if self._since is None:
            return
        with self._probing:
            pause_s = 0.25
            while (since := self._since) is not None:
                if self.down is not None and time.monotonic() - self._asked < _ASK_AGAIN_S:
                    raise self.down
                try:
                    self.ask((), 0.0, PROBE_S)
                except ServiceFailure as fault:
                    self._asked = time.monotonic()
                    left = since + self.patience_s - self._asked
                    if left <= 0 or self.closed:
                        if self.down is None and not self.closed:
                            _log.warning(
                                "it has failed for %.0f s now: what it would run is unscored", self.patience_s - left
                            )
                        self.down = fault
                        raise
                    time.sleep(min(random.uniform(0.5, 1.0) * pause_s, left))
                    pause_s = min(2 * pause_s, 5.0)

    def close(self) -> None:
        """Ends the requests that are under way: they fail."""
        self._client.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed: what fails then is no outage."""
        return self._client.closed

    def _post(self, body: bytes, seconds: float) -> Any:
        """The JSON that the service answers with, whole within `seconds`. Raises ServiceFailure."""
        try:
            answer = self._client.ask("run_code", body, seconds, _LARGEST)
        except NoResponse as fault:
            raise ServiceFailure(fault.kind, str(fault)) from None
        if answer.status != 200:
            raise ServiceFailure("status", f"it answers {answer.status} {answer.reason}: {answer.shown()}")
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise ServiceFailure("garbage", f"its answer is no JSON: {answer.shown()}") from None


def _signed_answer(reply: Any, secret: bytes) -> dict[str, Any]:
    """The guest's own answer out of the service's. Raises ServiceFailure where the signature is missing or wrong."""
    try:
        raw = base64.b64decode(reply["files"][ANSWER], validate=True)
        mark, payload = raw[:MAC_BYTES], raw[MAC_BYTES:]
    except (KeyError, TypeError, ValueError):
        raise ServiceFailure("lost", f"programs do not run there: {_told(reply)}") from None
    if not compare_digest(mark, sign(secret, payload)):
        raise ServiceFailure("garbage", "an answer that our guest did not sign")
    found: dict[str, Any] = json.loads(payload)
    if found["fault"]:
        raise ServiceFailure("sandbox", f"no sandbox starts there: {found['fault']}")
    return found


def _told(reply: Any) -> str:
    """What a service's reply says of a run that left nothing."""
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        run = reply.get("run_result") or {}
        lines = str(run.get("stderr") or reply.get("message") or "").strip().splitlines()
        code = run.get("return_code")
        words = [str(run.get("status") or reply.get("status") or "no status")]
        words += [f"exit status {code}"] if code else []
        return ", ".join([*words, *(line.strip()[:200] for line in lines[-1:])])
    return "its answer is not that of a sandbox-fusion service"


@cache
def _uploads(check: str) -> dict[str, str]:
    """Our modules for the guest, by path."""
    root = Path(codea1_cli.__file__).parent
    folders = [root / "sandbox" / "local", *([root / check.split(".")[1], root / "extract"] if check else [])]
    names = [*_MODULES, *(str(path.relative_to(root)) for folder in folders for path in sorted(folder.rglob("*.py")))]
    return {f"codea1_cli/{name}": _base64((root / name).read_bytes()) for name in names}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
