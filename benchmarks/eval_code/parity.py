"""Verdicts against EvalPlus' own: the same sample files through both, EvalPlus several times.

    python benchmarks/eval_code/parity.py --evalplus VENV/bin/python --data DIR [--count 2000] [--samples FILE ...]

The samples are all canonical solutions, COUNT perturbed or wrong ones (`wrong.py`), and those of `--samples` files. A
sample whose official verdict changes between EvalPlus' own runs is listed and not compared. Every difference is printed.
What is in --work already is not run again, so that the parts can be run one by one (--only official or ours).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import official
from wrong import wrong_solutions

from codea1_cli.evals.benchmark import ScoreOptions
from codea1_cli.evals.evalplus import EvalPlusBenchmark
from codea1_cli.evals.samples import read_samples
from codea1_cli.evals.scoring import score_samples


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--evalplus", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--benchmark", choices=["humaneval", "mbpp"], action="append")
    parser.add_argument("--count", type=int, default=2000, help="over both benchmarks")
    parser.add_argument("--samples", type=Path, action="append", default=[])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--without", default="", help="task ids to leave out, by commas")
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--only", choices=["official", "ours"], default=None)
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="codea1-parity-"))
    work.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name in args.benchmark or ["humaneval", "mbpp"]:
        share = round(args.count * {"humaneval": 164, "mbpp": 378}[name] / 542)
        wrong += compare(name, share, args, work)
    print(f"{wrong} differences")


def compare(name: str, count: int, args: argparse.Namespace, work: Path) -> int:
    """Prints the differences on one benchmark and returns how many there are."""
    benchmark = EvalPlusBenchmark(name)
    tasks = benchmark.load(args.data)
    left_out = set(filter(None, args.without.split(",")))
    rows = [(task.id, "canonical", task.reference) for task in tasks]
    targets = [(task.id, task.entry_point, task.reference) for task in tasks if task.id not in left_out]
    rows += wrong_solutions(targets, count)
    for file in args.samples:
        rows += [(s.task_id, file.name, s.solution) for s in read_samples(file, benchmark, tasks)]
    if left_out:  # the official tool wants a sample of every task
        rows = [(task, what, source if task not in left_out else "") for task, what, source in rows]
    file = work / f"{name}.jsonl"
    file.write_text("".join(json.dumps({"task_id": task, "solution": source}) + "\n" for task, _, source in rows))
    told = []
    for run in range(args.runs):
        kept = work / f"{name}-official-{run + 1}.json"
        if not kept.exists() and args.only != "ours":
            result, wall, _ = official.evaluate(args.evalplus, name, file, args.data, args.workers, work / "cache")
            kept.write_text(json.dumps(result))
            print(f"{name}: evalplus run {run + 1}, {len(rows)} samples in {wall:.0f} s", flush=True)
        if kept.exists():
            told.append(official.statuses(json.loads(kept.read_text())))
    if args.only == "official":
        return 0
    samples = read_samples(file, benchmark, tasks)
    options = ScoreOptions(args.workers, cache=work / "ours")
    outcome = score_samples(benchmark, samples, options, lambda *_: None)
    benchmark.close()
    print(f"{name}: ours in {outcome.seconds:.0f} s", flush=True)
    whats = {}
    numbers: dict[str, int] = {}
    for task, what, _ in rows:
        whats[task, numbers.get(task, 0)] = what
        numbers[task] = numbers.get(task, 0) + 1
    unstable, different = [], []
    for one in outcome.scored:
        key = (one.task_id, one.number)
        official_runs = {tuple(status == "pass" for status in run[key]) for run in told}
        ours = tuple(one.verdicts[column] == "pass" for column in ("base", "plus"))
        if len(official_runs) > 1:
            unstable.append(key)
        elif ours not in official_runs:
            different.append(key)
            print(f"  {key} {whats[key]}: evalplus {told[0][key]}, ours {tuple(map(str, one.verdicts.values()))}")
    passed = sum(all(v == "pass" for v in one.verdicts.values()) for one in outcome.scored)
    print(
        f"{name}: {len(samples)} samples, {passed} pass, {len(unstable)} unstable officially, {len(different)} differ"
    )
    for key in unstable:
        print(f"  unstable: {key} {whats[key]}: {[run[key] for run in told]}")
    (work / f"{name}-differences.json").write_text(json.dumps({"differ": different, "unstable": unstable}))
    return len(different)


if __name__ == "__main__":
    main()
