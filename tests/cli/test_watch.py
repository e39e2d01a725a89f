"""`codea1 runs watch` and `runs show --plot`: a run seen through its files."""

import io
import json
import os
import pty
import re
import select
import subprocess
import termios
import time

import pytest
from rich.console import Console

from codea1_cli.cli import console, runs
from codea1_cli.cli.watch import _fitting, snapshot
from codea1_cli.engine.client import Heartbeats
from tests.cli.fake_run import make_run
from tests.e2e.harness import CODEA1

WIDE = 80


def under_way(run, steps=range(4, 15), total=20):
    """Ten seconds per step, and what the ranks do."""
    run.note(total_steps=total)
    for step in steps:
        arena = {"exposed_share": step / 20, "unscored": int(step == 12)}
        line = {"step": step, "time": 10.0 * step, "code": {"reward": step / 20}, "test": {}, "arena": arena}
        run.append_metrics(line | {"timing": {"step_s": 10.0, "code_waiting_s": 2.5}})
    beats = Heartbeats(run.phases_file)
    beats.beat("code[0]", "updating", 14)
    beats.beat("test[0]", "sampling", 15)


def test_a_run_under_way(run):
    under_way(run)
    (run.logs / "test-0.log").write_text("--- codea1: a rank starts\nUserWarning: a warning of a library\nfine\n")
    began = json.loads(run.phases_file.read_text())["code[0]"][2]
    with run.locked():
        seen = snapshot(run, began + 7)
    assert (seen["state"], seen["step"], seen["total"], seen["left_s"]) == ("running", 14, 20, 60.0)
    run.note(until=16)
    with run.locked():
        stops = snapshot(run, began + 7)
    assert (stops["total"], stops["until"], stops["left_s"]) == (20, 16, 20.0)
    wide = Console(width=WIDE, file=io.StringIO())
    wide.print(_fitting(stops, wide))
    assert "first: running  step 14 of 20  70%  0:20 left to step 16 (--max-steps)" in wide.file.getvalue()
    assert [(one["rank"], one["phase"], one["step"]) for one in seen["ranks"]] == [
        ("code[0]", "updating", 14),
        ("test[0]", "sampling", 15),
    ]
    assert seen["ranks"][0]["seconds"] == 7
    last = {one["figure"]: one["values"][-1] for one in seen["figures"]}
    assert (last["Code LLM reward"], last["exposed"], last["Code LLM idle"]) == (0.7, 0.7, 0.25)
    assert seen["warnings"] == ["test-0: UserWarning: a warning of a library", "step 12: unscored: 1"]


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of WIDE columns; a console is made once per process and keeps its width."""
    monkeypatch.setenv("COLUMNS", str(WIDE))
    console._console.cache_clear()
    yield
    console._console.cache_clear()


def test_a_run_that_nobody_trains_is_shown_once_and_fits_80_columns(run, call, narrow):
    under_way(run)
    done = call(runs.app, "watch", "first")
    assert done.code == 0
    assert "first: interrupted  step 14 of 20  70%" in done.out
    assert "step 12: unscored: 1" in done.out
    assert max(map(len, done.out.splitlines())) <= WIDE
    assert not re.search(r"code\[0\]|left", done.out)  # of a run that goes on
    assert call(runs.app, "watch", "first", "--json").data["figures"][0]["figure"] == "Code LLM reward"
    assert call(runs.app, "watch", "nobody").code == 2


@pytest.mark.parametrize(("height", "ranks"), [(24, 2), (24, 16), (12, 16), (60, 16)])
def test_a_low_terminal_leaves_figures_out_and_keeps_warnings(run, height, ranks):
    under_way(run)
    seen = snapshot(run, time.time()) | {"state": "running", "warnings": ["a warning", "the last one"]}
    seen["ranks"] = [
        {"rank": f"code[{place}]", "phase": "sampling", "step": 15, "seconds": 5.0} for place in range(ranks)
    ]
    low = Console(width=WIDE, height=height, file=io.StringIO())
    low.print(_fitting(seen, low))
    lines = low.file.getvalue().splitlines()
    assert len(lines) <= height
    assert [line.strip() for line in lines[-2:]] == ["a warning", "the last one"]
    assert "Code LLM reward" in low.file.getvalue()
    assert ("more on a higher terminal" in low.file.getvalue()) == (height < 60 and ranks > 2)


@pytest.mark.parametrize("broken", ["", "[1]", '{"code[0]": 3}', "{"])
def test_a_run_that_starts_or_is_damaged_is_watched_all_the_same(run, broken):
    run.phases_file.write_text(broken)
    (run.path / "run.json").write_text(broken)
    assert snapshot(run, time.time())["ranks"] == []


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"code[0]": ["sampling", "3", 1.0]}, "code[0].1 is a text"),
        ({"code[0]": ["sampling", 3, None]}, "code[0].2 is null"),
        ({"code[0]": ["sampling", 3]}, "code[0].2 is missing"),
        ({"code[0]": {"phase": "sampling"}}, "code[0] is an object"),
        ([], "it is a list"),
        (None, "it is null"),
    ],
)
def test_a_phase_of_another_type_is_named_among_the_warnings(run, broken, says):
    under_way(run)
    run.phases_file.write_text(json.dumps(broken))
    with run.locked():
        seen = snapshot(run, time.time())
    assert (seen["ranks"], seen["state"]) == ([], "running")
    assert seen["warnings"][-1].startswith(f"{run.phases_file}: {says}")


def test_a_phase_begins_once_and_a_file_that_cannot_be_written_stops_nothing(tmp_path):
    beats = Heartbeats(tmp_path / "phases.json")
    beats.beat("code[0]", "sampling", 1)
    first = (tmp_path / "phases.json").read_text()
    beats.beat("code[0]", "sampling", 1)
    assert (tmp_path / "phases.json").read_text() == first
    gone = Heartbeats(tmp_path / "gone" / "phases.json")
    gone.beat("code[0]", "sampling", 1)
    assert gone.position("code[0]") == ("sampling", 1)


def test_curves_of_a_run_as_a_picture(run, call, tmp_path):
    file = tmp_path / "curves.png"
    assert call(runs.app, "show", "first", "--plot", file).code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    refused = call(runs.app, "show", "first", "--plot", tmp_path / "curves.txt")
    assert (refused.code, "names no image format" in refused.err) == (2, True)
    empty = make_run(run.path.parent, "empty", steps=0)
    empty.metrics_file.write_text("")
    assert call(runs.app, "show", "empty", "--plot", file).code == 2


@pytest.mark.slow
@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_a_key_ends_the_watching_and_gives_the_terminal_back(run, key):
    under_way(run)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDE), "TERM": "xterm"}
    with run.locked():
        watching = subprocess.Popen(
            [CODEA1, "runs", "watch", "first"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        said = b""
        deadline = time.monotonic() + 240
        while b"sampling" not in said and time.monotonic() < deadline:
            if select.select([ours], [], [], 1.0)[0]:
                said += os.read(ours, 65536)
        assert b"sampling" in said
        os.write(ours, key)
        while watching.poll() is None and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                said += os.read(ours, 65536)
        while select.select([ours], [], [], 0.2)[0]:
            said += os.read(ours, 65536)
    assert watching.returncode == 0
    assert said.count(b"\x1b[?1049h") == said.count(b"\x1b[?1049l") == 1
    assert termios.tcgetattr(theirs)[3] & termios.ECHO
    os.close(ours)
    os.close(theirs)
