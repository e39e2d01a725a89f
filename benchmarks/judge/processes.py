"""How judging beside sampling spreads over a machine: a run's rollouts are judged again, as the arena judges them.

`uv run python benchmarks/judge/processes.py RUN_DIRECTORY [--problems FILE] [--workers 1 2 4 8 16 32] [--check]`
prints per number of workers the suites per second, how many cores were busy, and the processor time that a suite takes in
the arena's threads, in the judge's other processes and in its programs. From that follows at how many cores a Python
process is the limit: there its own part fills one. The texts of all steps are there at once, so the judge has work.

--problems: where the run's problems are, if not where its recipe says. --repeat: judge the steps so many times, each time
with references that have answered nothing. --one-process: in the arena's alone. --nodes: on Ray clusters of so many
nodes, all on this host, each with so many workers. --check: exit with 1 when rewards, selection, Mistake Book or pool of
the last measurement differ from those of the first.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq

from codea1_cli.engine.cluster import ray_cluster
from codea1_cli.engine.judge_processes import SpreadJudge, run_judge
from codea1_cli.engine.run_writer import RunWriter
from codea1_cli.engine.step_state import StepState
from codea1_cli.problems.problem import read_problems
from codea1_cli.runs.rollout_files import rollout_files
from codea1_cli.runs.run_dir import RunDir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--steps", type=int, default=5, help="the run's last steps")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--one-process", action="store_true", help="judge in the arena's process alone")
    parser.add_argument("--nodes", type=int, nargs="*", default=[])
    parser.add_argument("--address", help="of a Ray cluster that is there")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.nodes:
        sys.exit(on_nodes(options.nodes, max(options.workers)))
    run = RunDir(options.run)
    problems = {p.id: p for p in read_problems(options.problems)} if options.problems else run.problems()
    files = sorted(rollout_files(run.path / "rollouts").items())[-options.steps :]
    steps = [(step, pq.read_table(file).to_pylist()) for step, file in files]
    found = []
    with ExitStack() as stack:
        if not options.one_process:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stack.enter_context(ray_cluster(folder, options.address))
        for workers in options.workers:
            section = run.recipe().judge.model_copy(update={"workers": workers})
            recipe = run.recipe().model_copy(update={"judge": section})
            found.append(measure(recipe, steps, problems, options.repeat))
    if options.check:
        same = found[0] == found[-1]
        print("rewards, selection, book and pool:", "the same" if same else "they DIFFER")
        sys.exit(0 if same else 1)


def on_nodes(counts: list[int], workers: int) -> int:
    """This command on clusters of so many nodes; 1 if one fails. Each is a process of its own, as its nodes are."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    failed = 0
    for count in counts:
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": workers, "include_dashboard": False})
        try:
            for _ in range(count - 1):
                nodes.add_node(num_cpus=workers)
            nodes.wait_for_nodes()
            print(f"{count} nodes:", file=sys.stderr, flush=True)
            words = [*sys.argv, "--nodes", "--address", nodes.address]
            failed = subprocess.run([sys.executable, *words]).returncode or failed
        finally:
            nodes.shutdown()
    return failed


def measure(recipe, steps, problems, repeat) -> list:
    """Judges the steps and prints what it took; what they came to."""
    suites = repeat * sum(len(row["suites"]) for _, rows in steps for row in rows)
    spent, outcomes, count = [0.0] * 5, [], 0
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            replay = Replay(recipe, problems, RunDir(Path(folder)))
            outcomes, seconds = replay.all(steps)
            count = len(replay.judge.processes) if isinstance(replay.judge, SpreadJudge) else 0
            replay.judge.close()
            spent = [total + part for total, part in zip(spent, seconds, strict=True)]
    wall, arena, others, programs, pools = spent
    per_suite = ", ".join(f"{1000 * part / suites:.2f}" for part in (arena, others, programs))
    limit = (arena + others + programs) / max(arena, others / max(count, 1))
    print(
        f"{recipe.judge.workers:>3} workers, {1 + count} processes: {suites / wall:6.1f} suites per second, "
        f"{(arena + others + programs) / wall:4.1f} cores busy; {per_suite} ms of processor per suite in the arena's threads, "
        f"other processes of the judge, programs: at {limit:.0f} cores a process is the limit; "
        f"pools, step by step: {pools:.1f} s",
        file=sys.stderr,  # stdout belongs to a log while Ray runs
    )
    return outcomes


