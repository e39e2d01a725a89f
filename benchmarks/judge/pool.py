"""What the pool of wrong programs costs the judge: a finished run's rollouts are judged again, with and without it.

`uv run python benchmarks/judge/pool.py RUN_DIRECTORY` prints the seconds of both, in turn, and their ratio. One program
at a time, so that the seconds are those of the work; every step in order, so that the pools grow as they did in the run.
"""

import argparse
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from codea1_cli.judging.step_judge import StepJudge
from codea1_cli.recipe.resources import open_step_judge
from codea1_cli.runs.rollout_files import rollout_files
from codea1_cli.runs.run_dir import RunDir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=10, help="the run's last steps that are judged")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    run = RunDir(arguments.run)
    recipe, problems = run.recipe(), run.problems()
    files = sorted(rollout_files(run.path / "rollouts").items())[-arguments.steps :]
    steps = [(step, pq.read_table(file).to_pylist()) for step, file in files]
    ratios = []
    for number in range(arguments.rounds):
        seconds = {}
        for kill in ("own", "pool"):
            chosen = recipe.model_copy(update={"game": recipe.game.model_copy(update={"kill": kill, "sparring": 0})})
            with tempfile.TemporaryDirectory() as folder:
                judge = open_step_judge(chosen, Path(folder))
                judge.canary()
                for problem in problems.values():  # as a run does before its first step
                    judge.reference_fault(problem)
                seconds[kill] = replay(judge, steps, problems)
                judge.close()
        ratios.append(seconds["pool"] / seconds["own"])
        print(f"round {number + 1}: {seconds['own']:.2f} s without, {seconds['pool']:.2f} s with: {ratios[-1]:.2f}")
    print(f"{len(steps)} steps, median ratio {sorted(ratios)[len(ratios) // 2]:.2f}")


def replay(judge: StepJudge, steps: list, problems: dict) -> float:
    """Seconds to load, attack and pool all candidates of the steps."""
    pools: dict[str, tuple] = {}
    started = time.perf_counter()
    for step, rows in steps:
        for pid in dict.fromkeys(row["problem_id"] for row in rows):
            own = [row for row in rows if row["problem_id"] == pid]
            candidates = judge.load_candidates(problems[pid], [row["completion"] for row in own])
            owners = judge.owners(candidates)
            book = [test["test"] for test in own[0]["book"]]
            judged = {
                index: judge.judge_suites(
                    problems[pid], candidates[index], [s["text"] for s in own[index]["suites"]], book
                )
                for index in set(owners)
            }
            if judge.rules.has_pool:
                before = pools.get(pid, ())
                pool = judge.judge_pool(problems[pid], [judged[owner] for owner in owners], before, step)
                pools[pid] = pool.after(before)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
