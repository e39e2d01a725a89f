"""Runs a study: `codea1 train` for every arm and seed that a YAML file states, several side by side, then the tables.

    uv run python benchmarks/study/run.py benchmarks/study/tiny-rewards.yaml                     # two cores per run
    uv run python benchmarks/study/run.py benchmarks/study/qwen-0.5b.yaml --gpus 0 1 --jobs 4 model=/models/qwen

Finished runs in `--out` are not run again, so the command goes on after an interruption. What is kept of a run is small (metrics, evaluations, recipe): made for machines
that are there for half an hour. `--whole` leaves its folder with its checkpoints in place too. `--only-read` makes the tables of what is there, `--at STEP` those of an earlier evaluation, also of runs that were cut off, and `--write PAGE`
writes the page, or its first table between the marks of a page that has them.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from string import Template

import yaml
from protocol import Arm, Study, read_study
from tables import Arms, read_run, tables, with_base

from codea1_cli.evals.heldout import NEAR_MISSES, TARGETS
from codea1_cli.runs.run_dir import RunDir

KEPT = ("metrics.jsonl", "recipe.yaml", "run.json", "evaluation/*.json")
STARTS = threading.Lock()
PICTURES = Path(__file__).parents[2] / "docs" / "img"


@dataclass(frozen=True)
class Slot:
    """Where one run at a time has its place: a GPU or none, and cores."""

    gpu: str
    cores: tuple[int, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="the YAML file that states it")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="only these, or NAME:KEY=VALUE,KEY=VALUE for a trial")
    parser.add_argument("--seeds", nargs="+", metavar="SEED", help="only these")
    parser.add_argument(
        "--gpus", nargs="+", default=[""], metavar="GPU", help="their numbers; none: on the cores alone"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, on the GPUs in turn; they share the cores")
    parser.add_argument(
        "--apart", type=float, default=1.0, metavar="SECONDS", help="between two starts on one GPU: vLLM measures it"
    )
    parser.add_argument("--tries", type=int, default=1, help="how often a run that fails is started")
    parser.add_argument("--whole", action="store_true", help="leave the folders of finished runs in OUT/running")
    parser.add_argument("--out", type=Path, help="where runs are kept; runs/study/NAME when left out")
    parser.add_argument("--at", type=int, metavar="STEP", help="read the evaluation of this step, not the last one")
    parser.add_argument("--only-read", action="store_true", help="train nothing")
    parser.add_argument("--write", type=Path, help="a Markdown file for the page")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="recipe overrides for every arm")
    wish = parser.parse_intermixed_args()
    for given in (wish.arms, wish.seeds, wish.gpus):  # a list takes the overrides that follow it
        for word in [word for word in given or () if "=" in word and ":" not in word.partition("=")[0]]:
            given.remove(word)
            wish.overrides.append(word)
    study = read_study(wish.study)
    arms = dict(named(study, arm) for arm in wish.arms or study.arms)
    seeds, out = list(map(int, wish.seeds or study.seeds)), wish.out or Path("runs/study") / wish.study.stem
    failed: list[str] = []
    if not wish.only_read:
        study_runs = Runs(out, study, wish.overrides, wish.tries, wish.apart, wish.whole)
        try:
            failed = train_all(study_runs, arms, seeds, slots(wish.gpus, wish.jobs))
        except KeyboardInterrupt:
            return 130
    found = with_base(read_all(out, study, arms, seeds, wish.at), study.base or next(iter(study.arms)))
    if not found:
        print(f"no run in {out} has been evaluated after its first step", file=sys.stderr)
        return 1
    print("\n" + tables(study, found))
    if wish.write:
        put(wish.write, wish.study.stem, page(study, wish.study, found, arms), tables(study, found))
    if failed:
        print(f"failed: {', '.join(failed)}; their logs are in {out}", file=sys.stderr)
    return 1 if failed else 0


def named(study: Study, wish: str) -> tuple[str, Arm]:
    """An arm by its name, or a trial's from NAME:KEY=VALUE,KEY=VALUE."""
    name, given, keys = wish.partition(":")
    if given:
        return name, Arm(settings=keys.split(","))
    if name not in study.arms:
        raise SystemExit(f"no arm {name!r}; there are {', '.join(study.arms)}, or NAME:KEY=VALUE,KEY=VALUE")
    return name, study.arms[name]


