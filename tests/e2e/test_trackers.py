"""A run in trackers that are really there: an old one, and one that a resume takes back behind what they had."""

import json
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Cli, alive_of, kill_when, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("e2e"), pytest.mark.timeout(1800)]

RAISES, SLEEPS = "tests.runs.stand_ins:Raises", "tests.runs.stand_ins:Sleeps"
KEY = "0123456789abcdef0123456789abcdef01234567"


def test_an_old_run_is_published_and_a_resume_goes_on_in_the_same_runs(cli: Cli, whole: str, tmp_path: Path) -> None:
    env = {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "WANDB_MODE": "offline",
        "WANDB_API_KEY": KEY,
    }
    run = cli.path("tracked")
    shutil.copytree(cli.path(whole), run, symlinks=True)
    names = [word for name in ("tensorboard", "trackio", "wandb") for word in ("--tracker", name)]
    done = cli("runs", "track", "tracked", *names, env=env)
    assert done.returncode == 0, done.stderr
    ids = {path.stem: json.loads(path.open().readline())["id"] for path in (run / "trackers").glob("*.jsonl")}
    assert steps_of(run, tmp_path, ids["wandb"]) == {name: [1, 2, 3, 4, 5, 6] for name in ids}

    killed = cli.start("runs", "track", "tracked", "--tracker", SLEEPS, env=env)
    log = run / "logs" / "tracker-Sleeps.log"
    kill_when(killed, lambda: log.is_file() and "asleep" in log.read_text())
    assert wait_for(lambda: not alive_of(run)), "not even a tracker that hangs outlives its starter"

    (run / "checkpoints" / "step-000006" / "COMMITTED").unlink()
    limits = ["faults.tracker_s=3000", "train.max_steps=5"]
    done = cli("train", "--run", "tracked", "--resume", *limits, *names, "--tracker", RAISES, env=env)
    assert done.returncode == 0, done.stderr
    assert "goes on from step 3" in done.stderr
    assert done.stderr.count(f"warning: tracker {RAISES} is given up: ConnectionError") == 1
    assert done.stderr.count("given up") == 1
    assert steps_of(run, tmp_path, ids["wandb"]) == {
        "tensorboard": [1, 2, 3, 4, 5],
        "trackio": [1, 2, 3, 4, 5],
        "wandb": [1, 2, 3, 4, 5, 6, 4, 5],
    }
    assert {path.stem: json.loads(path.open().readline())["id"] for path in (run / "trackers").glob("*.jsonl")} == {
        **ids,
        "Raises": "there",
        "Sleeps": "there",
    }
    shown = cli("runs", "show", "tracked").stdout
    assert ["in", "tensorboard", str(run / "trackers" / "tensorboard")] in [line.split() for line in shown.splitlines()]
    info = json.loads((run / "run.json").read_text())
    assert info["resumed"][-1]["changed"]["tracker"] == [[], ["tensorboard", "trackio", "wandb", RAISES]]
    assert not [path for path in run.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert wait_for(lambda: not alive_of(run))


def steps_of(run: Path, place: Path, id: str) -> dict[str, list[int]]:
    """The steps at which each tracker has the Code LLM's reward, in the order in which it has them, and the last run's
    values are those of metrics.jsonl."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    wanted = {line["step"]: line["code"]["reward"] for line in lines if "arena" in line}
    scalars = EventAccumulator(str(run / "trackers" / "tensorboard")).Reload().Scalars("code/reward")
    with sqlite3.connect(place / "trackio" / "codea1.db") as store:
        rows = [
            (step, json.loads(text)) for step, text in store.execute("select step, metrics from metrics order by id")
        ]
    assert any("code" in row for _, row in rows for row in (row.get("rollouts") or {}).get("_value", []))
    kept = [row for file in sorted(run.glob(f"trackers/wandb/offline-*/run-{id}.wandb")) for row in history(file)]
    found = {
        "tensorboard": [(one.step, one.value) for one in scalars],
        "trackio": [(step, row["code/reward"]) for step, row in rows if "code/reward" in row],
        "wandb": [(row["step"], row["code/reward"]) for row in kept if "code/reward" in row],
    }
    for values in found.values():
        assert dict(values) | wanted == pytest.approx(dict(values), rel=1e-6)
    return {name: [step for step, _ in values] for name, values in found.items()}


def history(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a run that wandb keeps offline: records of protobuf in LevelDB's log format, behind seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, held = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        held += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the whole, or the last part of a record
            record = Record.FromString(held)
            held = b""
            if record.history.item:
                yield {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
