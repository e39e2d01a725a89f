"""How often an alarm of `codea1 write-tests --find-bugs` is right, on programs that are known to be right or nearly right.

    uv run python benchmarks/write_tests/alarms.py problems.jsonl near_miss.json --model base=/models/qwen --model trained=runs/mine

Of each problem with near misses (`evaluation/near_miss.json` of a run: wrong programs that pass at least half of the problem's tests) the reference and the
near misses are written as files of their own, the problem's statement as the docstring; nothing says which is which. The command is then run on the folder as a user
runs it. A program is flagged where its strongest alarm has at least a given lead (samples that agree on another answer, less those that state what the program gives).
The curve: at every lead, the share of wrong programs flagged, the share of right ones, and of the flagged ones the share that is wrong (before any alarm it is that of the
wrong programs, which is printed too), with 95 % intervals over problems. `--only-read` makes the tables of what is there. Other options, such as `--n 16`, are those of write-tests.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from codea1_cli.evals.statistics import levels
from codea1_cli.problems.problem import Problem, read_problems
from codea1_cli.recipe.resources import problems_file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems")
    parser.add_argument("near_misses", type=Path, help="near_miss.json of a run's folder `evaluation`")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=MODEL", help="may be repeated")
    parser.add_argument("--out", type=Path, default=Path("runs/alarms"))
    parser.add_argument("--limit", type=int, help="use only the first N problems with near misses")
    parser.add_argument("--only-read", action="store_true", help="run nothing")
    wish, options = parser.parse_known_args()
    programs = write_programs(wish.out, wish.problems, wish.near_misses, wish.limit)
    names = [model.partition("=")[0] for model in wish.model] or [file.stem for file in sorted(wish.out.glob("*.json"))]
    for name, _, model in () if wish.only_read else (one.partition("=") for one in wish.model):
        command = ["write-tests", str(wish.out / "programs"), "--find-bugs", "--json", "--model", model, *options]
        with open(wish.out / f"{name}.log", "w", encoding="utf-8") as log:
            ran = subprocess.run([sys.executable, "-m", "codea1_cli", *command], stdout=subprocess.PIPE, stderr=log)
        if ran.returncode:
            print(f"{name} failed; its log is {wish.out / f'{name}.log'}", file=sys.stderr)
            return 1
        (wish.out / f"{name}.json").write_bytes(ran.stdout)
    for name in names:
        print(table(name, programs, json.loads((wish.out / f"{name}.json").read_text(encoding="utf-8"))["alarms"]))
    return 0


def write_programs(out: Path, problems: str, near_misses: Path, limit: int | None) -> dict[str, tuple[str, bool]]:
    """By file name the problem and whether the program is wrong. The names tell nothing: they are numbers in an order drawn by a fixed seed."""
    wrong = json.loads(near_misses.read_text(encoding="utf-8"))
    chosen = [
        problem for problem in read_problems(problems_file(problems)) if wrong.get(problem.id) and problem.reference
    ][:limit]
    texts = [
        (problem.id, bad, text)
        for problem in chosen
        for bad, source in [(False, problem.reference), *((True, source) for source in wrong[problem.id])]
        if (text := with_docstring(problem, source or "")) is not None
    ]
    order = np.random.default_rng(0).permutation(len(texts))
    (out / "programs").mkdir(parents=True, exist_ok=True)
    found = {}
    for number, place in enumerate(order):
        pid, bad, text = texts[place]
        name = f"f{number:04d}.py"
        (out / "programs" / name).write_text(text, encoding="utf-8")
        found[name] = (pid, bad)
    print(
        f"programs: {sum(not bad for _, bad in found.values())} right, {sum(bad for _, bad in found.values())} wrong, of {len(chosen)} problems"
    )
    return found


def with_docstring(problem: Problem, source: str) -> str | None:
    """The program with the statement as its function's docstring, other functions private so that they are not tested by themselves; None where it does not define the function."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == problem.entry_point:
            if ast.get_docstring(node) is not None:
                node.body.pop(0)
            node.body.insert(0, ast.Expr(ast.Constant(problem.question)))
            others = [one.name for one in tree.body if isinstance(one, ast.FunctionDef) and one is not node]
            text = ast.unparse(ast.fix_missing_locations(tree))
            return re.sub(rf"\b({'|'.join(map(re.escape, others))})\b", r"_\1", text) if others else text
    return None


LEADS = (1, 2, 3, 4, 6, 8, 12, 16)
COLUMNS = ("lead of at least", "wrong flagged", "right flagged", "flagged that are wrong")


def table(name: str, programs: dict[str, tuple[str, bool]], alarms: list[dict[str, Any]]) -> str:
    """The curve of one model. All its shares are of programs, their intervals over problems."""
    lead: Counter[str] = Counter()
    for alarm in alarms:
        file = Path(alarm["file"]).name
        lead[file] = max(lead[file], alarm["votes"] - alarm["against"])
    problems = {pid: row for row, pid in enumerate(dict.fromkeys(pid for pid, _ in programs.values()))}
    counts = np.zeros((3, len(LEADS), len(problems), 2))  # of each share what a problem adds to numerator, denominator
    for file, (pid, wrong) in programs.items():
        flagged = np.array([lead[file] >= least for least in LEADS])
        counts[0 if wrong else 1, :, problems[pid]] += np.stack([flagged, np.ones(len(LEADS))], axis=1)
        counts[2, :, problems[pid]] += np.stack([flagged & wrong, flagged], axis=1)
    known = [k for k in range(len(LEADS)) if counts[2, k, :, 1].any()]
    intervals = [levels(one[known]) for one in counts]
    lines = [f"\n{name}\n", f"| {' | '.join(COLUMNS)} |", "| --- | --- | --- | --- |"]
    for place, k in enumerate(known):
        cells = []
        for one, found in zip(counts, intervals, strict=True):
            above, below = one[k].sum(axis=0)
            low, high = found[place]
            cells.append(f"{100 * above / below:.0f} % ({100 * low:.0f} to {100 * high:.0f})")
        lines.append(f"| {LEADS[k]} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
