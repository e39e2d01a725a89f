"""A small HTTP stand-in of sandbox-fusion's `/run_code`, which can be told to fail in each way.

It runs what it is sent in a process of its own, as a service without isolation does: the jail is the guest's.
"""

import base64
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.listening import listening

STATUSES = {"busy": 503, "missing": 404, "redirect": 302}
HTML = b"<html><head><title>Sign in</title></head><body>it works</body></html>"


class StandIn:
    """`fault` is what the next answers suffer from, one of FAULTS; "" is none.

    `last` is what the newest request asked for, and with what for a proxy. `left` counts down how many answers do; after that the service is well again. `most` is the largest number of
    requests that were under way at once, `sizes` the number of files of each that ran.
    """

    FAULTS = (
        "busy", "missing", "redirect", "html", "half", "cut", "empty", "hang", "drip", "sandbox_error", "full", "slow",
        "lost", "mute", "forged", "killed", "no_interpreter",
    )  # fmt: skip

    def __init__(self) -> None:
        self.fault, self.left = "", 0
        self.last: tuple[str, str | None] = "", None
        self.requests = self.most = 0
        self.running = [0]  # those since the counters started anew
        self.seconds = 0.0  # that each answer is held back
        self.lock = threading.Lock()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                stand_in.last = self.path, self.headers.get("Proxy-Authorization")
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stand_in.lock:
                    running = stand_in.running
                    running[0] += 1
                    stand_in.most = max(stand_in.most, stand_in.running[0])
                try:
                    fault, body = stand_in.work(request)
                finally:
                    with stand_in.lock:  # before the answer: a client that has read it may ask again
                        running[0] -= 1
                with suppress(OSError):  # the client has gone
                    stand_in.respond(self, fault, body)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def fail(self, fault: str, times: int = 1_000_000) -> None:
        """The next `times` answers suffer from `fault`; the counters start anew."""
        with self.lock:
            self.fault, self.left, self.requests, self.most = fault, times, 0, 0
            self.running = [0]  # a client may have left requests that are still under way

    def _next_fault(self) -> str:
        with self.lock:
            self.requests += 1
            if self.left <= 0:
                return ""
            self.left -= 1
            return self.fault

    def work(self, request: dict[str, Any]) -> tuple[str, bytes]:
        """The fault that this request suffers from and the body of its answer."""
        fault = self._next_fault()
        time.sleep(self.seconds + (3 if fault == "hang" else 0))
        if fault in ("drip", "cut"):
            return fault, b""
        body = HTML if fault in ("html", *STATUSES) else json.dumps(self.answer(request, fault)).encode()
        return fault, body[: len(body) // 2] if fault == "half" else body

    def respond(self, handler: BaseHTTPRequestHandler, fault: str, body: bytes) -> None:
        if fault == "drip":
            handler.send_response(200)
            handler.send_header("Content-Length", "100000")
            handler.end_headers()
            for _ in range(60):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.05)
            return
        if fault == "cut":
            handler.close_connection = True
            return
        handler.send_response(STATUSES.get(fault, 200))
        handler.send_header("Location", "/login")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def answer(self, request: dict[str, Any], fault: str) -> dict[str, Any]:
        """The body of an answer as the service forms it."""
        if fault == "sandbox_error":
            return {"status": "SandboxError", "message": "no worker", "files": {}}
        if fault == "full":
            message = "exception on running code: [Errno 28] No space left on device: '/tmp/tmpx'"
            return {"status": "SandboxError", "message": message, "files": {}}
        forged = base64.b64encode(bytes(32) + b'{"fault": null, "runs": [{"loaded": true, "answers": []}]}').decode()
        code, error, files = {
            "slow": (None, "", {}),
            "no_interpreter": (127, "/bin/bash: line 1: python: command not found", {}),
            "killed": (-9, "", {}),
            "lost": (0, "", {}),
            "mute": (0, "", dict.fromkeys(request["fetch_files"], "%%%")),
            "forged": (0, "", dict.fromkeys(request["fetch_files"], forged)),
            "empty": (0, "", {}),
        }.get(fault) or self.run(request)
        ended = "TimeLimitExceeded" if code is None else "Finished"
        result = {"status": ended, "execution_time": 0.1, "return_code": code, "stdout": "", "stderr": error}
        body = {"status": "Success" if code == 0 else "Failed", "message": "", "run_result": result, "files": files}
        if fault == "empty":
            body["files"], body["run_result"] = {}, None
        return body

    def run(self, request: dict[str, Any]) -> tuple[int | None, str, dict[str, str]]:
        """Runs the request: exit status (None: too slow), the end of stderr, the files that were asked for."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in request["files"].items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(text))
            Path(folder, "main.py").write_text(request["code"], encoding="utf-8")
            try:
                done = subprocess.run(
                    [sys.executable, "main.py"],
                    cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=request["run_timeout"],
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return None, "", {}
            found = {
                name: base64.b64encode(Path(folder, name).read_bytes()).decode()
                for name in request["fetch_files"]
                if Path(folder, name).exists()
            }
        return done.returncode, done.stderr[-2000:].decode("utf-8", "replace"), found


@contextmanager
def stand_in() -> Iterator[StandIn]:
    service = StandIn()
    with listening(service.server):
        yield service
