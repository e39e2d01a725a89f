"""Interrupts `train`, `eval-code`, `eval-tests` and `prepare-data` at random moments, and looks at what is left.

`uv run python benchmarks/interrupts/run.py` takes half an hour to an hour on two cores; `--moments 8` is a quick look.
Without a network, `CODEA1_BENCHMARKS` names the folder with HumanEval+.
Each moment lies anywhere between the start of the process and a little after the end of an undisturbed run; SIGINT and
SIGTERM go to the process or to its whole group, in turn. After each, it checks

- the exit code: 130, or 0 where everything was done before the signal came. A signal that comes before the command's
  first line, while the interpreter starts, may end the process by itself; such moments are counted apart.
- processes: of all that descend from the command or carry its mark, none is alive 10 seconds later.
- files: what JSON, JSON lines, Parquet, SQLite and checkpoints there are can be read, and no temporary file is left.

At last each command is run once more on what its last interrupt left, and must finish. Exit code 1 if anything is not
as it must be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

CODEA1 = str(Path(sys.executable).parent / "codea1")
MARK = "CODEA1_INTERRUPT_DRILL"
WAYS = [(number, group) for number in (signal.SIGINT, signal.SIGTERM) for group in (False, True)]
PATIENCE_S, GONE_S = 120.0, 10.0

SMALL = [
    "train.max_steps=2",
    "train.problems_per_step=2",
    "game.n_code=4",
    "game.n_test=2",
    "eval.n=2",
    "eval.limit=2",
    "data.limit=4",
    "preflight.problems=1",
    "checkpoint.every=1",
    "train.threads=1",
    "judge.workers=1",
]
FUNCTIONS = '''def add(n):
    """Add one to n, unless it is even."""
    if n % 2:
        return n + 1
    return n


def clamp(n):
    """Clamp n to 0..9."""
    return min(9, max(0, n))
'''


@dataclass
class Command:
    """`arguments(folder)` do the work inside a folder; `again(folder)` go on with what was interrupted."""

    name: str
    arguments: Callable[[Path], list[str]]
    again: Callable[[Path], list[str]]
    seconds: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def commands(inputs: Path) -> list[Command]:
    functions, problems = inputs / "functions.py", inputs / "problems.jsonl"
    functions.write_text(FUNCTIONS)
    rows = [
        {
            "id": f"p/{i}",
            "question": f"Add {i} to n, multiply by {i + 2} and subtract {i * 7}.",
            "declaration": "def solve(n):",
            "entry_point": "solve",
            "reference": f"def solve(n):\n    return (n + {i}) * {i + 2} - {i * 7}\n",
            "tests": [f"assert solve(1) == {(1 + i) * (i + 2) - i * 7}"],
        }
        for i in range(200)
    ]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = ["--model", "builtin:tiny", "--max-new-tokens"]

    def train(folder: Path) -> list[str]:
        return ["train", "--recipe", "tiny", "--run", "r", *SMALL]

    def train_again(folder: Path) -> list[str]:
        begun = (folder / "runs" / "r" / "recipe.yaml").is_file()
        return ["train", "--run", "r", "--resume"] if begun else train(folder)

    def eval_code(folder: Path) -> list[str]:
        return [
            "eval-code",
            "humaneval",
            *small,
            "16",
            "--limit",
            "3",
            "--n",
            "2",
            "--out",
            str(folder / "samples.jsonl"),
        ]

    def eval_tests(folder: Path) -> list[str]:
        return ["eval-tests", str(functions), *small, "64", "--out", str(folder / "suites")]

    def prepare(folder: Path) -> list[str]:
        return ["prepare-data", str(problems), "--no-decontaminate", "--out", str(folder / "data")]

    return [
        Command("train", train, train_again),
        Command("eval-code", eval_code, eval_code),
        Command("eval-tests", eval_tests, eval_tests),
        Command("prepare-data", prepare, prepare),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200, help="over all commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="a command's name; again for more")
    parser.add_argument("--window", type=float, nargs=2, default=(0.0, 1.0), help="share of an undisturbed run's time")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="i-") as name:  # short: Ray puts sockets in it
        root = Path(name)
        chosen = [c for c in commands(root) if not options.only or c.name in options.only]
        for command in chosen:
            command.seconds = undisturbed(command, root / "w")
            print(f"{command.name}: {command.seconds:.1f} s undisturbed", flush=True)
        print("command       after s  signal          exit  after s  left", flush=True)
        for number in range(options.moments):
            command = chosen[number % len(chosen)]
            way = WAYS[number // len(chosen) % len(WAYS)]
            last = number >= options.moments - len(chosen)
            while not interrupt(command, root / "i", options.window, rng, *way, last):
                pass  # it was over before: the machine has become faster
    for command in chosen:
        print(f"{command.name}: {', '.join(f'{count} x {code}' for code, count in sorted(command.codes.items()))}")
    faults = [fault for command in chosen for fault in command.faults]
    print("\n".join(faults) if faults else f"all {options.moments} interrupts: as documented")
    return 1 if faults else 0


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    for part in ("runs", "t"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    own = {"CODEA1_RUNS": folder / "runs", "TMPDIR": folder / "t", MARK: folder, "HF_HUB_OFFLINE": "1"}
    with open(folder / "log", "w", encoding="utf-8") as log:
        return subprocess.Popen(
            [CODEA1, *command],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **{key: str(value) for key, value in own.items()}},
            start_new_session=True,
            # Whoever starts this benchmark in the background has SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


def undisturbed(command: Command, folder: Path) -> float:
    """Seconds of a whole run, the second one: the first fills caches."""
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
        began = time.monotonic()
        code = start(command.arguments(folder), folder).wait()
        took = time.monotonic() - began
        if code:
            raise SystemExit(f"{command.name} undisturbed: exit {code}\n{(folder / 'log').read_text()}")
    return took


def interrupt(
    command: Command,
    folder: Path,
    window: tuple[float, float],
    rng: random.Random,
    number: signal.Signals,
    group: bool,
    last: bool,
) -> bool:
    """One moment; False where the command was over before it."""
    after = rng.uniform(*(share * command.seconds for share in window))
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    process = start(command.arguments(folder), folder)
    with contextlib.suppress(subprocess.TimeoutExpired):
        if (code := process.wait(after)) == 0:
            command.seconds = time.monotonic() - began
            return False
        said = " | ".join((folder / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-4:])
        print(f"{command.name:<13} ended with {code} before it was interrupted: {said}", flush=True)
        command.faults.append(f"{command.name} ended with {code} before it was interrupted: {said}")
        return True
    family = descendants(process.pid)
    early = not handles(process.pid, number)
    sent = time.monotonic()
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if group else os.kill)(process.pid, number)
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = -99
    took = time.monotonic() - sent
    log = (folder / "log").read_text(encoding="utf-8", errors="replace")
    while (alive := left_alive(family, folder)) and time.monotonic() - sent - took < GONE_S:
        time.sleep(0.1)
    wrong = [f"alive: {line}" for line in alive] + torn(folder)
    if code == -number and "/codea1_cli/" not in log:  # Python's own handler, which it sets as it starts
        early, log = True, ""
    if early:
        known = "before the first line" if code in (-number, 0, 130) else f"{code} before the first line"
    else:
        known = {130: "130", 0: "0, everything done"}.get(code, f"exit {code}")
    command.codes[known] += 1
    if known.startswith("exit") or (code == 0 and unfinished(command, folder, log)):
        wrong.append(f"{known}: {' | '.join(log.strip().splitlines()[-4:])}")
    if "Traceback" in log or "Exception ignored" in log:
        wrong.append("traceback: " + " | ".join(log.strip().splitlines()[-6:]))
    way = f"{number.name} {'group' if group else ''}"
    print(f"{command.name:<13} {after:>6.2f}  {way:<14} {code:>5}  {took:>7.1f}  {'; '.join(wrong) or '-'}", flush=True)
    command.faults += [f"{command.name}, {way} after {after:.2f} s: {line}" for line in wrong]
    if last:
        again = start(command.again(folder), folder)
        if again.wait() and "nothing left to do" not in (folder / "log").read_text():
            command.faults.append(f"{command.name} does not go on: {(folder / 'log').read_text()}")
    return True


def unfinished(command: Command, folder: Path, log: str) -> bool:
    """Whether a command that exits with 0 has left something undone."""
    marks = {
        "train": "finished at step",
        "eval-code": "samples.results.json",
        "eval-tests": "results in",
        "prepare-data": "next: ",
    }
    return marks[command.name] not in log


def handles(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def stat(pid: int) -> tuple[int, str, str] | None:
    """(parent, state, start time) of a process."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[1]), fields[0], fields[19]
    return None


