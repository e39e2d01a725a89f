"""What does the embedded model learn under each reward? `codea1 train --recipe tiny` for every arm and seed, before and after.

`uv run python benchmarks/tiny_learning/run.py --arms pool own paper --seeds 401 402 --jobs 1` takes about five minutes per
run on two cores; `--jobs N` has N runs at once, two cores each. Finished runs in `--out` are not run again;
`--only-read` makes the tables of those that are there, and `--write docs/tiny-learning.md` writes the page.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import yaml
from figures import Arms, read_run, tables, targets

SEEDS = (401, 402, 403, 404, 405, 406, 407, 408)  # none of them was used to find the settings
ARMS = {
    "pool": (),  # the recipe as it is
    "own": ("game.kill=own",),
    "paper": ("game.mode=paper", "game.share_identical=false"),
    "pool-0.5": ("game.alpha=0.5",),
    "pool-0.85": ("game.alpha=0.15",),
    "sparring": ("game.sparring=4",),
    "marginal": ("game.kill=marginal",),
    "no-trust": ("game.trust=false",),
    "own-0.7": ("game.kill=own", "game.alpha=0.3"),
}
KEPT = ("metrics.jsonl", "recipe.yaml", "run.json", "evaluation/*.json")
CORES_PER_RUN = 2
STARTS = threading.Lock()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = f"{', '.join(ARMS)}, or NAME:KEY=VALUE,KEY=VALUE"
    parser.add_argument("--arms", nargs="+", default=["pool", "own", "paper"], metavar="ARM", help=known)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--out", type=Path, default=Path("runs/tiny_learning"))
    parser.add_argument("--only-read", action="store_true", help="make the tables, train nothing")
    parser.add_argument("--write", type=Path, help="a Markdown file for the page")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="recipe overrides for every arm, for trials")
    arguments = parser.parse_intermixed_args()
    arms = dict(map(named, arguments.arms))
    failed = [] if arguments.only_read else train_all(arms, arguments)
    found = read_all(arguments.out, arms, arguments.seeds)
    if not found:
        print(f"no finished run in {arguments.out}", file=sys.stderr)
        return 1
    print("\n" + tables(found))
    if arguments.write:
        arguments.write.write_text(page(found, arms), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}; their logs are in {arguments.out}", file=sys.stderr)
    return 0 if not failed and all(met for _, met in targets(found)) else 1


def named(wish: str) -> tuple[str, tuple[str, ...]]:
    """An arm's name and overrides, from its name or from NAME:KEY=VALUE,KEY=VALUE."""
    name, given, keys = wish.partition(":")
    if not given and name not in ARMS:
        raise SystemExit(f"no arm {name!r}; there are {', '.join(ARMS)}, or NAME:KEY=VALUE,KEY=VALUE")
    return name, tuple(keys.split(",")) if given else ARMS[name]


# -- training ----------------------------------------------------------------------------------------------------------
def train_all(arms: dict[str, tuple[str, ...]], arguments: argparse.Namespace) -> list[str]:
    """Trains what is not finished, `jobs` runs at once; all arms of a seed before the next seed. Returns what failed."""
    cores, slots = sorted(os.sched_getaffinity(0)), Queue[list[int]]()
    for job in range(arguments.jobs):
        slots.put([cores[(CORES_PER_RUN * job + i) % len(cores)] for i in range(CORES_PER_RUN)])
    wanted = [(arm, seed) for seed in arguments.seeds for arm in arms if not finished(arguments.out, arm, seed)]

    def one(wish: tuple[str, int]) -> bool:
        arm, seed = wish
        mine = slots.get()
        try:
            return train(arguments.out, arm, seed, [*arms[arm], *arguments.overrides], mine)
        finally:
            slots.put(mine)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        good = list(pool.map(one, wanted))
    return [f"{arm}-{seed}" for (arm, seed), fine in zip(wanted, good, strict=True) if not fine]


def train(out: Path, arm: str, seed: int, overrides: Sequence[str], cores: Sequence[int]) -> bool:
    """One run of the real command line on these cores; keeps what the tables need. False when it failed."""
    name, running = f"{arm}-{seed}", out / "running"
    running.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(running / name, ignore_errors=True)
    command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-m", "codea1_cli", "train"]
    command += ["--recipe", "tiny", "--run", name, "--runs", str(running), f"seed={seed}", *overrides]
    with STARTS:
        time.sleep(1.0)  # a run begins with many threads: not all runs in the same moment
    started = time.monotonic()
    with open(out / f"{name}.log", "w", encoding="utf-8") as log:
        environment = {**os.environ, "NO_COLOR": "1", "CUDA_VISIBLE_DEVICES": ""}
        code = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment).returncode
    seconds = time.monotonic() - started
    print(f"{time.strftime('%T')} {name}: exit {code} after {seconds:.0f} s", flush=True)
    if code == 0:
        keep(running / name, out / arm / f"seed-{seed}", seconds)
        shutil.rmtree(running / name)
    return code == 0


