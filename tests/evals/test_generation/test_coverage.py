"""Lines and branches, worked out by hand and equal to pytest-cov's."""

import json
import subprocess
import sys

import pytest

from codea1_cli.evals.test_generation.execution import Coverage, coverage_of
from tests.evals.test_generation.hand_made import ADD, SIGN

LOOP = """
def f(items):
    total = 0
    for item in items:
        if item < 0:
            continue
        total += item
    else:
        total += 1
    try:
        return total / len(items)
    except ZeroDivisionError:
        return None
"""


@pytest.mark.parametrize(
    ("source", "name", "tests", "counts"),
    [
        (ADD, "add", ["assert add(1, 2) == 3"], Coverage(2, 2, 0, 0)),
        (SIGN, "sign", [], Coverage(1, 4, 0, 2)),
        (SIGN, "sign", ["assert sign(5) == 1"], Coverage(3, 4, 1, 2)),
        (SIGN, "sign", ["assert sign(5) == 2"], Coverage(3, 4, 1, 2)),
        (SIGN, "sign", ["assert sign(5) == 1", "assert sign(-5) == -1"], Coverage(4, 4, 2, 2)),
    ],
)
def test_by_hand(runner, source, name, tests, counts):
    arcs = runner.trace_calls(source, name, [])
    for test in tests:
        arcs |= runner.run(source, name, test, trace=True).arcs
    assert coverage_of(source, arcs) == counts


@pytest.mark.parametrize("tests", [["assert f([1, -1])"], ["assert f([]) is None", "assert f([2]) == 9"]])
def test_equal_to_pytest_cov(runner, tmp_path, tests):
    (tmp_path / "mod.py").write_text(LOOP)
    body = "\n".join(f"def test_{n}():\n    {test}\n" for n, test in enumerate(tests))
    (tmp_path / "test_mod.py").write_text("from mod import f\n" + body)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "--cov=mod", "--cov-branch", "--cov-report=json", "test_mod.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    theirs = json.loads((tmp_path / "coverage.json").read_text())["files"]["mod.py"]["summary"]
    ours = coverage_of(LOOP, frozenset().union(*(runner.run(LOOP, "f", test, trace=True).arcs for test in tests)))
    assert (ours.lines, ours.all_lines) == (theirs["covered_lines"], theirs["num_statements"])
    assert (ours.branches, ours.all_branches) == (theirs["covered_branches"], theirs["num_branches"])


def test_calls_cover_without_stating_anything(runner):
    assert coverage_of(SIGN, runner.trace_calls(SIGN, "sign", ["sign(5)", "sign('a')", "sign(-1)"])) == Coverage(
        4, 4, 2, 2
    )


def test_arcs_beyond_the_source_say_nothing():
    assert coverage_of(ADD, {(-1, 1), (1, -1), (99, 100), (-1, 500)}) == Coverage(1, 2, 0, 0)


def test_odd_style_is_no_news():
    code = (
        "from codea1_cli.evals.test_generation.execution import coverage_of\n"
        "print(coverage_of('x = 1 is 0\\n', set()).all_lines)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")
