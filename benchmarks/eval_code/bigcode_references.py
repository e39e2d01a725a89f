"""Which of BigCodeBench's references run here, and why the others do not.

    python benchmarks/eval_code/bigcode_references.py --data FILE --python ENV/bin/python --cache DIR [--slice 0:300]

With --cache an interrupted check goes on where it was; the table is of all tasks checked so far in that slice.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from codea1_cli.evals.benchmark import ScoreOptions
from codea1_cli.evals.bigcodebench.environment import environment_key, open_sandbox
from codea1_cli.evals.bigcodebench.scoring import ScoreSettings, cache_name, check_references
from codea1_cli.evals.bigcodebench.tasks import load_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--python", required=True)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--slice", default="0:1140")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    first, last = (int(part) for part in arguments.slice.split(":"))
    loaded = load_tasks(arguments.data)
    settings = ScoreSettings()
    cache = None
    if arguments.cache:
        arguments.cache.mkdir(parents=True, exist_ok=True)
        cache = arguments.cache / cache_name(loaded.digest, environment_key(arguments.python), settings)
    began = time.monotonic()
    with open_sandbox(ScoreOptions(arguments.workers, arguments.python)) as sandbox:
        truths = check_references(sandbox, loaded.tasks[first:last], settings, cache)
    seconds = time.monotonic() - began
    for truth in truths.values():
        if not truth.runs:
            print(f"{truth.task_id}: {truth.state}: {' '.join(truth.detail.split())[:200]}")
    for state, count in Counter(truth.state for truth in truths.values()).most_common():
        print(f"{count:5} {state}")
    slowest = sorted(truths.values(), key=lambda truth: -truth.seconds)[:5]
    print("slowest: " + ", ".join(f"{t.task_id} {t.seconds:.0f} s" for t in slowest))
    print(f"{seconds:.0f} s of wall time, {sum(t.seconds for t in truths.values()):.0f} s of runs")


if __name__ == "__main__":
    main()
