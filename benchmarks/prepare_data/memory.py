"""Peak memory of `codea1 prepare-data kodcode` on a large file, written first from the 150 rows of KodCode's demo.

Each written row has an id, a question and a constant of its own, so that no row is an exact repeat.

    uv run python benchmarks/prepare_data/memory.py [--rows 400000] [--folder DIR] [-- OPTIONS of prepare-data]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEMO = Path(os.environ.get("CODEA1_SHARED", "../shared")) / "data" / "raw" / "kodcode_demo.jsonl"
OPTIONS = ["--no-verify", "--no-decontaminate"]
RUN = "import sys; from codea1_cli.cli import main; sys.argv[0] = 'codea1'; main()"


def write(path: Path, rows: int) -> None:
    """Writes `rows` rows with the columns of KodCode's newer revisions."""
    demo = [json.loads(line) for line in DEMO.read_text(encoding="utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            row = dict(demo[number % len(demo)])
            row["question_id"] = f"{row['question_id']}_{number}"
            row["question"] += f"\n\nThis is variant number {number} of the task."
            row["solution"] += f"\n\nVARIANT = {number}\n"
            row["test"] = row.pop("test_code")
            file.write(json.dumps(row) + "\n")


def main() -> None:
    """Prints rows, size, seconds and peak memory of one preparation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--folder", type=Path, help="kept, and gone on with; a temporary one when left out")
    parser.add_argument("options", nargs="*", default=OPTIONS)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="codea1-memory-"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"rows-{arguments.rows}.jsonl"
    if not file.exists():
        write(file, arguments.rows)
    words = ["prepare-data", "kodcode", "--data", str(file), "--out", str(folder / "out"), *arguments.options]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", RUN, *words], check=False)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    size = file.stat().st_size / 2**20
    print(
        f"{arguments.rows} rows, {size:.0f} MiB: exit {done.returncode}, {seconds:.0f} s, peak {peak:.0f} MiB resident"
    )
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
