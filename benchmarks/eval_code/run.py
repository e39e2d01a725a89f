"""Scoring speed against EvalPlus' own tool: the same samples, two workers, both with their ground truth at hand.

    python benchmarks/eval_code/run.py --evalplus VENV/bin/python --data DIR [--copies 2] [--workers 2] [--rounds 1]

The samples of a task are its canonical solution and COPIES perturbed ones (`wrong.py`), some of which loop until their
limit in both tools, as a trained model's errors do; `--copies 0` takes one that returns None in their place. Timed
twice: without the tasks that are slow by themselves, and with them; ROUNDS times in turn. `--every K` takes each K-th
task, for a machine that is quiet for moments only. Beside the wall times stand the CPU times of both, which other work
changes little, the floor, the CPU time that the references take on all inputs, times the right samples, and the load of
the machine. The verdicts of both are compared.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import official
from wrong import wrong_solutions

from codea1_cli.evals.benchmark import ScoreOptions
from codea1_cli.evals.evalplus import EvalPlusBenchmark
from codea1_cli.evals.samples import read_samples

SLOW = {
    "humaneval": ("HumanEval/15", "HumanEval/139"),
    "mbpp": ("Mbpp/255", "Mbpp/392", "Mbpp/599", "Mbpp/603"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--evalplus", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--benchmark", choices=["humaneval", "mbpp"], action="append")
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--part", choices=["fast", "all"], action="append")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="codea1-eval-speed-"))
    work.mkdir(parents=True, exist_ok=True)
    for name in args.benchmark or ["humaneval", "mbpp"]:
        data = part_of(args.data / official.FILES[name], args.every, work)
        for part in args.part or ["fast", "all"]:
            for row in measure(name, part == "all", data, args, work):
                print(json.dumps(row), flush=True)


def part_of(file: Path, every: int, work: Path) -> Path:
    """The folder of a release file that holds every `every`-th task of `file`."""
    if every == 1:
        return file.parent
    folder = work / f"every-{every}"
    folder.mkdir(exist_ok=True)
    rows = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    (folder / file.name).write_bytes(gzip.compress(b"".join(rows[::every]), mtime=0))
    return folder


def measure(name: str, slow: bool, data: Path, args: argparse.Namespace, work: Path) -> Iterator[dict[str, Any]]:
    """Wall seconds of both on one set of samples, round by round."""
    benchmark = EvalPlusBenchmark(name)
    tasks = benchmark.load(data)
    targets = [(t.id, t.entry_point, t.reference) for t in tasks if slow or t.id not in SLOW[name]]
    rows = [(task, source) for task, _, source in targets]
    if args.copies:
        rows += [(task, source) for task, _, source in wrong_solutions(targets, args.copies * len(targets), seed=1)]
    else:
        rows += [(task, f"def {entry}(*a):\n    return None\n") for task, entry, _ in targets]
    rows += [(t.id, "") for t in tasks if not slow and t.id in SLOW[name]]  # the official tool wants every task
    file = work / f"{name}-{'all' if slow else 'fast'}.jsonl"
    file.write_text("".join(json.dumps({"task_id": task, "solution": source}) + "\n" for task, source in rows))
    options = ScoreOptions(args.workers, cache=work / "ours")
    benchmark.check_references(options, lambda *_: None)
    warm = work / f"{name}-{args.every}.warm"
    if not warm.exists():
        official.evaluate(args.evalplus, name, file, data, args.workers, work / "cache")  # its ground truth
        warm.touch()
    samples = read_samples(file, benchmark, tasks)
    for _ in range(args.rounds):
        told, wall, cpu = official.evaluate(args.evalplus, name, file, data, args.workers, work / "cache")
        used, began = cpu_seconds(benchmark), time.monotonic()
        scored = benchmark.score(samples, options, lambda *_: None)
        ours, ours_cpu = time.monotonic() - began, cpu_seconds(benchmark) - used
        theirs = official.statuses(told)
        passing, differ, floor = 0, [], 0.0
        for one in scored:
            verdicts = [one.verdicts[column] == "pass" for column in ("base", "plus")]
            passing += all(verdicts)
            floor += benchmark.seconds_of(one.task_id) if all(verdicts) else 0.0
            if verdicts != [status == "pass" for status in theirs[one.task_id, one.number]]:
                differ.append([one.task_id, one.number])
        yield {
            "benchmark": name, "slow tasks": slow, "samples": len(samples), "passing": passing, "workers": args.workers,
            "evalplus_s": round(wall, 1), "evalplus_cpu_s": round(cpu, 1), "ours_s": round(ours, 1),
            "ours_cpu_s": round(ours_cpu, 1), "ratio": round(ours / wall, 3), "floor_s": round(floor / args.workers, 1),
            "load": [round(one, 1) for one in os.getloadavg()], "differ": differ,
        }  # fmt: skip
    benchmark.close()


def cpu_seconds(benchmark: EvalPlusBenchmark) -> float:
    """CPU of this process and of the sandbox's so far."""
    own = os.times()
    return own.user + own.system + benchmark._sandbox.cpu_seconds()


if __name__ == "__main__":
    main()
