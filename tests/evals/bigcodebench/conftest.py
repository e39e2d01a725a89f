import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codea1_cli.evals.bigcodebench.tasks import BigCodeTask, read_task
from codea1_cli.sandbox.base import SandboxEnvironment
from codea1_cli.sandbox.local import LocalSandbox
from tests.evals.bigcodebench.cases import row


@pytest.fixture
def task() -> BigCodeTask:
    return read_task(row())


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    """Four tasks: one plain, one hard, one whose library is missing, one whose reference fails."""
    rows = [
        row(0),
        row(1, hard=True),
        row(2, canonical_solution="    import no_such_library_at_all\n    return number + 1"),
        row(3, canonical_solution="    return number + 2"),
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(item) + "\n" for item in rows))
    return file


@pytest.fixture(scope="session")
def room() -> Iterator[LocalSandbox]:
    """A room as BigCodeBench's, without its libraries."""
    env = {"TZ": "UTC", "MPLBACKEND": "Agg"}
    made = SandboxEnvironment(env=env, loopback=True, scratch_mb=64, proc=True, unit=True)
    with LocalSandbox(2, python=sys.executable, warm=(), environment=made) as sandbox:
        yield sandbox
