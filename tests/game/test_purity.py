import subprocess
import sys

import pytest

HEAVY = {"torch", "ray", "trl", "transformers", "datasets", "numpy", "pyarrow", "sqlite3"}
HEAVY |= {"codea1_cli.judging.judge", "codea1_cli.sandbox.local", "codea1_cli.recipe"}


@pytest.mark.parametrize(
    ("modules", "barred"),
    [
        ("codea1_cli.game.scoring, codea1_cli.game.judged_tests, codea1_cli.evals.statistics", HEAVY),
        ("codea1_cli.extract, codea1_cli.extract.folding, codea1_cli.evals.selection", HEAVY | {"pydantic"}),
    ],
)
def test_the_game_and_the_reading_of_replies_load_nothing_heavy(modules: str, barred: set[str]) -> None:
    program = f"import sys, {modules}\nprint(*sorted({barred!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
