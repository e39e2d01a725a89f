import subprocess
import sys


def test_the_game_and_the_reading_of_replies_load_nothing_heavy() -> None:
    program = (
        "import sys, codea1_cli.game.scoring, codea1_cli.game.judged_tests, codea1_cli.extract, codea1_cli.evals.passk\n"
        "heavy = {'torch', 'ray', 'trl', 'transformers', 'datasets', 'numpy', 'pyarrow', 'pydantic', 'sqlite3'}\n"
        "heavy |= {'codea1_cli.judging.judge', 'codea1_cli.sandbox.local'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