def keep(run: Path, kept: Path, seconds: float) -> None:
    """Copies the small files of a finished run; `seconds` comes last and says that it is whole."""
    for pattern in KEPT:
        for file in run.glob(pattern):
            target = kept / file.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    (kept / "seconds").write_text(f"{seconds:.1f}\n", encoding="utf-8")


def finished(out: Path, arm: str, seed: int) -> bool:
    return (out / arm / f"seed-{seed}" / "seconds").is_file()


# -- reading -----------------------------------------------------------------------------------------------------------
def read_all(out: Path, arms: Sequence[str] | dict[str, tuple[str, ...]], seeds: Sequence[int]) -> Arms:
    """The finished runs by arm and seed.

    Raises:
        ValueError: two arms of a seed had other problems, another order of them, or another number of steps.
    """
    found: Arms = {}
    schedules: dict[int, tuple[str, dict[str, object]]] = {}
    for arm in arms:
        for seed in seeds:
            folder = out / arm / f"seed-{seed}"
            if not finished(out, arm, seed):
                continue
            mine = schedule(folder)
            name, first = schedules.setdefault(seed, (arm, mine))
            if mine != first:
                differing = ", ".join(key for key in mine if mine[key] != first[key])
                raise ValueError(f"{name} and {arm} of seed {seed} did not see the same steps: {differing} differ")
            found.setdefault(arm, {})[seed] = read_run(folder)
    return found


def schedule(folder: Path) -> dict[str, object]:
    """What decides which problems a run sees in which step (`engine/run_setup.py`, make_schedule)."""
    info = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    train = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))["train"]
    keys = ("problems_per_step", "updates_per_step", "epochs")
    return {key: info[key] for key in ("seed", "total_steps", "problem_ids")} | {key: train[key] for key in keys}


# -- the page ----------------------------------------------------------------------------------------------------------
def page(found: Arms, arms: dict[str, tuple[str, ...]]) -> str:
    """The whole page: what the figures are, what the arms are, the tables."""
    seeds = sorted({seed for runs in found.values() for seed in runs})
    lines = [f"- `{arm}`: `codea1 train --recipe tiny {' '.join(arms[arm])}`".rstrip("` ") + "`" for arm in found]
    seconds = [run.seconds for runs in found.values() for run in runs.values()]
    took = f"{min(seconds):.0f} to {max(seconds):.0f}"
    names, numbers = " ".join(found), " ".join(map(str, seeds))
    return PAGE.format(arms=names, seeds=numbers, list="\n".join(lines), took=took, tables=tables(found))


PAGE = """# What the embedded model learns

`uv run python benchmarks/tiny_learning/run.py --arms {arms} --seeds {seeds} --write docs/tiny-learning.md` made this page. Arms share
their seeds (`seeds` counts those that an arm has finished), and see the same problems in the same steps under each. None of these seeds was used to find a
setting. All figures are of the held-out problems, before the first step and after the last one, in percent but for asserts per suite.
A run took {took} s on two cores, both evaluations included.

{list}

| figure | what it is |
|---|---|
| pass@1 | solutions that pass all the problem's own tests; eight per problem, at temperature 1 |
| pass@8 | problems of which at least one of the eight passes |
| exposed | suites of which an assert fails on the wrong program, is valid and states the right answer; one suite for each wrong program that comes with a problem, up to four |
| near-miss exposed | the same for the near-miss programs ([run-directory.md](run-directory.md)), up to four per problem |
| false alarm | suites that would reject a right program: one of their valid asserts states a wrong answer |
| suite validity | mean of min(valid / K, 1 - invalid / K) over suites, K = 4; an assert that states a wrong answer is invalid |
| stated rightly | valid asserts that state the right answer |
| asserts per suite | asserts read of a suite, at most K |

A cell is the mean over the seeds, before → after; in parentheses the 95 % interval of the change (in the second table: of the
difference between two arms after training). It is a bootstrap of 10,000 resamples that draws seeds and problems with replacement;
a resample has one draw of problems for all of its seeds, for all seeds are measured on the same problems, and the same draws serve
before and after and both arms. Seed by seed it draws problems alone.

{tables}"""

if __name__ == "__main__":
    sys.exit(main())
