"""How long a command takes to say that there is no network: `uv run python benchmarks/first_use/run.py`.

The hub is an address that takes connections and never answers, which is the slowest kind of dead network; every command
starts with empty caches. One line per command: seconds, exit code, the error.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMANDS = (
    "train --recipe tiny model=nobody/nothing",
    "train --recipe 135m sampling.chunk=8",
    "train --recipe 135m model=builtin:tiny",
    "eval-code humaneval --model builtin:tiny",
    "eval-code mbpp --model nobody/nothing --data DATA",
    "prepare-data mbpp --out out",
    "prepare-data nobody/nothing --out out",
)
ROW = '{"task_id": "Mbpp/2", "prompt": "p", "canonical_solution": "def f(): return 1", "entry_point": "f", '
ROW += '"base_input": [[]], "plus_input": [], "atol": 0, "assertion": "assert f() == 1"}'


def main() -> None:
    with socket.socket() as silent, tempfile.TemporaryDirectory() as folder:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        Path(folder, "data.jsonl").write_text(ROW + "\n")
        environment = {**os.environ, "HF_ENDPOINT": address, "CODEA1_GITHUB": address, "HF_HOME": f"{folder}/hf",
                       "CODEA1_CACHE": f"{folder}/cache", "HF_HUB_OFFLINE": ""}  # fmt: skip
        environment.pop("CODEA1_BENCHMARKS", None)
        for command in COMMANDS:
            words = command.replace("DATA", "data.jsonl").split()
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "codea1_cli", *words],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
            )
            seconds = time.monotonic() - began
            said = next((line for line in done.stderr.splitlines() if line.startswith("error: ")), "no error")
            print(f"{seconds:5.1f} s  exit {done.returncode}  {command}: {said}", flush=True)


if __name__ == "__main__":
    main()
