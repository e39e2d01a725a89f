"""Runs on the service: forks the child that loads a candidate, holds it to its limits, and keeps what it answers.

Uploaded with `child` and what that needs; standard library only. The answers go to a file that the service hands
back, never to stdout. A candidate on the service may reach this process and that file: what it forges is a value, which
is compared like any other, and what it breaks is its own run.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time

ANSWERS = "answers.bin"
END = "end.json"


def main() -> None:
    """Runs the request in the current folder, under its hash seed; leaves the files ANSWERS and END."""
    with open("request.json", encoding="utf-8") as file:
        request = json.load(file)
    if os.environ.get("PYTHONHASHSEED") != str(request["hash_seed"]):
        environment = {
            **os.environ, "PYTHONHASHSEED": str(request["hash_seed"]), "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
        }  # fmt: skip
        os.execve(sys.executable, [sys.executable, "-c", "import fusion_guest; fusion_guest.main()"], environment)
    reader, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            become_child(request, out)
        finally:
            os._exit(1)
    os.close(out)
    ended, status = follow(pid, reader, request)
    with open(END, "w", encoding="ascii") as file:
        json.dump({"ended": ended, "status": status}, file)


def become_child(request: dict, out: int) -> None:
    """Sets the limits and answers the calls of the request into the descriptor `out`; does not return."""
    import kernel
    import module_loader

    child = module_loader.load(".")
    os.setsid()
    sink = os.memfd_create("output", 0)
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (sink, 1), (sink, 2)):
        os.dup2(source, target)
    os.close(null)
    for what, value in (
        (resource.RLIMIT_AS, kernel.virtual_bytes() + (request["memory_mb"] << 20)),
        (resource.RLIMIT_FSIZE, request["output_kb"] << 10),
        (resource.RLIMIT_CPU, request["cpu_s"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (value, value))
    for name in ("fusion_guest", "module_loader", "kernel"):
        sys.modules.pop(name, None)
    text = json.dumps(request["job"]).encode()
    child.Job(text, request["start"], out, sink, request["output_kb"] << 10, "", False, False).run()
    os._exit(0)


def follow(pid: int, reader: int, request: dict) -> tuple[str, int]:
    """Copies the child's frames to the file until it has ended or is late; how it ended, and its wait status."""
    deadline = time.monotonic() + request["load_s"]
    ended = "exited"
    with open(ANSWERS, "wb", 0) as file:
        while True:
            left = deadline - time.monotonic()
            ready = select.select([reader], [], [], max(0.0, min(left, 0.05)))[0]
            if ready:
                data = os.read(reader, 1 << 16)
                if data:
                    file.write(data)
                    deadline = time.monotonic() + request["call_s"]
                    continue
                break  # every holder of the pipe is gone
            if is_over(pid):
                drain(reader, file)
                break
            if left <= 0:
                ended = "timeout"
                break
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    try:
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    except OSError:
        status = 0
    return ended, status


def is_over(pid: int) -> bool:
    """Whether the child has ended; it is not buried yet."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def drain(reader: int, file) -> None:
    """Copies what is left in the pipe to the file."""
    os.set_blocking(reader, False)
    with contextlib.suppress(OSError):
        while data := os.read(reader, 1 << 16):
            file.write(data)
