"""Prints one kill of a run as the README shows it: `uv run python scripts/show_kill.py RUN`.

Of the newest step that has one, a suite whose asserts are all valid and state the right answer, of which the candidate
fails some: the shortest candidate, and of its suites the best paid.
"""

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from codea1_cli.recipe.resources import training_problems
from codea1_cli.runs.rollout_files import FAILING, rollout_files
from codea1_cli.runs.run_dir import find_run, runs_root


def chosen(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The candidate's row and the suite, of a step's rows; None where there is none."""
    found = [
        (row, suite)
        for row in rows
        for suite in row["suites"]
        if all(test["valid"] and test["stated_correctly"] for test in suite["tests"])
        and any(test["verdict"] in FAILING for test in suite["tests"])
    ]
    return min(found, key=lambda one: (len(one[0]["code"]), -one[1]["reward"]), default=None)


def shown(row: dict[str, Any], suite: dict[str, Any], question: str) -> str:
    """The problem, the candidate and its suite, each assert with what it came to."""
    width = max(len(test["test"]) for test in suite["tests"])
    lines = [f"# step {row['step']}, {row['problem_id']}: {question}", row["code"].strip(), "", ""]
    for test in suite["tests"]:
        said = "passes" if test["verdict"] == "passed" else f"fails: gives {test['got']}, right is {test['expected']}"
        lines.append(f"{test['test']:<{width}}  # {said}")
    return "\n".join(["```python", *lines, "```"])


def main(name: str) -> str:
    """The block of a run, by its name or folder."""
    run = find_run(name, runs_root(None))
    questions = {problem.id: problem.question for problem in training_problems(run.recipe())}
    for file in rollout_files(run.path / "rollouts").values():
        if (one := chosen(pq.read_table(Path(file).absolute()).to_pylist())) is not None:
            return shown(*one, questions[one[0]["problem_id"]])
    raise SystemExit(f"no suite of the run {name} is right throughout and breaks its candidate")


if __name__ == "__main__":
    print(main(sys.argv[1]))
