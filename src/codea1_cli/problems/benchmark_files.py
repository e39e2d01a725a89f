"""Finding and reading what a benchmark published: a file that is given, a folder that holds it, or the hub."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from codea1_cli.environment import home_fault
from codea1_cli.errors import EnvironmentFault, UserError, first_line
from codea1_cli.files import user_path

ENVIRONMENT = "CODEA1_SHARED"
_FOLDER = Path("data") / "bench"  # of the benchmarks, below the folder that CODEA1_SHARED names


@dataclass(frozen=True)
class Task:
    """One task of a benchmark, as training data is compared with it; `code` is a whole program, `tests` Python source
    with asserts or nothing."""

    benchmark: str
    id: str
    question: str
    code: str
    entry_point: str
    tests: str = ""


def find_file(title: str, names: Sequence[str], data: Path | None) -> Path | None:
    """The local file of a benchmark, None where only the hub is left.

    Args:
        title: the benchmark's, for the message.
        names: what its file is called (glob patterns), the best first.
        data: the file, or a folder that holds it directly or in `data/bench`; None: the folder in CODEA1_SHARED.

    Raises:
        UserError: `data` is given and holds no such file.
    """
    shared = os.environ.get(ENVIRONMENT)
    root = user_path(data) if data is not None else Path(shared) if shared else None
    if root is None:
        return None
    if root.is_file():
        return root
    for name in names:
        for folder in (root, root / _FOLDER):
            if found := [file for file in sorted(folder.glob(name)) if file.is_file()]:
                return found[0]
    if data is None:
        return None
    raise UserError(f"no {title} below {root}", hint=f"looked for {', '.join(names)}; a file can be given as well")


def shared_folder() -> Path | None:
    """The folder of benchmarks below the one that CODEA1_SHARED names; None where it names none."""
    root = os.environ.get(ENVIRONMENT)
    return Path(root) / _FOLDER if root else None


def hub_rows(
    dataset: str, split: str, *, revision: str | None = None, config: str | None = None, streaming: bool = True
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of one split of a dataset on the hub; streamed, or fetched whole and kept in the hub's cache, where
    there is one that can be written.

    Raises:
        UserError: there is no such configuration or split.
        EnvironmentFault: there is no such dataset, the hub cannot be reached, or its cache cannot be written.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError
    from httpx import HTTPError

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries end in one error of ours
    placed = any(name in os.environ for name in ("HF_HOME", "HF_DATASETS_CACHE", "XDG_CACHE_HOME"))
    try:
        with contextlib.nullcontext() if placed or not home_fault() else TemporaryDirectory(prefix="codea1-") as cache:
            rows = load_dataset(dataset, config, split=split, revision=revision, streaming=streaming, cache_dir=cache)
            for number, row in enumerate(rows, start=1):
                yield f"{dataset}[{split}]:{number}", row
    except (DatasetNotFoundError, ConnectionError, TimeoutError, HTTPError) as error:
        raise EnvironmentFault(
            f"cannot load the dataset {dataset}: {first_line(error)}",
            hint="check the name and the network; a downloaded file can be read in its place",
        ) from None
    except ValueError as error:  # an unknown configuration or split: the message lists those there are
        raise UserError(f"{dataset}: {first_line(error)}", hint="choose with --split and --config") from None
    except OSError as error:
        raise EnvironmentFault(
            f"cannot load the dataset {dataset}: {first_line(error)}",
            hint="HF_HOME=FOLDER keeps the hub's files in a folder that can be written",
        ) from None


def docstring_of(prompt: str) -> str:
    """The last triple-quoted text of a prompt, which need not parse by itself; without one the prompt."""
    for quote in ('"""', "'''"):
        parts = prompt.split(quote)
        if len(parts) >= 3:
            return parts[-2]
    return prompt
