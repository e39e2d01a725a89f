"""Our verdicts on BigCodeBench beside those of its own checker, on canonical and on wrong solutions.

    python benchmarks/eval_code/bigcode_parity.py --data FILE --python ENV/bin/python --official DIR[:DIR] --out DIR --slice 0:200

`--official` is put on PYTHONPATH of the environment's interpreter so that `python -m bigcodebench.evaluate` works there
(the package itself installed with --no-deps, and what it imports). A slice's results are kept in --out and not made
again; `--report` prints the table of all slices there. Both sides get the same file and two workers.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from codea1_cli.evals.benchmark import Sample, ScoreOptions
from codea1_cli.evals.bigcodebench.environment import open_sandbox
from codea1_cli.evals.bigcodebench.scoring import Job, ScoreSettings, score_all
from codea1_cli.evals.bigcodebench.tasks import BigCodeTask, load_tasks
from codea1_cli.evals.samples import SampleFile


class Perturb(ast.NodeTransformer):
    """Changes the `chosen`th thing that can be changed inside the entry point; `count` says how many there are."""

    def __init__(self, entry_point: str, chosen: int = -1) -> None:
        self.entry_point, self.chosen, self.count, self.inside = entry_point, chosen, 0, False

    def turn(self) -> bool:
        self.count += 1
        return self.inside and self.count - 1 == self.chosen

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        was, self.inside = self.inside, self.inside or node.name == self.entry_point
        if self.inside:
            node.body = [self.visit(part) for part in node.body]
        self.inside = was
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not self.inside or not isinstance(node.value, bool | int | float | str) or not self.turn():
            return node
        value = node.value
        other = not value if isinstance(value, bool) else value + "x" if isinstance(value, str) else value + 1
        return ast.copy_location(ast.Constant(other), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        swaps = {
            ast.Lt: ast.GtE,
            ast.Gt: ast.LtE,
            ast.Eq: ast.NotEq,
            ast.NotEq: ast.Eq,
            ast.In: ast.NotIn,
            ast.LtE: ast.Gt,
        }
        if self.inside and type(node.ops[0]) in swaps and self.turn():
            node.ops[0] = swaps[type(node.ops[0])]()
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        swaps = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult}
        if self.inside and type(node.op) in swaps and self.turn():
            node.op = swaps[type(node.op)]()
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self.inside and node.value is not None and self.turn():
            return ast.copy_location(ast.Return(ast.Constant(None)), node)
        return self.generic_visit(node)


def perturbed(task: BigCodeTask, seed: int) -> str:
    """The reference with one thing changed; a stub where nothing can be."""
    counter = Perturb(task.entry_point)
    counter.visit(ast.parse(task.reference))
    if not counter.count:
        return stub(task)
    chosen = random.Random(f"{task.task_id} {seed}").randrange(counter.count)
    return ast.unparse(ast.fix_missing_locations(Perturb(task.entry_point, chosen).visit(ast.parse(task.reference))))


def stub(task: BigCodeTask) -> str:
    return f"{task.complete_prompt}\n    return None\n"


def solutions(task: BigCodeTask, wrong: int) -> list[tuple[str, str]]:
    """(kind, solution): the canonical one, then `wrong` others, by turns perturbed and stubs."""
    found = [("canonical", task.reference)]
    wrongs = (("stub", stub(task)) if n == 1 else ("perturbed", perturbed(task, n)) for n in range(wrong))
    return [*found, *wrongs]


def official(
    arguments: argparse.Namespace, samples: list[Sample], ids: list[str], folder: Path
) -> tuple[list[str], float]:
    """The checker's status of each sample, in order, and its seconds."""
    file = folder / "samples.jsonl"
    SampleFile(file, {}).append(samples)
    data = arguments.data
    environment = {
        "PATH": f"{Path(arguments.python).parent}:/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": arguments.official,
        "BIGCODEBENCH_OVERRIDE_PATH": str(data), "LANG": "C.UTF-8",
    }  # fmt: skip
    command = [
        arguments.python, "-m", "bigcodebench.evaluate", "--split", "complete", "--subset", "full", "--execution", "local",
        "--samples", str(file), "--parallel", str(arguments.workers), "--no_gt", "True", "--save_pass_rate", "False",
        "--selective_evaluate", ",".join(ids),
    ]  # fmt: skip
    began = time.monotonic()
    log = folder / "log"
    with log.open("w") as out:
        done = subprocess.run(command, env=environment, cwd=folder, stdout=out, stderr=subprocess.STDOUT, check=False)
    seconds = time.monotonic() - began
    result = folder / "samples_eval_results.json"
    if not result.is_file():
        raise SystemExit(f"the checker ended with {done.returncode}: {log.read_text()[-2000:]}")
    rows = json.loads(result.read_text())["eval"]
    taken: Counter[str] = Counter()
    statuses = []
    for sample in samples:
        row = rows[sample.task_id][taken[sample.task_id]]
        taken[sample.task_id] += 1
        why = "; ".join(f"{k}: {str(v).strip().splitlines()[-1:]}" for k, v in row["details"].items())
        statuses.append(row["status"] + (f" ({why[:200]})" if why else ""))
    return statuses, seconds


