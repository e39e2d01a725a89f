"""How near codea1's step comes to two plain TRL GRPO runs side by side that never wait for anybody.

    uv run python benchmarks/engine/run.py RUN --problems train.jsonl --gpus 0 1 --recipe 0.5b model=/models/qwen

RUN is a run with rollouts of code-a1: its candidates and suites are judged again while the policies sample replies of the same number and length, so that
every schedule has the same tokens and the judge real work (replay.py). Arms: `floor`, one plain TRL run per policy at once, each on its GPU, with a step's sampling and update
sizes and trivial rewards (floor.py); `staleness-0` and `staleness-1`, one GPU a policy; `shared`, both policies on both GPUs, in turn. Per arm: median seconds of a step without the first two,
its ratio to the floor (the slower of the two runs) and to the critical path of its own phases, the busy share of each policy's GPU, the judge's tail, the seconds until the first step, and
the share of the GPU's peak that updates reached.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq

from codea1_cli.engine.cluster import free_ports
from codea1_cli.problems.problem import read_problems, write_problems
from codea1_cli.runs.rollout_files import rollout_files
from codea1_cli.runs.run_dir import RunDir

HERE = Path(__file__).parent
ARMS = ("floor", "staleness-0", "staleness-1", "shared")
SKIPPED = 2
"""First steps that are not counted: engines and caches warm up in them."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of code-a1 with rollouts")
    parser.add_argument("--problems", type=Path, help="where its problems are, if not where its recipe says")
    parser.add_argument("--recipe", default="0.5b")
    parser.add_argument("--gpus", nargs=2, default=("", ""), metavar="GPU", help="one per policy; none: on the CPU")
    parser.add_argument("--arms", default=",".join(ARMS), help="some of them, with commas between")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("runs/engine"))
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    wish = parser.parse_intermixed_args()
    wish.out = wish.out.absolute()
    wish.out.mkdir(parents=True, exist_ok=True)
    texts = record(RunDir(wish.run))
    problems = list(read_problems(wish.problems)) if wish.problems else list(RunDir(wish.run).problems().values())
    (wish.out / "recorded.json").write_text(json.dumps(texts), encoding="utf-8")
    write_problems(wish.out / "problems.jsonl", [problem for problem in problems if problem.id in texts])
    print(f"recorded: {len(texts)} problems, {sum(len(one['code']) for one in texts.values())} candidates")
    floor = None
    for arm in wish.arms.split(","):
        found = plain(wish) if arm == "floor" else trained(wish, arm)
        if found is None:
            return 1
        floor = found["step_s"] if arm == "floor" else floor
        ratio = f", {found['step_s'] / floor:.2f} of the floor" if floor and arm != "floor" else ""
        print(f"{arm}: {found['step_s']:.2f} s a step{ratio}; {found['rest']}", flush=True)
    return 0


def record(run: RunDir) -> dict[str, dict[str, list]]:
    """What replay.py shows: by problem replies of the Code LLM, the programs in them that load, and the suites against each."""
    found: dict[str, dict[str, list]] = defaultdict(lambda: {"code": [], "shown": [], "suites": []})
    for file in rollout_files(run.path / "rollouts").values():
        for row in pq.read_table(file, columns=["problem_id", "completion", "code", "suites"]).to_pylist():
            mine = found[row["problem_id"]]
            mine["code"].append(row["completion"])
            if row["suites"]:
                mine["shown"].append(row["code"])
                mine["suites"].append([suite["text"] for suite in row["suites"]])
    return {pid: one for pid, one in found.items() if one["suites"]}


def settings(wish: argparse.Namespace) -> list[str]:
    return [
        f"data.train={wish.out / 'problems.jsonl'}",
        "data.heldout=null",
        "data.solve_rate=null",
        "game.share_identical=false",
        *wish.overrides,
    ]


def environment(wish: argparse.Namespace, gpus: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "CODEA1_REPLAY": str(wish.out / "recorded.json"),
        "CUDA_VISIBLE_DEVICES": gpus,
        "NO_COLOR": "1",
    }


