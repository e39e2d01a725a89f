"""How long a command takes to say that there is no network: `uv run python benchmarks/first_use/run.py`.

Four kinds of dead network: a name that nobody knows, a port that refuses, an address that lets connections hang, a server
that takes them and never answers. Every command starts with empty caches. One line per command and kind: seconds, those of the
processor (a busy machine makes no more of them), exit code, the error.
"""

import contextlib
import itertools
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from codea1_cli.tiny import problems_path

COMMANDS = (
    "train --recipe tiny model=nobody/nothing",
    "train --recipe tiny code.model=nobody/nothing",
    "train --recipe 135m sampling.chunk=8",
    "train --recipe 135m model=builtin:tiny",
    "eval-code humaneval --model builtin:tiny",
    "eval-code mbpp --model nobody/nothing --data DATA",
    "prepare-data mbpp --out out",
    "prepare-data nobody/nothing --out out",
    "prepare-data ROWS --out out --tokenizer nobody/nothing",
    "eval-tests ult --model builtin:tiny",
    "eval-tests FILE.py --model nobody/nothing",
    "make-pairs ROWS --role code --out out --samples nobody/nothing",
)
ROW = '{"task_id": "Mbpp/2", "prompt": "p", "canonical_solution": "def f(): return 1", "entry_point": "f", '
ROW += '"base_input": [[]], "plus_input": [], "atol": 0, "assertion": "assert f() == 1"}'


def main() -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        refusing, hanging, silent = (stack.enter_context(socket.socket()) for _ in range(3))
        for one in (refusing, hanging, silent):
            one.bind(("127.0.0.1", 0))
        silent.listen(64)
        hanging.listen(0)  # Linux drops what comes when its queue is full
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(hanging.getsockname())
        kinds = {"no name": "http://hub.invalid"}
        kinds |= {
            name: f"http://127.0.0.1:{one.getsockname()[1]}"
            for name, one in (("refused", refusing), ("hangs", hanging), ("silent", silent))
        }
        Path(folder, "data.jsonl").write_text(ROW + "\n")
        Path(folder, "FILE.py").write_text('def f(n):\n    """Add one."""\n    return n + 1\n')
        for number, (command, (kind, address)) in enumerate(itertools.product(COMMANDS, kinds.items())):
            run(command, kind, address, folder, str(number))


def run(command: str, kind: str, address: str, folder: str, number: str) -> None:
    environment = {**os.environ, "HF_ENDPOINT": address, "CODEA1_GITHUB": address, "HF_HOME": f"{folder}/{number}/hf",
                   "CODEA1_CACHE": f"{folder}/{number}/cache", "HF_HUB_OFFLINE": ""}  # fmt: skip
    environment.pop("CODEA1_BENCHMARKS", None)
    words = command.replace("DATA", "data.jsonl").replace("ROWS", str(problems_path("train"))).split()
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "codea1_cli", *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    seconds, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    computing = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    said = next((line for line in done.stderr.splitlines() if line.startswith("error: ")), "no error")
    print(
        f"{seconds:5.1f} s, {computing:.1f} computing  exit {done.returncode}  {kind:8} {command}: {said}", flush=True
    )


if __name__ == "__main__":
    main()
