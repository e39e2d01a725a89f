"""One folder of runs for all end-to-end tests, and one undisturbed run that many of them look at."""

import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.harness import SMALL, Cli


@pytest.fixture(scope="session")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    folder = tmp_path_factory.mktemp("runs")
    yield Cli(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def whole(cli: Cli) -> str:
    """A run of six steps that nothing disturbed."""
    done = cli("train", "--recipe", "tiny", "--run", "whole", *SMALL)
    assert done.returncode == 0, done.stderr
    return "whole"