class Replay:
    """Steps with recorded texts, judged, scored and written as in a run."""

    def __init__(self, recipe, problems, run: RunDir) -> None:
        run.create()
        self.judge, self.problems, self.writer = run_judge(recipe, run.path), problems, RunWriter(recipe, run)
        self.threads = ThreadPoolExecutor(2 * self.judge.workers + 16)
        self.worked = 0.0  # processor seconds of this process's threads; Ray has others, which do not hold up Python
        self.lock = threading.Lock()

    async def in_thread(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self.threads, self.timed, function, *arguments)

    def timed(self, function, *arguments):
        began = time.thread_time()
        try:
            return function(*arguments)
        finally:
            with self.lock:
                self.worked += time.thread_time() - began

    def clocks(self) -> list[float]:
        """Seconds by the clock, and of processor time in this process's threads, the judge's others, its programs."""
        judge = self.judge
        others, programs = judge.usage() if isinstance(judge, SpreadJudge) else (0.0, judge.sandbox.cpu_seconds())
        return [time.perf_counter(), self.worked + time.thread_time(), others, programs]

    def all(self, steps) -> tuple[list, list[float]]:
        """What the steps come to; what `clocks` counted while suites were judged, and the seconds of the pools."""
        self.judge.canary()
        ids = {row["problem_id"] for _, rows in steps for row in rows}
        list(
            self.threads.map(self.judge.reference_fault, [self.problems[pid] for pid in ids])
        )  # as before a first step
        before = self.clocks()
        found, between = asyncio.run(self.steps(steps))
        spent = [after - start for start, after in zip(before, between, strict=True)]
        return [*found, self.writer.books, self.writer.pools], [*spent, time.perf_counter() - between[0]]

    async def steps(self, steps) -> tuple[list[dict], list[float]]:
        """Rewards and selection of each step, by problem, and the clocks when all suites were judged: together, so that
        no step waits for the slowest program of the one before. Pools and rewards follow step by step."""
        judged = await asyncio.gather(*(self.step(number, rows) for number, rows in steps))
        between = self.clocks()
        return [await finish() for finish in judged], between

    async def step(self, number: int, rows):
        """Judges a step's suites; what judges the pools and scores it then."""
        groups: dict[str, list] = {}
        for row in rows:
            groups.setdefault(row["problem_id"], []).append(row)
        book = {pid: tuple(test["test"] for test in group[0]["book"]) for pid, group in groups.items()}
        step = StepState(number, self.judge, self.problems, self.in_thread, book.__getitem__, self.writer.pool, 1)
        await step.load_candidates({pid: [row["completion"] for row in group] for pid, group in groups.items()})
        owners = dict(
            zip(groups, await asyncio.gather(*(self.judged(step, *group) for group in groups.items())), strict=True)
        )

        async def finish() -> dict:
            pools = [
                step.judge_pool(pid, [await step.judged(pid, owner) for owner in own]) for pid, own in owners.items()
            ]
            judged = dict(zip(groups, await asyncio.gather(*pools), strict=True))
            outcomes, _ = self.writer.score_step(number, judged)
            return {pid: (o.code_rewards, o.suite_rewards, o.selected, o.breaks) for pid, o in outcomes.items()}

        return finish

    async def judged(self, step: StepState, pid: str, group) -> list[int]:
        """Has a problem's suites judged; whose suites each candidate is judged by."""
        owners = step.owners(await step.candidates(pid))
        await step.judge_groups((pid, i, [suite["text"] for suite in group[i]["suites"]]) for i in sorted({*owners}))
        for owner in owners:
            await step.judged(pid, owner)
        return owners


if __name__ == "__main__":
    main()
