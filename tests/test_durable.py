"""One writer per output: who is refused, who waits, and which locks are stale."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from codea1_cli.durable import check_target, held_by, only_writer, take_lock, write_atomic
from codea1_cli.errors import EnvironmentFault, UserError
from tests.sandbox.shared import soon

HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom codea1_cli.durable import only_writer\n"
    "with only_writer(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)\n"
)


@pytest.fixture
def holder(tmp_path):
    """Starts a process that holds an output until it is killed."""
    started = []

    def start(target):
        process = subprocess.Popen([sys.executable, "-c", HOLD, target], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_second_process_is_refused_with_the_first_ones_id(tmp_path, holder):
    process = holder(tmp_path / "out.jsonl")
    said = rf"out\.jsonl is being written by process {process.pid}$"
    for wait in (False, None):  # None: a command without --wait
        with pytest.raises(UserError, match=said) as caught, only_writer(tmp_path / "out.jsonl", wait=wait):
            pass
        assert ("--wait" in caught.value.hint) == (wait is not None)
    with only_writer(tmp_path / "other.jsonl"):
        pass


def test_a_killed_holder_leaves_no_lock(tmp_path, holder):
    process = holder(tmp_path / "out.jsonl")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (tmp_path / ".out.jsonl.lock").exists()
    with only_writer(tmp_path / "out.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_asked_to_waits(tmp_path, holder, caplog):
    process = holder(tmp_path / "out.jsonl")
    ender = threading.Thread(target=lambda: soon(lambda: caplog.text) and process.kill())
    ender.start()
    with only_writer(tmp_path / "out.jsonl", wait=True):
        assert process.wait() == -signal.SIGKILL
    ender.join()
    assert f"process {process.pid}" in caplog.text


def test_nothing_is_left_of_a_lock_in_a_folder_that_was_made_for_it(tmp_path):
    with only_writer(tmp_path / "a" / "b" / "out"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    with only_writer(tmp_path / "a" / "b" / "out"):
        (tmp_path / "a" / "b" / "out").mkdir()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["out"]


def test_a_lock_of_another_host(tmp_path):
    (tmp_path / "lock").write_text("1 elsewhere\n")  # left behind: nobody holds it
    assert held_by(tmp_path / "lock") is None
    with open(tmp_path / "lock", "a+") as mine:
        take_lock(mine, UserError)
        mine.truncate(0)
        mine.write("77 elsewhere\n")
        mine.flush()
        assert held_by(tmp_path / "lock") == 77
        monkey = pytest.MonkeyPatch()
        monkey.setattr("codea1_cli.durable._PATIENCE_S", 0.0)
        with open(tmp_path / "lock", "a+") as second, pytest.raises(UserError, match=r"^77 on elsewhere$"):
            take_lock(second, UserError)
        monkey.undo()


def test_what_a_dead_holder_started_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("codea1_cli.durable._PATIENCE_AFTER_DEATH_S", 0.1)
    ended = subprocess.Popen(["true"])
    ended.wait()
    with open(tmp_path / "lock", "a+") as mine:
        take_lock(mine, UserError)
        mine.truncate(0)
        mine.write(f"{ended.pid}\n")
        mine.flush()
        with open(tmp_path / "lock", "a+") as second, pytest.raises(UserError, match=f"^{ended.pid}, which has ended"):
            take_lock(second, UserError)


def test_a_file_system_without_locks_goes_by_the_process(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", none)
    monkeypatch.setattr("codea1_cli.durable._PATIENCE_S", 0.0)
    with open(tmp_path / "lock", "a+") as file:
        take_lock(file, UserError)
        assert file.tell() > 0
    (tmp_path / "lock").write_text("1\n")
    with open(tmp_path / "lock", "a+") as file, pytest.raises(UserError, match=r"^1$"):
        take_lock(file, UserError)


def test_a_place_that_takes_no_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write"), only_writer(tmp_path / "file" / "out"):
        pass


def test_a_file_that_cannot_be_written_is_named_not_the_one_before_it(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "none" / "x", tmp_path / "file" / "x", tmp_path / "folder"):
        with pytest.raises(OSError, match=str(target)) as caught:
            write_atomic(target, "text")
        assert caught.value.filename == str(target)
        assert ".tmp" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_a_folder_is_no_file_to_write(tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        check_target(tmp_path, force=True)
    (tmp_path / "there").touch()
    with pytest.raises(UserError, match="exists"):
        check_target(tmp_path / "there", force=False)
    check_target(tmp_path / "there", force=True)
    check_target(tmp_path / "new", force=False)
    with pytest.raises(UserError, match="no plain file"):  # the rename would put a file in the device's place
        check_target(Path("/dev/null"), force=True)
    check_target(None, force=False)


def test_nothing_takes_the_place_of_a_device_or_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "link"):
        with pytest.raises(UserError, match="no plain file"):
            write_atomic(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_links_to_an_output_share_its_lock(tmp_path, holder):
    (tmp_path / "there").mkdir()
    (tmp_path / "folder").symlink_to("there")
    (tmp_path / "link.jsonl").symlink_to("there/out.jsonl")  # which is not there yet
    process = holder(tmp_path / "there" / "out.jsonl")
    for name in ("link.jsonl", "folder/out.jsonl"):
        with pytest.raises(UserError, match=f"process {process.pid}"), only_writer(tmp_path / name):
            pass