def slots(gpus: Sequence[str], jobs: int) -> list[Slot]:
    """`jobs` places: the GPUs in turn, the cores shared out evenly."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(len(cores) // jobs, 1)
    return [
        Slot(gpus[job % len(gpus)], tuple(cores[(share * job + i) % len(cores)] for i in range(share)))
        for job in range(jobs)
    ]


# -- training ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Runs:
    """The runs of a study below one folder: `ARM/seed-N` of a finished one, `running/ARM-N` of one that is trained."""

    out: Path
    study: Study
    overrides: Sequence[str]
    tries: int = 1
    apart: float = 1.0
    whole: bool = False
    begun: dict[str, float] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)

    def finished(self, arm: str, seed: int) -> bool:
        """Whether a run is there to its end; the file `seconds` is written last."""
        return (self.out / arm / f"seed-{seed}" / "seconds").is_file()

    def train(self, name: str, arm: Arm, seed: int, slot: Slot) -> bool:
        """One run of the real command line in a slot, started again when it fails; keeps what the tables need."""
        for attempt in range(self.tries):
            if self._once(f"{name}-{seed}", arm, seed, slot, self.out / name / f"seed-{seed}", attempt):
                return True
            if self.stopped.is_set():
                break
        first = self.out / "targets.first"
        with STARTS:  # another run finds the wrong programs
            if first.is_file() and first.read_text() == f"{name}-{seed}":
                first.unlink()
        return False

    def _once(self, name: str, arm: Arm, seed: int, slot: Slot, kept: Path, attempt: int) -> bool:
        running = self.out / "running"
        running.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(running / name, ignore_errors=True)
        settings = [*map(self.filled(seed), (*self.study.settings, *arm.settings)), *self.overrides]
        if self.study.share_targets and "method=golden-tests" not in settings:
            settings += self._targets(name)
        command = [
            "train",
            "--recipe",
            self.study.recipe,
            "--run",
            name,
            "--runs",
            str(running),
            f"seed={seed}",
            *settings,
        ]
        self._wait_to_start(slot.gpu)
        if self.stopped.is_set():
            return False
        code, seconds = self.codea1(command, name, slot, f", try {attempt + 1}" if attempt else "")
        if code == 0:
            keep(running / name, kept, seconds)
            if not self.whole:
                shutil.rmtree(running / name)
        return code == 0

    def _wait_to_start(self, gpu: str) -> None:
        """Until the last start on the GPU is `apart` seconds ago, and one elsewhere a second: a run begins with many threads."""
        with STARTS:
            time.sleep(1.0)
            start = max(time.monotonic(), self.begun.get(gpu, -self.apart) + self.apart)
            self.begun[gpu] = start
        time.sleep(max(start - time.monotonic(), 0.0))

    def filled(self, seed: int) -> Callable[[str], str]:
        """What puts the seed and the folder into a text of the study's file."""
        return lambda text: Template(text).safe_substitute(seed=seed, out=self.out.absolute())

    def prepare(self, seed: int, slot: Slot) -> bool:
        """Makes what the arms of a seed need and lack; False when a command fails."""
        filled = self.filled(seed)
        for step in self.study.before:
            if not Path(filled(step.makes)).exists():
                self.out.mkdir(parents=True, exist_ok=True)
                code, _ = self.codea1([*shlex.split(filled(step.run)), *self._own(step.run)], f"before-{seed}", slot)
                if code:
                    return False
        return True

    def _own(self, run: str) -> Sequence[str]:
        """A trial's overrides hold for the runs that come before too."""
        return self.overrides if run.split()[0] == "train" else ()

    def codea1(self, words: Sequence[str], name: str, slot: Slot, more: str = "") -> tuple[int, float]:
        """The exit code of a command in a slot, and its seconds; what it says goes to NAME.log."""
        command = ["taskset", "-c", ",".join(map(str, slot.cores)), sys.executable, "-m", "codea1_cli", *words]
        began = time.monotonic()
        with open(self.out / f"{name}.log", "a", encoding="utf-8") as log:
            environment = {**os.environ, "NO_COLOR": "1", "CUDA_VISIBLE_DEVICES": slot.gpu}
            code = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment).returncode
        seconds = time.monotonic() - began
        print(f"{time.strftime('%T')} {name} {words[0]}: exit {code} after {seconds:.0f} s{more}", flush=True)
        return code, seconds

    def _targets(self, name: str) -> list[str]:
        """The setting that has a run measured on the wrong programs of the study; empty for the run that finds them. Others wait until it has."""
        kept, first = self.out / "targets", self.out / "targets.first"
        while not self.stopped.is_set():
            with STARTS:
                if (kept / "evaluation" / NEAR_MISSES).is_file():
                    return [f"eval.targets={kept.absolute()}"]
                maker = first.read_text() if first.is_file() else name
                first.write_text(maker)
                done = sorted(self.out.glob("*/seed-*/evaluation"))
                for source in (self.out / "running" / maker / "evaluation", *done):
                    files = [source / TARGETS, source / NEAR_MISSES]
                    if all(file.is_file() for file in files):
                        (kept / "evaluation").mkdir(parents=True, exist_ok=True)
                        for file in files:
                            shutil.copyfile(file, kept / "evaluation" / file.name)
                        return [f"eval.targets={kept.absolute()}"]
            if maker == name:
                return []
            time.sleep(2.0)
        return []