def run_slice(arguments: argparse.Namespace) -> None:
    """The slice in chunks, each kept by itself, so that an interrupted run loses one."""
    begin, end = (int(part) for part in arguments.slice.split(":"))
    for first in range(begin, end, arguments.chunk):
        run_chunk(arguments, first, min(end, first + arguments.chunk))


def run_chunk(arguments: argparse.Namespace, first: int, last: int) -> None:
    out = arguments.out / f"slice-{first:04}-{last:04}-{arguments.wrong}.json"
    if out.is_file():
        return
    skipped = set(arguments.skip.split(","))
    tasks = [t for t in load_tasks(arguments.data).tasks[first:last] if t.task_id.split("/")[1] not in skipped]
    made = [(task, kind, text) for task in tasks for kind, text in solutions(task, arguments.wrong)]
    if not arguments.canonical:
        made = [item for item in made if item[1] != "canonical"]
    if not made:
        return
    began = time.monotonic()
    with open_sandbox(ScoreOptions(arguments.workers, arguments.python)) as sandbox:
        started = time.monotonic()
        jobs: list[tuple[int, Job]] = [
            (number, (task, text, 0.0, frozenset())) for number, (task, _kind, text) in enumerate(made)
        ]
        ours = dict(score_all(sandbox, jobs, ScoreSettings()))
    ours_s, start_s = time.monotonic() - began, started - began
    folder = Path(tempfile.mkdtemp(prefix="bigcode-parity-"))
    try:
        samples = [Sample(task.task_id, text) for task, _kind, text in made]
        theirs, theirs_s = official(arguments, samples, [task.task_id for task in tasks], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [
        {"task": task.task_id, "kind": kind, "ours": asdict(ours[n]), "official": theirs[n]}
        for n, (task, kind, _text) in enumerate(made)
    ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"ours_s": ours_s, "start_s": start_s, "official_s": theirs_s, "rows": rows}))


def report(folder: Path) -> None:
    """The table: pass against pass, by kind of solution; each difference is named."""
    table: Counter[tuple[str, str, str]] = Counter()
    ours_s = theirs_s = 0.0
    for file in sorted(folder.glob("slice-*.json")):
        data = json.loads(file.read_text())
        ours_s, theirs_s = ours_s + data["ours_s"], theirs_s + data["official_s"]
        for row in data["rows"]:
            ours, theirs = row["ours"]["verdict"], row["official"].split(" ")[0]
            table[row["kind"], ours, theirs] += 1
            if (ours == "pass") != (theirs == "pass"):
                print(
                    f"{row['task']} {row['kind']}: ours {ours} ({row['ours']['detail'][:160]}), official {row['official'][:160]}"
                )
    for (kind, ours, theirs), count in sorted(table.items()):
        print(f"{kind:10} ours {ours:8} official {theirs:8} {count:5}")
    print(f"wall time: ours {ours_s:.0f} s, official {theirs_s:.0f} s, {theirs_s / max(ours_s, 0.001):.1f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--python", default=None)
    parser.add_argument("--official", default=os.environ.get("PYTHONPATH", ""))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--slice", default="0:1140")
    parser.add_argument("--wrong", type=int, default=0, help="wrong solutions a task")
    parser.add_argument("--no-canonical", dest="canonical", action="store_false")
    parser.add_argument("--skip", default="", help="numbers of tasks to leave out, with commas")
    parser.add_argument("--chunk", type=int, default=40, help="tasks between two savings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        run_slice(arguments)
    report(arguments.out)


if __name__ == "__main__":
    main()
