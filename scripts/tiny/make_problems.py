"""Write the embedded problems. `uv run python scripts/tiny/make_problems.py` gives the same bytes every time.

With `--split dev --out FILE` it writes the tuning split, which is not shipped.
"""

import argparse
from pathlib import Path

import codea1_cli.tiny
from codea1_cli.problems.problem import write_problems
from world.problems import SPLITS, problems

DATA = Path(codea1_cli.tiny.__file__).parent / "data"


def main() -> None:
    """Writes the shipped splits, or the one that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=SPLITS, help="write one split only")
    parser.add_argument("--out", type=Path, help="file for that split (default: its place in the package)")
    arguments = parser.parse_args()
    if arguments.out and not arguments.split:
        parser.error("--out needs --split")
    for split in [arguments.split] if arguments.split else ["train", "heldout"]:
        path = arguments.out or DATA / f"{split}.jsonl"
        rows = problems(split)
        write_problems(path, rows)
        print(f"{path}: {len(rows)} problems of {len({row.meta['family'] for row in rows})} families")


if __name__ == "__main__":
    main()
