"""Scoring speed against EvalPlus' own tool: the same samples, two workers, both with their ground truth at hand.

    python benchmarks/eval_code/run.py --evalplus VENV/bin/python --data DIR [--copies 2] [--workers 2]

The samples of a task are its canonical solution and COPIES perturbed ones (`wrong.py`), some of which loop until their
limit in both tools, as a trained model's errors do; `--copies 0` takes one that returns None in their place. Timed
twice: without the tasks that are slow by themselves, and with them. Beside the wall times stands the floor, the CPU
time that the references take on all inputs, times the right samples. The verdicts of both are compared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import official
from wrong import wrong_solutions

from codea1_cli.evals.benchmark import ScoreOptions
from codea1_cli.evals.evalplus.benchmark import EvalPlusBenchmark
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
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="codea1-eval-speed-"))
    work.mkdir(parents=True, exist_ok=True)
    for name in args.benchmark or ["humaneval", "mbpp"]:
        for part in args.part or ["fast", "all"]:
            print(json.dumps(measure(name, part == "all", args, work)), flush=True)


def measure(name: str, slow: bool, args: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Wall seconds of both on one set of samples."""
    benchmark = EvalPlusBenchmark(name)
    tasks = benchmark.load(args.data)
    targets = [(t.id, t.entry_point, t.reference) for t in tasks if slow or t.id not in SLOW[name]]
    rows = [(task, source) for task, _, source in targets]
    if not args.copies:
        rows += [(task, f"def {entry}(*a):\n    return None\n") for task, entry, _ in targets]
    else:
        rows += [(task, source) for task, _, source in wrong_solutions(targets, args.copies * len(targets), seed=1)]
    rows += [(t.id, "") for t in tasks if not slow and t.id in SLOW[name]]  # the official tool wants every task
    file = work / f"{name}-{'all' if slow else 'fast'}.jsonl"
    file.write_text("".join(json.dumps({"task_id": task, "solution": source}) + "\n" for task, source in rows))
    options = ScoreOptions(args.workers, cache=work / "ours")
    benchmark.check_references(options, lambda *_: None)
    if not list((work / "cache").rglob("*.pkl")) or not (work / f"{name}.warm").exists():
        official.evaluate(args.evalplus, name, file, args.data, args.workers, work / "cache")  # its ground truth
        (work / f"{name}.warm").touch()
    told, wall, cpu = official.evaluate(args.evalplus, name, file, args.data, args.workers, work / "cache")
    samples = read_samples(file, benchmark, tasks)
    began = time.monotonic()
    scored = benchmark.score(samples, options, lambda *_: None)
    ours = time.monotonic() - began
    theirs = official.statuses(told)
    passing = {True: 0, False: 0}
    differ, floor = [], 0.0
    for one in scored:
        verdicts = [one.verdicts[column] == "pass" for column in ("base", "plus")]
        passing[all(verdicts)] += 1
        floor += benchmark.seconds_of(one.task_id) if all(verdicts) else 0.0
        if verdicts != [status == "pass" for status in theirs[one.task_id, one.number]]:
            differ.append([one.task_id, one.number])
    benchmark.close()
    return {
        "benchmark": name, "slow tasks": slow, "samples": len(samples), "passing": passing[True], "workers": args.workers,
        "evalplus_s": round(wall, 1), "evalplus_cpu_s": round(cpu, 1), "ours_s": round(ours, 1),
        "ratio": round(ours / wall, 3), "floor_s": round(floor / args.workers, 1), "differ": differ,
    }  # fmt: skip


if __name__ == "__main__":
    main()
