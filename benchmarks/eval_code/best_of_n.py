"""Test-time collaboration on the embedded model's own held-out problems: the release file that `eval-code` reads is made of them.

    uv run python benchmarks/eval_code/best_of_n.py OUT [--test-model RUN] [--each --suites 2]

What follows OUT goes to `codea1 eval-code humaneval --select tests`. The samples are those of the embedded model as it is, eight of each problem; another
`--test-model` in the same OUT takes the same samples.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.judging.judge import own_calls
from codea1_cli.problems.problem import Problem, read_problems
from codea1_cli.tiny import problems_path

SAMPLES = "--model builtin:tiny --prompt codea1 --n 8 --temperature 1 --max-new-tokens 96"


def release_row(number: int, problem: Problem) -> dict[str, object]:
    """A problem as EvalPlus writes one; its own tests are the plus inputs, the first three of them the base ones."""
    calls = [ast.parse(call, mode="eval").body for call in own_calls(problem)]
    inputs = [[ast.literal_eval(argument) for argument in call.args] for call in calls if isinstance(call, ast.Call)]
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": f'{problem.declaration.rstrip()}\n    """{problem.question}"""\n',
        "entry_point": problem.entry_point,
        "canonical_solution": f"\n{problem.reference}\n",
        "base_input": inputs[:3],
        "plus_input": inputs[3:],
        "atol": 0,
    }


def main() -> int:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rows = [release_row(number, one) for number, one in enumerate(read_problems(problems_path("heldout")))]
    data = out / "release.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["eval-code", "humaneval", "--data", str(data), *SAMPLES.split(), "--out", str(out / "samples.jsonl")]
    words += [] if "--select" in sys.argv else ["--select", "tests"]
    words += [] if "--test-model" in sys.argv else ["--test-model", "builtin:tiny"]
    return run_app(app, [*words, *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
