"""Rows whose references never end on some calls: how long `codea1 judge` takes, and whether its verdicts are the known
ones.

`uv run python benchmarks/judge/slow_reference.py [--workers 2] [--time-limit 2]`, on CODEA1_SHARED's rows: 64 rows with
48 distinct calls that never end, or not within minutes. Exits with 1 when a verdict differs.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from codea1_cli.judging.judge_rows import RowJudge, read_rows
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox


def main() -> None:
    shared = Path(os.environ.get("CODEA1_SHARED") or Path(__file__).parents[2] / ".." / "shared")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=shared / "cases/slow_reference")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=2.0)
    options = parser.parse_args()
    known = json.loads((options.folder / "verdicts.json").read_text(encoding="utf-8"))
    started = time.perf_counter()
    with LocalSandbox(options.workers) as sandbox:
        judge = RowJudge(sandbox, Limits(time_s=options.time_limit))
        reports = list(judge.stream(read_rows(options.folder / "rows.jsonl"), options.workers))
    seconds = time.perf_counter() - started
    found = {report["id"]: [verdict(test) for test in report["tests"]] for report in reports}
    wrong = [name for name in known if found.get(name) != [tuple(test) for test in known[name]]]
    print(f"{len(found)} rows in {seconds:.1f} s with {options.workers} workers; {len(wrong)} with other verdicts")
    for name in wrong:
        print(f"{name}: {found.get(name)} where {known[name]} is known")
    sys.exit(1 if wrong or len(found) != len(known) else 0)


def verdict(test: dict) -> tuple:
    """Valid, verdict, stated rightly, and the reason without its detail."""
    return test["valid"], test["verdict"], test["stated_correctly"], (test["reason"] or "").partition(":")[0] or None


if __name__ == "__main__":
    main()
