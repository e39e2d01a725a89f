"""The embedded model on thirteen functions of a user's own: from the folder to a run, by the line that is printed."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from codea1_cli.runs.run_dir import RunDir
from tests.e2e.harness import Cli

SHOP = Path(__file__).parents[1] / "fixtures" / "shop.py"


@pytest.mark.e2e
@pytest.mark.slow
def test_it_trains_on_functions_of_any_name(cli: Cli, tmp_path: Path) -> None:
    shutil.copytree(SHOP.parent, tmp_path / "shop", ignore=lambda _, names: [n for n in names if n != SHOP.name])
    made = cli("prepare-data", str(tmp_path / "shop"), "--out", str(tmp_path / "mine"), "--no-decontaminate")
    assert made.returncode == 0, made.stderr
    line = re.findall(r"^next: codea1 (train .*)$", made.stderr, re.MULTILINE)[0]
    done = cli(*shlex.split(line), "--run", "own", "--max-steps", "3")
    assert done.returncode == 0, done.stderr
    assert "10 problems per step, where the recipe asks for 12: there are 10" in done.stderr
    assert "left out 1 problem, the embedded model knows no function of (list[float]): shop/shop:mean" in done.stderr
    run = RunDir(cli.runs / "own")
    steps = [row for row in run.metrics() if "arena" in row]
    assert len(steps) == 3
    assert all(step["code"]["reward"] > 0.05 for step in steps)
    assert all(step["arena"]["suites_exposing"] > 0 for step in steps)
    text = cli("mistakes", "export", "--run", "own", "--to", str(tmp_path / "book.py"))
    assert text.returncode == 0, text.stderr
    book = (tmp_path / "book.py").read_text()
    assert "vowels(" in book
    assert "solve(" not in book
