"""Writes a small run to disk as training would leave it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from codea1_cli.mistakes import MistakeStore
from codea1_cli.problems.problem import Problem, write_problems
from codea1_cli.recipe.files import recipe_text
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.rollout_files import write_rollouts
from codea1_cli.runs.run_dir import RunDir

PROBLEMS = [
    Problem(
        id="basic/double it:1",
        question="Return twice the number.",
        declaration="def double(x):",
        entry_point="double",
        reference="def double(x):\n    return 2 * x",
    ),
    Problem(
        id="basic/ratio",
        question="Return a / b; NaN when b is 0.",
        declaration="def ratio(a, b):",
        entry_point="ratio",
        reference="import math\n\ndef ratio(a, b):\n    return a / b if b else math.nan",
    ),
    Problem(
        id="basic/letters",
        question="Return the set of letters.",
        declaration="def letters(text):",
        entry_point="letters",
        reference='def letters(text):\n    """The \\"set\\"."""\n    return set(text)',
    ),
    Problem(
        id="never/seen",
        question="Return None.",
        declaration="def nothing():",
        entry_point="nothing",
        reference="def nothing():\n    return None",
    ),
]

WRONG_DOUBLE = "def double(x):\n    if x < 0:\n        return x\n    return x + 2"
LETTERS = {"assert letters('') == set()": 2, "assert letters('ab') == {'b', 'a'}": 1}


def ran(test: str, verdict: str, expected: str, got: str) -> dict[str, str]:
    return {"test": test, "verdict": verdict, "expected": expected, "got": got}


def weights(size: int) -> bytes:
    """A file of weights in so many bytes: one tensor of zeros."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size - 108], "data_offsets": [0, size - 108]}}).encode()
    return (100).to_bytes(8, "little") + header.ljust(100) + bytes(size - 108)


def rollout_row(step: int, problem_id: str, index: int, code: str, book: list[dict], new: list[dict]) -> dict[str, Any]:
    tests = [{**entry, "valid": True, "reason": "", "stated_correctly": True} for entry in new]
    suite = {"text": "", "reward": 0.5, "validity": 1.0, "adversarial": 0.0, "tests": tests}
    return {
        "step": step,
        "problem_id": problem_id,
        "candidate_index": index,
        "completion": f"```python\n{code}\n```",
        "code": code,
        "loaded": True,
        "load_detail": "",
        "reward": 0.5,
        "selected": index == 0,
        "book": book,
        "suites": [suite],
    }


def make_run(root: Path, name: str = "first", *, steps: int = 3, total: int = 3, error: str | None = None) -> RunDir:
    """A run of `steps` steps whose book has live and retired tests, with a checkpoint a step."""
    run = RunDir(root / name)
    run.create()
    data = root / "problems.jsonl"
    write_problems(data, PROBLEMS)
    recipe = Recipe(name="small", model="builtin:tiny", data={"train": str(data)})
    run.recipe_file.write_text(recipe_text(recipe))
    info = {"total_steps": total, "seed": 0, "versions": {"trl": "1.16.0"}}
    (run.path / "run.json").write_text(json.dumps(info | ({"error": error} if error else {})))
    for step in range(1, steps + 1):
        run.append_metrics({"step": step, "time": 1.5, "code": {"reward": step / 4}, "test": {}, "arena": {}})
        for role in ("code", "test", "arena"):
            (run.pending / role).mkdir(parents=True)
        for role in ("code", "test"):
            (run.pending / role / "model.safetensors").write_bytes(weights(1000 * step))
            for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
                with zipfile.ZipFile(run.pending / role / name, "w") as file:
                    file.writestr("data", bytes(4000))
            (run.pending / role / "trainer_state.json").write_text("{}")
            (run.pending / role / "config.json").write_text(json.dumps({"step": step, "role": role}))
            (run.pending / role / "tokenizer.json").write_text("{}")
        (run.pending / "arena" / "state.json").write_text(json.dumps({"step": step, "book": {}}))
        run.commit(step)
    run.append_metrics({"step": steps, "eval": {"set": "heldout", "code": {"pass@1": 0.5}, "test": {"validity": None}}})
    double = "basic/double it:1"
    with MistakeStore(run.mistakes_file) as store:
        store.append(
            1,
            [
                (double, "assert double(3) == 6", 1, WRONG_DOUBLE),
                (double, "assert double(-1) == -2", 1, WRONG_DOUBLE),
                (double, "assert double(3) == 6", 1, WRONG_DOUBLE),
                (double, "assert double(0) == 0", 1, WRONG_DOUBLE),
            ],
        )
        store.append(
            2,
            [
                (double, "assert double(0) == 0", -1, "def double(x):\n    return x + x"),
                *[("basic/letters", test, count, "def letters(t): return None") for test, count in LETTERS.items()],
            ],
        )
        store.append(
            3,
            [
                (double, "assert double(3) == 6", 1, WRONG_DOUBLE),
                ("basic/ratio", "assert ratio(1, 0) == nan", 1, "def ratio(a, b): return a / b"),
                ("basic/ratio", "assert ratio(1, 3) == 0.3333333333333333", 1, "def ratio(a, b): return a // b"),
                ("basic/ratio", "assert ratio(1, 'x') == 0", 1, "def ratio(a, b): return a // b"),
            ],
        )
    fails = [
        ran("assert double(3) == 6", "failed", "6", "5"),
        ran("assert double(-1) == -2", "failed", "-2", "-1"),
    ]
    write_rollouts(run.rollout_file(1), [rollout_row(1, double, 0, WRONG_DOUBLE, [], fails)])
    passes = ran("double(3)", "passed", "6", "6")
    raises = ran("double(3)", "raised", "6", "ZeroDivisionError: division by zero (line 2)")
    crash = "def double(x):\n    return 1 / 0"
    write_rollouts(
        run.rollout_file(3),
        [
            rollout_row(3, double, 0, "def double(x):\n    return x + x", [passes], []),
            rollout_row(3, double, 1, crash, [raises], []),
            rollout_row(3, double, 2, "def double(x):\n    return 2 * x", [passes], []),
        ],
    )
    return run


def age(run: RunDir, seconds: float) -> None:
    """Makes a run look older."""
    stat = run.recipe_file.stat()
    os.utime(run.recipe_file, (stat.st_atime - seconds, stat.st_mtime - seconds))


def run_pytest(file: Path) -> subprocess.CompletedProcess[str]:
    """Runs one test file alone, as somebody without this project would."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--noconftest",
            f"--rootdir={file.parent}",
            file,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=file.parent,
    )
