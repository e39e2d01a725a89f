"""What the pool of wrong programs costs the judge: a finished run's rollouts are judged again, with and without it.

`uv run python benchmarks/judge/pool.py RUN_DIRECTORY` prints the processor seconds of both, in turn, and their ratio, which
other work on the machine does not move as it does the seconds in brackets. One program at a time; every step in order, so
that the pools grow as they did in the run.
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
    clock, worked = time.perf_counter, time.process_time
    for number in range(arguments.rounds):
        seconds, wall = {}, {}
        for kill in ("own", "pool"):
            game = recipe.game.model_copy(update={"kill": kill, "sparring": 0})
            chosen = recipe.model_copy(update={"game": game, "judge": recipe.judge.model_copy(update={"workers": 1})})
            with tempfile.TemporaryDirectory() as folder:
                judge = open_step_judge(chosen, Path(folder))
                judge.canary()
                for problem in problems.values():  # as a run does before its first step
                    judge.reference_fault(problem)
                began, before = clock(), worked() + judge.sandbox.cpu_seconds()
                replay(judge, steps, problems)
                seconds[kill], wall[kill] = worked() + judge.sandbox.cpu_seconds() - before, clock() - began
                judge.close()
        ratios.append(seconds["pool"] / seconds["own"])
        own, pool = (f"{seconds[kill]:.2f} s ({wall[kill]:.1f} s)" for kill in ("own", "pool"))
        print(f"round {number + 1}: {own} without, {pool} with: {ratios[-1]:.2f}")
    print(f"{len(steps)} steps, median ratio {sorted(ratios)[len(ratios) // 2]:.2f}")


def replay(judge: StepJudge, steps: list, problems: dict) -> None:
    """Loads, attacks and pools all candidates of the steps."""
    pools: dict[str, tuple] = {}
    for step, rows in steps:
        for pid in dict.fromkeys(row["problem_id"] for row in rows):
            own = [row for row in rows if row["problem_id"] == pid]
            candidates = judge.load_candidates(problems[pid], [row["completion"] for row in own])
            owners = judge.owners(candidates)
            book = [test["test"] for test in own[0]["book"]]
            judged = {
                index: judge.judge_suites(
                    problems[pid], candidates[index], [s["text"] for s in own[index]["suites"]], book, later=True
                )
                for index in set(owners)
            }
            if judge.rules.has_pool:
                before = pools.get(pid, ())
                found = judge.judge_pool(problems[pid], [judged[owner] for owner in owners], before, step)
                pools[pid] = found.pool.after(before)


if __name__ == "__main__":
    main()
