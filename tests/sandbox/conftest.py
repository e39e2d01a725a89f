import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.local import LocalSandbox
from tests.sandbox.shared import QUICK


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox(2) as box:
        yield box


@pytest.fixture(scope="session")
def judge(sandbox: LocalSandbox) -> Judge:
    return Judge(sandbox, limits=QUICK)


@pytest.fixture
def canary() -> Iterator[Path]:
    folder = Path("/tmp/codea1_canary")
    folder.mkdir(exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        pytest.skip(f"{folder} is another user's: remove it")
    victim = folder / "victim.txt"
    fresh = Path(
        f"/tmp/codea1_victim_{os.getpid()}"
    )  # tests beside this one look at the file: it is never half-written
    fresh.write_text("intact")
    fresh.chmod(0o644)
    fresh.replace(victim)
    yield folder
    assert victim.read_text() == "intact"
    assert [path.name for path in folder.iterdir()] == ["victim.txt"]
