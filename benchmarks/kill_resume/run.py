"""Kills one run again and again at random moments, resumes it each time, and compares the end with an undisturbed run.

`uv run python benchmarks/kill_resume/run.py` takes about ten minutes on two cores. The moments are drawn from the
whole of a start and the first seconds of training. After every kill it checks that nothing of the run is alive 10 seconds
later and that every committed checkpoint is whole. Exit code 1 if anything is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "e2e"))
from harness import SMALL, Cli, alive_of, comparable, wait_for

STEPS = 80
SETTINGS = [
    *(s for s in SMALL if not s.startswith(("train.max_steps", "checkpoint.every"))),
    f"train.max_steps={STEPS}",
    "checkpoint.every=1",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--training", type=float, default=15.0, help="latest moment of a kill, in seconds after training began"
    )
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="kill-resume-") as folder:
        cli = Cli(Path(folder))
        print("undisturbed run", flush=True)
        started = time.monotonic()
        whole = cli.start("train", "--recipe", "tiny", "--run", "whole", *SETTINGS)
        wait_for(lambda: bool(lines(cli.path("whole"))) or whole.poll() is not None, 600.0)
        first_line = time.monotonic() - started
        if whole.wait():
            print(cli.log_of(whole))
            return 1
        print(f"  first step after {first_line:.0f} s, {STEPS} steps in {time.monotonic() - started:.0f} s", flush=True)
        faults = []
        print("kill  after s  phase       steps before  committed  alive after 10 s  whole", flush=True)
        for number in range(1, arguments.kills + 1):
            faults += kill_once(cli, number, rng.uniform(0.0, first_line + arguments.training))
        last = cli("train", "--run", "killed", "--resume")
        if last.returncode and "nothing left to do" not in last.stderr:
            faults.append(f"the last resume failed: {last.stderr}")
        faults += differences(cli)
    print(
        "\n".join(["", *faults])
        if faults
        else f"\nall {arguments.kills} kills survived: the end is that of the undisturbed run, to the bit"
    )
    return 1 if faults else 0


def kill_once(cli: Cli, number: int, after: float) -> list[str]:
    run = cli.path("killed")
    resume = (run / "recipe.yaml").is_file()
    command = (
        ["train", "--run", "killed", "--resume"]
        if resume
        else ["train", "--recipe", "tiny", "--run", "killed", *SETTINGS]
    )
    before = max(checkpoints(run)[0], default=0)
    began = time.time()
    process = cli.start(*command)
    end = time.monotonic() + after
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.01)
    finished = process.poll() is not None
    phase = "training" if any(json.loads(line)["time"] > began for line in lines(run)) else "starting"
    if (run / "checkpoints" / ".work").exists() or (run / "checkpoints" / ".pending").exists():
        phase = "saving"
    if finished:
        return [f"kill {number}: the run was over before all kills: give it more steps, or the kills earlier moments"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not alive_of(run), 10.0)
    alive = alive_of(run)
    steps, torn = checkpoints(run)
    print(
        f"{number:>4}  {after:>7.1f}  {phase:<10}  {before:>12}  {max(steps, default=0):>9}  {len(alive):>16}  {'no' if torn else 'yes'}",
        flush=True,
    )
    return [f"kill {number}: still alive: {line}" for line in alive] + [f"kill {number}: {line}" for line in torn]


def lines(run: Path) -> list[str]:
    """The lines of metrics.jsonl so far."""
    try:
        return (run / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []


def checkpoints(run: Path) -> tuple[list[int], list[str]]:
    """Committed steps, and what is not whole about them."""
    from safetensors import safe_open

    steps, torn = [], []
    for mark in run.glob("checkpoints/step-*/COMMITTED"):
        folder = mark.parent
        step = json.loads(mark.read_text())["step"]
        steps.append(step)
        try:
            for role in ("code", "test"):
                with safe_open(folder / role / "model.safetensors", framework="pt") as weights:
                    for name in weights.keys():  # noqa: SIM118  (not a mapping)
                        weights.get_tensor(name)
                state = json.loads((folder / role / "trainer_state.json").read_text())
                if state["global_step"] != 2 * step:
                    torn.append(f"{folder.name}: {role} is at optimizer step {state['global_step']}")
            if json.loads((folder / "arena" / "state.json").read_text())["step"] != step:
                torn.append(f"{folder.name}: the arena is at another step")
        except Exception as error:
            torn.append(f"{folder.name}: {error}")
    return steps, torn


def differences(cli: Cli) -> list[str]:
    found = []
    if comparable(cli.metrics("whole")) != comparable(cli.metrics("killed")):
        found.append("metrics differ from the undisturbed run's")
    for role in ("code", "test"):
        one, other = (
            (cli.path(run) / "checkpoints" / "latest" / role / "model.safetensors").read_bytes()
            for run in ("whole", "killed")
        )
        if one != other:
            found.append(f"parameters of the {role} policy differ")
    states = [
        (cli.path(run) / "checkpoints" / "latest" / "arena" / "state.json").read_text() for run in ("whole", "killed")
    ]
    if states[0] != states[1]:
        found.append("the Mistake Books differ")
    return found


if __name__ == "__main__":
    sys.exit(main())
