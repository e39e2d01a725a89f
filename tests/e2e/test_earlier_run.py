"""A run directory written by revision 76e5003 (adapters of the embedded model, stopped at step 2 of 4) still works."""

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.harness import Cli

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("e2e-apart")]

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "run_at_76e5003.tar.xz"


@pytest.fixture
def earlier(tmp_path: Path) -> Cli:
    shutil.unpack_archive(ARCHIVE, tmp_path)
    return Cli(tmp_path)


def data(cli: Cli, *arguments: str) -> dict:
    done = cli(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_listed_inspected_resumed_and_exported(earlier: Cli, tmp_path: Path) -> None:
    shown = data(earlier, "runs", "show", "before")
    assert (shown["step"], shown["total"], shown["state"]) == (2, 4, "interrupted")
    assert "before" in earlier("runs", "list").stdout
    problems = data(earlier, "mistakes", "list", "--run", "before")["problems"]
    assert [(row["problem_id"], row["tests"], row["mistakes"]) for row in problems] == [
        ("tiny/train-004", 8, 11),
        ("tiny/train-003", 2, 2),
    ]
    inspected = earlier("mistakes", "inspect", "tiny/train-004", "--run", "before")
    assert inspected.returncode == 0, inspected.stderr
    assert "assert solve(1) == 2" in inspected.stdout
    resumed = earlier("train", "--run", "before", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "goes on from step 2" in resumed.stderr
    assert "finished at step 4 of 4" in resumed.stderr
    assert [line["step"] for line in earlier.metrics("before")] == [0, 1, 2, 3, 4, 4]
    before, after = (line["eval"] for line in earlier.metrics("before") if "eval" in line)
    assert "near_miss" not in before, "a set that the run has from now on"
    assert after["near_miss"]["suites"] > 0
    for role in ("code", "test"):
        exported = data(earlier, "export", "before", "--role", role, "--to", str(tmp_path / role))
        assert exported["step"] == 4
        assert exported["merged_adapter"] is True
        assert "model.safetensors" in exported["files"]
