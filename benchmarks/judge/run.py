"""The judge's speed: `uv run python benchmarks/judge/run.py [--jobs 480] [--workers 2]`, on CODEA1_SHARED's problems."""

import argparse
import os
from pathlib import Path

from codea1_cli.cli.judge import show_arms
from codea1_cli.judging.speed import compare
from codea1_cli.problems.problem import read_problems
from codea1_cli.sandbox.make import SandboxOptions


def main() -> None:
    shared = Path(os.environ.get("CODEA1_SHARED") or Path(__file__).parents[2] / ".." / "shared")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=Path, default=shared / "data/train.jsonl")
    parser.add_argument("--jobs", type=int, default=480)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    show_arms(
        list(compare(read_problems(options.problems), options.jobs, SandboxOptions(workers=options.workers))),
        as_json=False,
    )


if __name__ == "__main__":
    main()
