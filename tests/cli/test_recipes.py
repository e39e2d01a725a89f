"""`codea1 recipes`: shipped recipes, their written-out form, and what check refuses."""

import pytest
import yaml

from codea1_cli.cli import recipes
from codea1_cli.cli.layout import commented_yaml
from codea1_cli.recipe.files import load_recipe, recipe_names


def test_list_names_every_shipped_recipe(call):
    rows = call(recipes.app, "list", "--json").data
    assert [row["name"] for row in rows] == recipe_names()
    table = call(recipes.app, "list")
    assert all(name in table.out for name in ("tiny", "135m", "1.5b", "3b", "7b"))


@pytest.mark.parametrize("width", [40, 80, 10**9])
@pytest.mark.parametrize("name", recipe_names())
def test_the_commented_form_is_the_recipe_itself(name, width, tmp_path):
    recipe = load_recipe(name)
    text = commented_yaml(recipe, width)
    assert yaml.safe_load(text) == recipe.dump()
    assert "# " in text
    copy = tmp_path / "copy.yaml"
    copy.write_text(text)
    assert load_recipe(str(copy)) == recipe


def test_show_applies_overrides(call):
    data = call(recipes.app, "show", "tiny", "game.alpha=0.25", "train.max_steps=7", "--json").data
    assert (data["game"]["alpha"], data["train"]["max_steps"]) == (0.25, 7)
    assert yaml.safe_load(call(recipes.app, "show", "tiny", "game.alpha=0.25").out)["game"]["alpha"] == 0.25


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("show", "tny"), "no recipe named 'tny'", "did you mean tiny?"),
        (("show", "tiny", "train.epochz=1"), "unknown key train.epochz", "did you mean train.epochs?"),
        (("show", "tiny", "game.alpha=7"), "game.alpha", ""),
        (("show", "tiny", "nonsense"), "not key=value", "train.max_steps=20"),
    ],
)
def test_show_names_what_is_wrong(call, words, error, hint):
    done = call(recipes.app, *words)
    assert done.code == 2
    assert done.out == ""
    assert error in done.err
    assert hint in done.err


def test_check_passes_the_shipped_recipes_and_says_what_they_need(call):
    results = call(recipes.app, "check", "--json").data
    assert [result["recipe"] for result in results] == recipe_names()
    assert all(result["ok"] for result in results), results
    notes = {result["recipe"]: result["notes"] for result in results}
    assert notes["tiny"] == []
    assert "kodcode, difficulty hard" in notes["1.5b"][0]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("train.problems_per_step=7", "problems_per_step=7"),
        ("data.train=/nowhere/at/all.jsonl", "/nowhere/at/all.jsonl"),
        ("model=/nowhere/model", "/nowhere/model"),
        ("method=grpo", "unknown method"),
    ],
)
def test_check_refuses_what_cannot_run(call, change, error):
    done = call(recipes.app, "check", "1.5b", change, "--json")
    assert done.code == 2
    assert error in done.data[0]["error"]
    assert call(recipes.app, "check", "1.5b", change).code == 2


def test_check_reads_a_file(call, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: tiny\ngame:\n  alpha: 0.1\n")
    assert call(recipes.app, "check", mine, "--json").data[0]["ok"]
    (tmp_path / "other.yaml").write_text("extends: mine.yaml\n")
    assert call(recipes.app, "check", tmp_path / "other.yaml", "--json").data[0]["ok"], "a file beside it"
    (tmp_path / "tiny.yaml").write_text("extends: tiny\n")
    assert call(recipes.app, "check", tmp_path / "tiny.yaml", "--json").data[0]["ok"], "named as what it extends"
    mine.write_text("model: [")
    assert call(recipes.app, "check", mine).code == 2
