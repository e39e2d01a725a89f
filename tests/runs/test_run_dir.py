import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codea1_cli.durable import write_atomic
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.runs.run_dir import COMMITTED, RunDir, find_run, run_places, runs_root


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    run.create()
    run.recipe_file.write_text("model: m\n")
    return run


def stage(run, text):
    for part in ("code", "test", "arena"):
        (run.pending / part).mkdir(parents=True)
        (run.pending / part / "f").write_text(text)


def test_a_checkpoint_is_committed_whole_and_latest_points_at_it(run):
    for step in (3, 6):
        stage(run, str(step))
        run.commit(step)
    assert run.committed_steps() == [3, 6]
    latest = run.path / "checkpoints" / "latest"
    assert os.readlink(latest) == "step-000006"
    assert (latest / "arena" / "f").read_text() == "6"
    note = {"step": 6, "files": {"arena/f": 1, "code/f": 1, "test/f": 1}}
    assert json.loads((latest / COMMITTED).read_text()) == note
    assert not run.pending.exists()


def test_pruning_keeps_the_newest_whatever_is_asked(run):
    for step in (1, 2, 3):
        stage(run, "x")
        run.commit(step)
    assert run.prune(2) == [1]
    assert run.prune(0) == [2]
    assert run.committed_steps() == [3]


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "f"
    write_atomic(file, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(file, "new")
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def _hold(path, ready, done):
    with RunDir(path).locked():
        ready.set()
        done.wait(500)


def test_two_runs_cannot_share_a_directory(run):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(str(run.path), ready, done))
    holder.start()
    assert ready.wait(300)
    assert run.locked_by() == holder.pid
    with pytest.raises(UserError, match=f"process {holder.pid}"), run.locked():
        pass
    done.set()
    holder.join()
    assert run.locked_by() is None
    with run.locked():
        pass


def test_a_killed_driver_s_lock_is_free_when_its_guard_has_cleaned_up(run, tmp_path):
    """The next run waits for the guard, so that neither the old run's processes nor the guard meet the new one."""
    leftover = tmp_path / "leftover"
    leftover.mkdir()
    program = (
        "import os, signal, subprocess, sys, time\n"
        "from pathlib import Path\n"
        "from codea1_cli.engine.shutdown import guarded\n"
        "from codea1_cli.runs.run_dir import RunDir\n"
        "run = RunDir(sys.argv[1])\n"
        "with run.locked(), guarded([Path(sys.argv[2])], run.lock_file):\n"
        "    child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program, str(run.path), str(leftover)], stdout=subprocess.PIPE, text=True
    )
    child = int(driver.stdout.readline())
    driver.kill()
    driver.wait()
    with run.locked():
        assert not leftover.exists()
        assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
    driver.stdout.close()


def test_the_options_that_name_a_run_again(run, monkeypatch):
    monkeypatch.setenv("CODEA1_RUNS", str(run.path.parent))
    assert run.options == ["--run", "r"]
    monkeypatch.delenv("CODEA1_RUNS")
    assert run.options == ["--run", "r", "--runs", str(run.path.parent)]


def test_an_unwritable_place_is_an_environment_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EnvironmentFault, match="cannot write the run directory"),
        RunDir(tmp_path / "file" / "r").locked(),
    ):
        pass


def test_finding_a_run_suggests_near_names(run):
    root = run.path.parent
    assert find_run("r", root).path == run.path
    assert find_run(None, root).path == run.path
    assert find_run(str(run.path), root).path == run.path
    run.path.rename(root / "my-run")
    with pytest.raises(UserError) as caught:
        find_run("my-rum", root)
    assert "my-run" in (caught.value.hint or "")


def test_the_current_folder_is_no_name_below_the_folder_of_runs(run, monkeypatch):
    """Else `compare .` would take all runs in ./runs for seeds of one."""
    root = run.path.parent
    monkeypatch.chdir(root.parent)
    for name in (".", "..", "./src"):
        assert run_places(name, Path(root.name)) == [Path(name)]
    assert run_places("sweep/r", root) == [root / "sweep/r", Path("sweep/r")]
    with pytest.raises(UserError, match=r"the folder \. is no run: there is no recipe.yaml"):
        find_run(".", Path(root.name))
    monkeypatch.chdir(run.path)
    assert find_run(".", root).name == run.name


def test_a_file_is_no_folder_of_runs(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CODEA1_RUNS", str(tmp_path / "file" / "runs"))
    with pytest.raises(UserError, match=r"^CODEA1_RUNS .*/runs lies below .*/file, which is a file$"):
        runs_root()


@pytest.mark.parametrize(
    "line",
    [
        '{"step": null}',
        '{"step": "2"}',
        '{"step": true, "code": {}}',
        '{"step": 1, "time": "now"}',
        '{"step": 1, "code": null}',
        '{"step": 1, "code": 5}',
        '{"step": 1, "arena": []}',
        '{"step": 1, "timing": {"step_s": "2"}}',
        '{"step": 1, "eval": {"set": "heldout", "code": {"pass@1": "0.5"}}}',
        '{"step": 1, "eval": 3}',
        "[1, 2]",
        "{",
    ],
)
def test_lines_that_no_run_writes_are_passed_over(tmp_path, line):
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    whole = {
        "step": 1,
        "time": 1.5,
        "code": {"reward": 0.5, "loss": None},
        "arena": {"leaving": ["p"], "book_tests": 1},
        "timing": {"step_s": 2},
    }
    evaluated = {"step": 1, "time": 2.5, "eval": {"set": "heldout", "code": {"pass@1": 0.5}, "n": 8}}
    lines = [json.dumps(whole), line, json.dumps(evaluated)]
    run.metrics_file.write_text("\n".join(lines) + "\n")
    assert run.metrics() == [whole, evaluated]


def test_a_folder_in_the_place_of_the_metrics_holds_none(tmp_path):
    (tmp_path / "r" / "metrics.jsonl").mkdir(parents=True)
    assert RunDir(tmp_path / "r").metrics() == []