def train_all(runs: Runs, arms: Mapping[str, Arm], seeds: Sequence[int], places: Sequence[Slot]) -> list[str]:
    """Trains what is not finished, a run per slot; all arms of a seed before the next seed. Returns what failed."""
    free: Queue[Slot] = Queue()
    for slot in places:
        free.put(slot)
    (runs.out / "targets.first").unlink(missing_ok=True)
    wanted = [(arm, seed) for seed in seeds for arm in arms if not runs.finished(arm, seed)]
    for arm, seed in wanted:  # it outlives this command when that is killed alone
        if (holder := RunDir(runs.out / "running" / f"{arm}-{seed}").locked_by()) is not None:
            raise SystemExit(f"{arm}-{seed} is still being trained, by process {holder}: stop that first, or wait")

    def one(wish: tuple[str, int]) -> bool:
        name, seed = wish
        mine = free.get()
        try:
            return runs.train(name, arms[name], seed, mine)
        finally:
            free.put(mine)

    lacking = [seed for seed in dict.fromkeys(seed for _, seed in wanted) if not runs.prepare(seed, places[0])]
    if lacking:
        return [f"before-{seed}" for seed in lacking]
    with ThreadPoolExecutor(len(places)) as pool:
        try:
            good = list(pool.map(one, wanted))
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # `uv run` sends it twice; the runs get their own
            runs.stopped.set()
            print(
                "interrupted: runs end their step, finished ones are kept, and the same command goes on",
                file=sys.stderr,
            )
            raise
    return [f"{arm}-{seed}" for (arm, seed), fine in zip(wanted, good, strict=True) if not fine]


def keep(run: Path, kept: Path, seconds: float) -> None:
    """Copies the small files of a finished run; `seconds` comes last and says that it is whole."""
    for pattern in KEPT:
        for file in run.glob(pattern):
            target = kept / file.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    (kept / "seconds").write_text(f"{seconds:.1f}\n", encoding="utf-8")


# -- reading -----------------------------------------------------------------------------------------------------------
def read_all(out: Path, study: Study, arms: Mapping[str, Arm], seeds: Sequence[int], at: int | None = None) -> Arms:
    """The runs by arm and seed: those that are finished, or with `at` all that were evaluated at that step.

    Raises:
        ValueError: two arms of a seed had other problems, another order of them, or (without `at`) another number of steps.
    """
    found: dict[str, dict[int, object]] = {}
    schedules: dict[int, tuple[str, dict[str, object]]] = {}
    for arm in arms:
        for seed in seeds:
            kept = out / arm / f"seed-{seed}"
            folder = kept if (kept / "seconds").is_file() else out / "running" / f"{arm}-{seed}"
            try:
                if at is None and folder is not kept:
                    continue
                run = read_run(folder, at)
            except (ValueError, OSError):
                if at is None:
                    raise
                continue
            mine = schedule(folder, at, study.own_problems)
            name, first = schedules.setdefault(seed, (arm, mine)) if mine else (arm, mine)
            if mine != first:
                differing = ", ".join(key for key in mine if mine[key] != first[key])
                raise ValueError(f"{name} and {arm} of seed {seed} did not see the same steps: {differing} differ")
            found.setdefault(arm, {})[seed] = run
    return found


