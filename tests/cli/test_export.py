"""`codea1 export`: a plain model folder from any checkpoint, whole or not at all."""

import json

import pytest
from fake_run import make_run

from codea1_cli.cli.export import export


def test_export_takes_the_newest_or_the_named_step_and_model_files_only(run, call, tmp_path):
    done = call(export, "first", "--role", "code", "--to", tmp_path / "new", "--json")
    assert done.code == 0
    assert (done.data["step"], done.data["merged_adapter"]) == (3, False)
    assert done.data["files"] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert json.loads((tmp_path / "new" / "config.json").read_text()) == {"step": 3, "role": "code"}
    (tmp_path / "empty").mkdir()
    assert call(export, "first", "--role", "test", "--to", tmp_path / "empty", "--step", "1").code == 0
    assert json.loads((tmp_path / "empty" / "config.json").read_text()) == {"step": 1, "role": "test"}
    assert (tmp_path / "empty" / "model.safetensors").stat().st_size == 1000


def test_export_refuses_a_folder_in_use_and_leaves_it_alone(run, call, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    done = call(export, "first", "--role", "code", "--to", tmp_path / "mine")
    assert done.code == 2
    assert "not empty" in done.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert call(export, "first", "--role", "code", "--to", tmp_path / "mine" / "notes.txt").code == 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("first", "--role", "code", "--step", "9"), 2, "did you mean 3? there are 1, 2, 3"),
        (("frst", "--role", "code"), 2, "did you mean first?"),
        (("first", "--role", "judge"), 2, "--role"),
        (("first",), 2, "--role"),
    ],
)
def test_export_names_what_is_wrong(run, call, tmp_path, words, code, text):
    done = call(export, *words, "--to", tmp_path / "out")
    assert done.code == code
    assert text in done.err
    assert not (tmp_path / "out").exists()


def test_a_failed_export_leaves_nothing_behind(run, call, tmp_path, monkeypatch):
    def full(*_args, **_keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    done = call(export, "first", "--role", "code", "--to", tmp_path / "out")
    assert done.code == 3
    assert "No space left on device" in done.err
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_a_run_without_a_checkpoint_says_so(run, call, tmp_path):
    make_run(run.path.parent, "fresh", steps=0)
    done = call(export, "fresh", "--role", "code", "--to", tmp_path / "out")
    assert done.code == 2
    assert "no whole checkpoint yet" in done.err