def plain(wish: argparse.Namespace) -> dict[str, object] | None:
    """Both plain runs at once."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2 or 1
    ports = iter(free_ports(2))  # torch's, of a process by itself: both would take the same one
    started = {}
    for role, gpu, mine in zip(("code", "test"), wish.gpus, (cores[:half], cores[-half:]), strict=True):
        folder = wish.out / "floor" / role
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            "taskset",
            "-c",
            ",".join(map(str, mine)),
            sys.executable,
            str(HERE / "floor.py"),
            role,
            str(wish.steps),
            str(folder),
            wish.recipe,
            *settings(wish),
        ]
        log = open(folder / "log", "w", encoding="utf-8")  # noqa: SIM115
        started[role] = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(wish, gpu) | {"MASTER_PORT": str(next(ports))},
        )
    lines = {
        role: [json.loads(line) for line in process.communicate()[0].splitlines() if line.startswith('{"step"')]
        for role, process in started.items()
    }
    if any(process.returncode for process in started.values()):
        print(f"a plain run failed; logs in {wish.out / 'floor'}", file=sys.stderr)
        return None
    seconds = {role: middle([line["step_s"] for line in rows]) for role, rows in lines.items()}
    sampling = {role: middle([line["sampling"] for line in rows]) for role, rows in lines.items()}
    rest = "; ".join(f"{role} {seconds[role]:.2f} s, of which sampling {sampling[role]:.2f}" for role in seconds)
    return {"step_s": max(seconds.values()), "rest": rest}


def trained(wish: argparse.Namespace, arm: str) -> dict[str, object] | None:
    """A run of codea1 on the recorded texts."""
    name, runs = arm, wish.out / "runs"
    on = []
    if any(wish.gpus):
        all_of_them = [0] if wish.gpus[0] == wish.gpus[1] else [0, 1]
        own = (all_of_them, all_of_them) if arm == "shared" else (all_of_them[:1], all_of_them[-1:])
        on = [f"{role}.gpus={ids}" for role, ids in zip(("code", "test"), own, strict=True)]
    command = [
        sys.executable,
        "-m",
        "codea1_cli",
        "train",
        "--recipe",
        wish.recipe,
        "--run",
        name,
        "--runs",
        str(runs),
        "method=replay:Replay",
        f"train.max_steps={wish.steps}",
    ]
    command += [
        "checkpoint.every=null",
        "preflight.enabled=false",
        "eval.before=false",
        f"train.staleness={int(arm == 'staleness-1')}",
        *on,
        *settings(wish),
    ]
    shutil.rmtree(runs / name, ignore_errors=True)
    began = time.time()
    with open(wish.out / f"{name}.log", "w", encoding="utf-8") as log:
        gpus = ",".join(dict.fromkeys(filter(None, wish.gpus)))
        if subprocess.run(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment(wish, gpus)
        ).returncode:
            print(f"{arm} failed; its log is {wish.out / f'{name}.log'}", file=sys.stderr)
            return None
    lines = [line for line in RunDir(runs / name).metrics() if "arena" in line]
    timing = [line["timing"] for line in lines]
    phase = {key: middle([one.get(key, 0.0) for one in timing]) for key in timing[0]}
    step = phase["step_s"]
    path = (
        phase["code_sampling_s"] * (arm != "staleness-1")
        + phase["test_sampling_s"]
        + phase["judge_tail_s"]
        + max(phase["code_updating_s"], phase["test_updating_s"])
    )
    if arm == "shared":
        path = (
            sum(phase[f"{role}_{part}_s"] for role in ("code", "test") for part in ("sampling", "updating"))
            + phase["judge_tail_s"]
        )
    busy = {role: (phase[f"{role}_sampling_s"] + phase[f"{role}_updating_s"]) / step for role in ("code", "test")}
    peak = [f"{role} {middle([line[role]['mfu'] for line in lines]):.0%}" for role in busy if "mfu" in lines[0][role]]
    start = lines[0]["time"] - timing[0]["step_s"] - began
    parts = ", ".join(f"{key[:-2].replace('_', ' ')} {value:.2f}" for key, value in phase.items() if key != "step_s")
    tails = [one["judge_tail_s"] / one["step_s"] for one in timing[SKIPPED:]]
    return {
        "step_s": step,
        "rest": f"{step / path:.2f} of its critical path; busy: code {busy['code']:.0%}, test {busy['test']:.0%}; judge's tail {statistics.median(tails):.1%}, at most {max(tails):.1%}; "
        f"of the peak in updates: {', '.join(peak) or 'not known'}; first step after {start:.0f} s ({parts})",
    }


def middle(values: list[float]) -> float:
    return statistics.median(values[SKIPPED:] or values)


if __name__ == "__main__":
    sys.exit(main())
