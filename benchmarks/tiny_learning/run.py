"""Does the embedded model learn? Runs `codea1 train --recipe tiny` with several seeds and compares before with after.

`uv run python benchmarks/tiny_learning/run.py` takes about five minutes a seed on two cores and prints a table;
`--write docs/tiny-learning.md` puts it there. A seed counts as learnt when pass@1 rises by 15 points or more and suite
validity or kill rate by 10 or more, each with a 95 % interval above zero.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from figures import Change, changes

SEEDS = (101, 102, 103, 104, 105)  # none of them was used for tuning
PASS_GAIN, TEST_GAIN = 15.0, 10.0
START = (20.0, 60.0)

Figures = dict[str, Change]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--runs", type=Path, default=Path("runs/tiny_learning"))
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    parser.add_argument("--only-read", action="store_true", help="tabulate the runs that are there, train nothing")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="recipe overrides, for trials")
    arguments = parser.parse_args()
    results: dict[int, tuple[Figures, float]] = {}
    for seed in arguments.seeds:
        run = arguments.runs / f"seed-{seed}"
        seconds = float("nan") if arguments.only_read else train(run, seed, arguments.overrides)
        results[seed] = changes(run, tests_per_suite(run)), seconds
        print(row(seed, *results[seed]), flush=True)
    text = table(results)
    print("\n" + text)
    if arguments.write:
        arguments.write.write_text(PREFACE + text, encoding="utf-8")
    learnt = sum(has_learnt(figures) for figures, _ in results.values())
    return 0 if learnt >= len(results) - 1 else 1


def train(run: Path, seed: int, overrides: list[str]) -> float:
    """One run of the real command line. Returns its wall time in seconds, Ray's start and both evaluations included."""
    codea1 = Path(sys.executable).with_name("codea1")
    command = [codea1, "train", "--recipe", "tiny", "--run", run.name, "--runs", run.parent]
    started = time.monotonic()
    subprocess.run([*command, f"seed={seed}", *overrides], check=True, env={**os.environ, "NO_COLOR": "1"})
    return time.monotonic() - started


def tests_per_suite(run: Path) -> int:
    import yaml

    return int(yaml.safe_load((run / "recipe.yaml").read_text())["game"]["tests_per_suite"])


def has_learnt(figures: Figures) -> bool:
    code = figures["pass@1"]
    test = (figures["suite validity"], figures["kill rate"])
    starts_weak = START[0] <= code.before <= START[1]
    return starts_weak and _rose(code, PASS_GAIN) and any(_rose(figure, TEST_GAIN) for figure in test)


def _rose(figure: Change, gain: float) -> bool:
    return figure.gain >= gain and figure.low > 0


def row(seed: int, figures: Figures, seconds: float) -> str:
    cells = [f"{f.before:.1f} → {f.after:.1f} ({f.low:+.1f} to {f.high:+.1f})" for f in figures.values()]
    took = "" if seconds != seconds else f"{seconds:.0f}"
    return f"| {seed} | " + " | ".join(cells) + f" | {'yes' if has_learnt(figures) else 'no'} | {took} |"


def table(results: dict[int, tuple[Figures, float]]) -> str:
    names = list(next(iter(results.values()))[0])
    head = ["seed", *names, "learnt", "seconds"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [row(seed, figures, seconds) for seed, (figures, seconds) in results.items()]
    means = []
    for name in names:
        before = sum(figures[name].before for figures, _ in results.values()) / len(results)
        after = sum(figures[name].after for figures, _ in results.values()) / len(results)
        means.append(f"{before:.1f} → {after:.1f}")
    lines.append(
        f"| mean | {' | '.join(means)} | {sum(has_learnt(f) for f, _ in results.values())} of {len(results)} | |"
    )
    return "\n".join(lines) + "\n"


PREFACE = """# What the embedded model learns

`uv run python benchmarks/tiny_learning/run.py --write docs/tiny-learning.md` made this page: `codea1 train --recipe tiny`
under five seeds, held-out problems before and after, percent, eight solutions a problem at temperature 1, one suite on
each of up to four wrong candidates a problem. In parentheses the change's 95 % interval, a paired bootstrap over problems.

"""

if __name__ == "__main__":
    sys.exit(main())