def schedule(folder: Path, at: int | None = None, own_problems: bool = False) -> dict[str, object]:
    """What decides which problems a run sees in which step (`engine/run_setup.py`, make_schedule); empty for one that learns from pairs."""
    info = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    if recipe.get("method") == "sft":
        return {}
    train = recipe["train"]
    keys = ("problems_per_step", "updates_per_step", *(("epochs",) if at is None else ()))
    own = ("seed", *(() if own_problems else ("problem_ids",)), *(("total_steps",) if at is None else ()))
    return {key: info[key] for key in own} | {key: train[key] for key in keys}


# -- the page ----------------------------------------------------------------------------------------------------------
def page(study: Study, file: Path, found: Arms, arms: Mapping[str, Arm]) -> str:
    """The whole page: what the study is, what the arms are, the tables."""
    every = shlex.join(["--recipe", study.recipe, *study.settings])
    lines = []
    for name in found:
        arm = arms[name]
        about = f": {arm.about}" if arm.about else ""
        lines.append(f"- `{name}`{about}" + (f" (`{' '.join(arm.settings)}`)" if arm.settings else ""))
    seeds = sorted({seed for runs in found.values() for seed in runs})
    picture = f"![Curves](img/{file.stem}.svg)\n\n" if (PICTURES / f"{file.stem}.svg").is_file() else ""
    return PAGE.format(
        picture=picture,
        title=study.title, about=study.about.strip(), file=file.name, every=every, arms="\n".join(lines), seeds=", ".join(map(str, seeds)), tables=tables(study, found),
        notes=f"\n{study.notes}" if study.notes else "",
    )  # fmt: skip


def put(file: Path, name: str, whole: str, parts: str) -> None:
    """Writes the page; into a file with the lines `<!-- NAME -->` and `<!-- /NAME -->` the first table alone, between them."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if begin in text and end in text:
        table = parts.split("\n\n", 2)[1]
        whole = text.partition(begin)[0] + begin + table + "\n" + end + text.partition(end)[2]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(whole, encoding="utf-8")


PAGE = """# {title}

{about}

{picture}`uv run python benchmarks/study/run.py benchmarks/study/{file} --write PAGE` made this page from the runs of `codea1 train {every}`, with what each arm adds:

{arms}

Seeds: {seeds} (`seeds` counts those that an arm has finished). Under a seed all arms see the same problems in the same steps. Figures are in percent but for asserts per suite.

| figure | what it is |
|---|---|
| pass@1, pass@n | held-out problems: solutions that pass all the problem's own tests; problems of which at least one of the n samples does |
| exposed | suites of which an assert fails on the wrong program, is valid and states the right answer |
| near-miss exposed | the same for wrong programs that pass at least half of the problem's tests ([run-directory.md](run-directory.md)) |
| false alarm | suites that would reject a right program: one of their valid asserts states a wrong answer |
| soundly exposed, near-miss soundly exposed | suites that expose the wrong program and raise no false alarm: they tell it from a right one |
| suite validity | mean of min(valid / K, 1 - invalid / K) over suites; an assert that states a wrong answer is invalid. The paper's game reads suites by its own rules: its validity and asserts are not quite comparable with those of other arms |
| stated rightly | valid asserts that state the right answer |
| asserts per suite | asserts read of a suite, at most K |

A cell is the mean over the seeds, before → after; in parentheses the 95 % interval of the change (in the second table: of the
difference between two arms after training). It is a bootstrap of 10,000 resamples that draws seeds and problems with replacement;
a resample has one draw of problems for all of its seeds, for all seeds are measured on the same problems, and the same draws serve
before and after and both arms. Seed by seed it draws problems alone.

{tables}{notes}"""

if __name__ == "__main__":
    sys.exit(main())