def descendants(root: int) -> dict[int, str]:
    """Start times of the processes that descend from `root`, itself included, by id."""
    there = {int(name): found for name in os.listdir("/proc") if name.isdigit() and (found := stat(int(name)))}
    family = {root}
    while more := {pid for pid, (parent, *_) in there.items() if parent in family} - family:
        family |= more
    return {pid: there[pid][2] for pid in family if pid in there}


def left_alive(family: dict[int, str], folder: Path) -> list[str]:
    """Command lines of what is alive of the family, or carries the folder's mark."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or (now := stat(int(name))) is None or now[1] in "ZX":
            continue
        marked = False
        with contextlib.suppress(OSError):
            marked = f"{MARK}={folder}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        if marked or family.get(int(name)) == now[2]:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{name} {words[:100]}")
    return found


def torn(folder: Path) -> list[str]:
    """What cannot be read as what its name says, and what is temporary."""
    wrong = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        name = str(file.relative_to(folder))
        try:
            if file.suffix == ".json":
                json.loads(file.read_text())
            elif file.suffix == ".jsonl":  # every reader skips a torn last line
                for line in file.read_text().splitlines(keepends=True):
                    if line.endswith("\n"):
                        json.loads(line)
            elif file.suffix == ".parquet":
                import pyarrow.parquet as pq

                pq.read_table(file)
            elif file.suffix == ".sqlite":
                with sqlite3.connect(file) as database:
                    if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                        wrong.append(f"torn: {name}")
            elif file.suffix == ".safetensors" and (file.parents[1] / "COMMITTED").is_file():
                from safetensors import safe_open

                with safe_open(file, framework="np") as weights:
                    for key in weights.keys():  # noqa: SIM118  (not a mapping)
                        weights.get_tensor(key)
        except Exception as error:
            wrong.append(f"torn: {name}: {error}")
        if name.endswith(".tmp"):
            wrong.append(f"temporary: {name}")
    # torch keeps its cache there; the folders of a killed sandbox, which are empty, go when the next one starts.
    kept = ("torchinductor_", "codea1-stage-")
    wrong += [f"temporary: t/{path.name}" for path in (folder / "t").iterdir() if not path.name.startswith(kept)]
    if (folder / "runs" / "r" / "ray").exists():
        wrong.append("temporary: runs/r/ray")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
