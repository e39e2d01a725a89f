"""The random state of a training process: Python's, NumPy's and torch's, as a checkpoint keeps it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any


def random_state() -> dict[str, Any]:
    import numpy
    import torch

    state = {"python": random.getstate(), "numpy": numpy.random.get_state(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    import numpy
    import torch

    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


@contextlib.contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """A block with its own seed that leaves the random state as it was."""
    import torch

    state = random_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        restore_random_state(state)
