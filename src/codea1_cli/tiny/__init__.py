"""The embedded default: a small model and its problems, shipped so that `train --recipe tiny` needs nothing else."""

from pathlib import Path

from codea1_cli.errors import UserError

_HERE = Path(__file__).parent


def model_path() -> Path:
    """The folder of the embedded model: config, weights (bf16 safetensors), tokenizer and chat template."""
    return _HERE / "model"


def problems_path(split: str) -> Path:
    """The embedded problems of a split, as a .jsonl file.

    Raises:
        UserError: there is no such split in the package.
    """
    path = _HERE / "data" / f"{split}.jsonl"
    if not path.is_file():
        raise UserError(f"no embedded problems called {split!r}", hint="use train or heldout")
    return path
