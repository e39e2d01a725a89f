"""A run's recipe means the same wherever it is resumed."""

from codea1_cli.recipe_io import load_recipe, with_absolute_paths


def test_files_and_folders_are_named_in_full_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.jsonl").write_text("")
    (tmp_path / "model").mkdir()
    given = load_recipe("tiny", ["data.train=train.jsonl", "test.model=model", "code.model=org/name"])
    pinned = with_absolute_paths(given)
    assert pinned.data.train == str(tmp_path / "train.jsonl")
    assert pinned.test.model == str(tmp_path / "model")
    assert (pinned.code.model, pinned.model) == ("org/name", "builtin:tiny")
    assert pinned.data.heldout == "builtin:tiny/heldout"
    assert given.data.train == "train.jsonl"
