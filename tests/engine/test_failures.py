"""Every way in which an actor can fail becomes one error that names the right culprit, and the right exit code."""

import errno

import pytest
from ray import exceptions

from codea1_cli import engine
from codea1_cli.engine import LOG_HEAD, as_error
from codea1_cli.errors import EnvironmentFault, RunFailed, UserError
from codea1_cli.runs.run_dir import RunDir

AT = ("saving", 4)


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    run.create()
    return run


def raised_by_an_actor(cause):
    return exceptions.RayTaskError("train", "Traceback ...", cause).as_instanceof_cause()


def test_an_actor_that_died_is_the_one_that_was_asked(run):
    error = as_error(exceptions.ActorDiedError(), "code[0]", AT, run)
    assert isinstance(error, RunFailed)
    assert error.what.startswith("code[0] died at step 4 (saving): its process is gone")


def test_a_rank_that_finds_the_arena_gone_is_not_blamed(run):
    error = as_error(raised_by_an_actor(exceptions.ActorDiedError()), "code[0]", AT, run)
    assert isinstance(error, RunFailed)
    assert error.what.startswith("the arena died")


@pytest.mark.parametrize(
    "cause",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("database or disk is full"),
    ],
    ids=str,
)
def test_a_full_disk_is_the_environment_s_fault_whoever_says_so(run, cause):
    error = as_error(raised_by_an_actor(cause), "test[0]", AT, run)
    assert isinstance(error, EnvironmentFault)
    assert error.what == "test[0] at step 4 (saving): the disk is full"
    assert "--resume" in (error.hint or "")


@pytest.mark.parametrize(("free", "kind"), [(2**20, EnvironmentFault), (2**40, RunFailed)])
def test_torch_that_cannot_write_is_a_full_disk_only_on_one(run, monkeypatch, free, kind):
    monkeypatch.setattr(engine.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free}))
    error = as_error(
        raised_by_an_actor(RuntimeError("PytorchStreamWriter failed writing file data/0")), "code[0]", AT, run
    )
    assert type(error) is kind


def test_our_own_errors_keep_their_words_and_their_code(run):
    error = as_error(raised_by_an_actor(UserError("no such model", "give another")), "code[0]", None, run)
    assert (type(error), error.what, error.hint) == (UserError, "no such model", "give another")


def test_last_words_are_those_of_this_session(run):
    log = run.logs / "code-0.log"
    log.write_text(f"{LOG_HEAD}ValueError: long ago\n{LOG_HEAD}all well\n")
    assert "long ago" not in as_error(exceptions.ActorDiedError(), "code[0]", AT, run).what
    log.write_text(f"{log.read_text()}CUDA error: out of memory\n")
    assert "CUDA error: out of memory" in as_error(exceptions.ActorDiedError(), "code[0]", AT, run).what
