"""Runs on disk that a report is made of."""

import pytest

from codea1_cli.evals import statistics
from tests.cli.conftest import call, run

__all__ = ["call", "run"]


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
