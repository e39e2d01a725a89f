"""A small HTTP stand-in of sandbox-fusion's `/run_code`, which can be told to fail in each way.

It runs what it is sent inside the local sandbox, so that hostile programs can be sent to it.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox

# Runs inside the jail: the service's work on one request.
_SERVICE = """
import base64, os, subprocess, sys
def serve(code, files, fetch, timeout):
    for name, text in files.items():
        with open(name, 'wb') as file: file.write(base64.b64decode(text))
    with open('main.py', 'w') as file: file.write(code)
    try:
        done = subprocess.run([sys.executable, 'main.py'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=timeout)
        code, error = done.returncode, done.stderr[-2000:].decode('utf-8', 'replace')
    except subprocess.TimeoutExpired:
        code, error = None, ''
    found = {}
    for name in fetch:
        if os.path.exists(name):
            with open(name, 'rb') as file: found[name] = base64.b64encode(file.read()).decode()
    return code, error, found
"""


class StandIn:
    """`fault` is what the next answers suffer from: "", error, sandbox_error, garbage, half, empty, slow, hang, mute, lost.

    `left` counts down how many answers do; after that the service is well again.
    """

    def __init__(self, box: LocalSandbox) -> None:
        self.box = box
        self.fault, self.left = "", 0
        self.requests = 0
        self.lock = threading.Lock()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = stand_in.answer(request)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the client has gone

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def fail(self, fault: str, times: int = 1_000_000) -> None:
        with self.lock:
            self.fault, self.left, self.requests = fault, times, 0

    def _next_fault(self) -> str:
        with self.lock:
            self.requests += 1
            if self.left <= 0:
                return ""
            self.left -= 1
            return self.fault

    def answer(self, request: dict) -> tuple[int, bytes]:
        fault = self._next_fault()
        if fault == "error":
            return 503, b"try again later"
        if fault == "garbage":
            return 200, b"<html>it works</html>"
        if fault == "hang":
            time.sleep(3)
        if fault == "sandbox_error":
            return 200, json.dumps({"status": "SandboxError", "message": "no worker", "files": {}}).encode()
        code, _, files = (None, "", {}) if fault == "slow" else self.run(request)
        ended = "TimeLimitExceeded" if code is None else "Finished" if code == 0 else "Error"
        result = {"status": ended, "execution_time": 0.1, "return_code": code, "stdout": "", "stderr": ""}
        body = {"status": "Success" if code == 0 else "Failed", "message": "", "run_result": result, "files": files}
        if fault == "empty":
            body["files"], body["run_result"] = {}, None
        if fault == "lost":
            body["files"] = {}
        if fault == "mute":
            body["files"] = dict.fromkeys(files, "%%%")
        raw = json.dumps(body).encode()
        return 200, raw[: len(raw) // 2] if fault == "half" else raw

    def run(self, request: dict) -> tuple[int | None, str, dict[str, str]]:
        limits = Limits(time_s=request["run_timeout"] + 10, memory_mb=4096, output_kb=65536, processes=128)
        call = (
            f"serve({request['code']!r}, {request['files']!r}, {request['fetch_files']!r}, {request['run_timeout']!r})"
        )
        answer = self.box.run(_SERVICE, "serve", [call], limits).answers[0]
        assert answer.value is not None, answer
        return answer.value.data  # type: ignore[return-value]


@contextmanager
def stand_in() -> Iterator[StandIn]:
    with LocalSandbox(2, warm=()) as box:
        service = StandIn(box)
        thread = threading.Thread(target=service.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.server.shutdown()
            service.server.server_close()
