"""Trackers on the command line: what is said before anything starts."""

from importlib.util import find_spec

import pytest

from codea1_cli.cli import app

missing = pytest.mark.skipif(find_spec("mlflow") is not None, reason="MLflow is installed")


@missing
def test_a_tracker_that_is_not_installed_ends_the_command_before_the_start(call, run):
    for words in (["train", "--recipe", "tiny", "--run", "new"], ["train", "--recipe", "tiny", "--dry-run"]):
        done = call(app, *words, "--tracker", "mlflow")
        assert done.code == 3
        assert "tracker mlflow is not installed" in done.err
        assert "uv sync --extra mlflow" in done.err
    done = call(app, "runs", "track", run.name, "--tracker", "mlflow")
    assert (done.code, "--extra mlflow" in done.err) == (3, True)
    assert {path.name for path in run.path.parent.iterdir()} == {"first", "problems.jsonl"}
    assert not (run.path / "trackers").exists()
    checked = call(app, "recipes", "check", "tiny", "tracker=mlflow")
    assert (checked.code, "tracker mlflow is not installed here" in checked.out) == (0, True)
    planned = call(app, "plan", "--recipe", "tiny", "tracker=mlflow", "--json")
    assert (planned.code, "tracker mlflow is not installed here" in planned.out) == (0, True)


def test_a_class_that_is_no_tracker_ends_the_command_before_the_start(call, tmp_path):
    for words in (["--tracker", "os:PathLike"], ["tracker=os:PathLike"]):
        done = call(app, "train", "--recipe", "tiny", "--runs", tmp_path / "runs", *words)
        assert (done.code, "os:PathLike is not a subclass of codea1_cli.trackers.Tracker" in done.err) == (3, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("wandbb", "unknown tracker 'wandbb'; there are wandb, trackio, tensorboard, mlflow"),
        ("[trackio, trackio]", "named twice"),
    ],
)
def test_a_wrong_name_is_an_error_of_the_recipe(call, value, says):
    done = call(app, "recipes", "check", "tiny", f"tracker={value}")
    assert (done.code, says in done.out) == (2, True)


def test_a_tracker_has_to_be_named(call, run):
    done = call(app, "runs", "track", run.name)
    assert (done.code, "--tracker NAME" in done.err) == (2, True)


def test_a_run_that_has_not_begun_has_nothing_to_log(call, run):
    (run.path / "run.json").unlink()
    done = call(app, "runs", "track", run.name, "--tracker", "tensorboard")
    assert (done.code, f"run {run.name} has not begun: nothing to log" in done.err) == (2, True)


def test_the_recipe_takes_one_name_or_several(call):
    for value, names in (
        ("trackio", ["trackio"]),
        ("[trackio, tensorboard]", ["trackio", "tensorboard"]),
        ("null", []),
    ):
        assert call(app, "recipes", "show", "tiny", f"tracker={value}", "--json").data["tracker"] == names
