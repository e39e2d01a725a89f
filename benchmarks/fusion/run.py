"""What the way to a sandbox-fusion service costs: `uv run python benchmarks/fusion/run.py [--jobs 480] [--workers 2]`.

Judges the same programs of 8 calls by the local sandbox and by a service, in turns. Without --endpoint it starts the real
server of CODEA1_SHARED on this machine, so that both have the same cores.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from codea1_cli.judging.speed import build_work, sandbox_arm
from codea1_cli.problems.problem import read_problems
from codea1_cli.sandbox.make import SandboxOptions, make_local, make_sandbox
from codea1_cli.tiny import problems_path


def main() -> None:
    shared = Path(os.environ.get("CODEA1_SHARED") or Path(__file__).parents[2] / ".." / "shared")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", help="a service that runs already")
    parser.add_argument("--jobs", type=int, default=480)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with ExitStack() as stack:
        endpoint = given.endpoint or start(stack, shared / "tools/sandbox_fusion_server/start.sh")
        here = stack.enter_context(make_local(SandboxOptions(workers=given.workers)))
        there = stack.enter_context(closing(make_sandbox(SandboxOptions("fusion", endpoint, workers=given.workers))))
        problems = [one for split in ("train", "heldout") for one in read_problems(problems_path(split))]
        work = build_work(problems, given.jobs, here)
        ratios = []
        for _ in range(given.rounds):
            local = sandbox_arm("local", here, work, given.workers, batched=False)
            remote = sandbox_arm("service", there, work, there.workers, batched=False)
            assert local.passed == remote.passed, "the verdicts differ"
            ratios.append(remote.wall_s / local.wall_s)
            for arm in (local, remote):
                print(
                    f"{arm.name:8} {1000 * arm.wall_s / arm.jobs:7.2f} ms per program of 8 calls, {arm.jobs} programs"
                )
            print(f"service / local {ratios[-1]:.1f}", flush=True)
        print(f"median service / local: {statistics.median(ratios):.1f} (at most 8)")


def start(stack: ExitStack, script: Path) -> str:
    """The server's address; it ends with the stack."""
    home = Path(tempfile.gettempdir()) / f"codea1-fusion-server-{os.getuid()}"
    done = subprocess.run(["bash", str(script), str(home), "18190"], capture_output=True, text=True, check=True)
    pid, url = done.stdout.split()
    stack.callback(os.kill, int(pid), 9)
    return url


if __name__ == "__main__":
    main()
