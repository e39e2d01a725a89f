"""A run's recipe means the same wherever it is resumed."""

import pytest

from codea1_cli.errors import UserError
from codea1_cli.recipe.files import load_recipe, with_absolute_paths


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "extends: tiny\ngame:\n  n_code: 4\n  alpha: 0.5\n  n_code: 8\n",
            r"r\.yaml:5: n_code is there already, on line 3",
        ),
        ("extends: tiny\nseed: 1\nseed: 1\n", r"r\.yaml:3: seed is there already, on line 2"),
        ("extends: tiny\ngame: {alpha: 0.5, alpha: 1}\n", r"r\.yaml:2: alpha is there already, on line 2"),
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path, text, says):
    file = tmp_path / "r.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=says):
        load_recipe(str(file))


def test_one_key_in_two_sections_or_an_alias_of_itself_is_not_twice(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("extends: tiny\ncode:\n  max_completion_tokens: 64\ntest:\n  max_completion_tokens: 65\n")
    assert load_recipe(str(file)).test.max_completion_tokens == 65
    file.write_text("extends: tiny\ngame: &x\n  alpha: *x\n")
    with pytest.raises(UserError, match=r"r\.yaml:2: a section that holds itself"):
        load_recipe(str(file))
    with pytest.raises(UserError, match="a section that holds itself"):
        load_recipe("tiny", ["game=&x {alpha: *x}"])


@pytest.mark.parametrize("value", ["0.5", "[0.5]", "{least: 0.1, most: 0.9}"])
def test_a_solve_rate_is_two_shares(value):
    with pytest.raises(UserError, match=r"data\.solve_rate: two shares are wanted, .* as \[0\.1, 0\.9\]"):
        load_recipe("tiny", [f"data.solve_rate={value}"])


@pytest.mark.parametrize(
    ("of_run", "hint"), [(True, "restore recipe.yaml; recipe.source.yaml beside it"), (False, None)]
)
def test_a_broken_recipe_of_a_run_has_a_way_out(tmp_path, of_run, hint):
    file = tmp_path / "recipe.yaml"
    file.write_text("train: [")
    with pytest.raises(UserError, match=r"recipe\.yaml: not valid YAML") as caught:
        load_recipe(str(file), of_run=of_run)
    assert (caught.value.hint or "").startswith(hint or "")
    assert (caught.value.hint is None) == (hint is None)
