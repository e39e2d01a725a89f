"""sft and the warm-up in a recipe: which policies, at which rate, and which keys mean something."""

import pytest
import yaml

from codea1_cli.errors import UserError
from codea1_cli.methods.registry import method_of
from codea1_cli.recipe import files, flat
from codea1_cli.recipe.batching import batches, warmup_recipe
from codea1_cli.recipe.files import load_recipe, recipe_path, recipe_text


@pytest.mark.parametrize(("role", "roles"), [("code", ("code",)), ("test", ("test",)), ("both", ("code", "test"))])
def test_it_trains_the_policies_that_the_recipe_names(role, roles):
    recipe = load_recipe("tiny", ["method=sft", f"sft.role={role}"])
    assert method_of(recipe).roles == roles
    assert batches(recipe, roles[0], 1).rows_per_step == recipe.train.problems_per_step


def test_its_rate_is_of_its_own():
    rates = {
        name: load_recipe(name, ["method=sft"]).sft.rate(load_recipe(name).optim.learning_rate)
        for name in ("tiny", "135m", "1.5b")
    }
    assert rates == {"tiny": 7e-4, "135m": 5e-4, "1.5b": 2e-5}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["method=sft", "game.alpha=0.3"], "game.alpha"),
        (["method=sft", "optim.kl=0.1"], "optim.kl"),
        (["method=sft", "warmup.steps=3"], "warmup.steps"),
        (["method=sft", "sampling.engine=vllm"], "sampling.engine"),
        (["sft.learning_rate=5e-4"], "sft.learning_rate"),
        (["method=golden-tests", "sft.code=pairs.jsonl"], "sft.code"),
        (["warmup.steps=3", "sft.role=code"], "sft.role"),
        (["method=golden-tests", "warmup.steps=3", "sft.test=pairs.jsonl"], "sft.test"),
        (["method=sft", "sft.test=pairs.jsonl"], "sft.test"),
        (["method=sft", "test.learning_rate=5e-4"], "test.learning_rate"),
        (["method=sft", "game.tests_per_suite=3"], "game.tests_per_suite"),
        (["method=sft", "preflight.samples=3"], "preflight.samples"),
        (["method=sft", "sft.role=test", "eval.n=4"], "eval.n"),
        (["sft.role=test", "sft.code=pairs.jsonl", "method=sft"], "sft.code"),
        (["method=sft", "sft.role=test", "code={learning_rate: 5e-4}"], "code.learning_rate"),
        (["method=sft", "sft.role=one", "test.gpus=1"], "test.gpus"),
        (["game.kill=own", "game.pool_size=3"], "game.pool_size"),
        (["game.mode=paper", "game.share_identical=false", "game.trust=false"], "game.trust"),
        (["method=self-play", "game.validation=false", "game.pool_size=3"], "game.pool_size"),
        (["game.book=false", "game.book_replay=3"], "game.book_replay"),
    ],
)
def test_a_key_without_a_meaning_is_refused(words, named):
    with pytest.raises(UserError, match=f"ignores {named}"):
        load_recipe("tiny", words)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["method=sft"], {"code.max_completion_tokens": 72}),
        (["method=sft", "sft.role=test"], {"test.max_completion_tokens": 112, "game.tests_per_suite": 4}),
        (["method=sft", "sft.role=both"], {"code.max_completion_tokens": 72, "test.max_completion_tokens": 112}),
        (["method=sft", "sft.role=one"], {"code.max_completion_tokens": 72, "test.max_completion_tokens": 112}),
        (["game.kill=own"], {"game.n_test": 8}),
        (["game.book=false"], {"game.pool_size": 5}),
    ],
)
def test_what_a_shipped_recipe_holds_for_another_role_or_game_is_left_out(tmp_path, monkeypatch, words, kept):
    below, again = tmp_path / "shipped" / "below.yaml", tmp_path / "again.yaml"
    below.parent.mkdir()
    below.write_text(
        recipe_path("tiny").read_text().replace("game:\n", "game:\n  pool_size: 5\n  trust: false\n  book_replay: 3\n")
    )
    monkeypatch.setattr(files, "recipe_folder", lambda: below.parent)
    recipe = load_recipe("below", words)
    written = flat(recipe.dump())
    assert {key: written[key] for key in kept} == kept
    again.write_text(recipe_text(recipe))
    assert load_recipe(str(again)) == load_recipe(str(again), of_run=True)
    assert flat(load_recipe(str(again)).dump()) == written


def test_a_run_recorded_with_keys_that_are_now_ignored_is_read(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("extends: tiny\ngame: {kill: own, pool_size: 8}\n")
    assert load_recipe(str(file), of_run=True).game.kill == "own"
    with pytest.raises(UserError, match=r"recipe\.yaml: game\.kill=own ignores game\.pool_size") as caught:
        load_recipe(str(file))
    assert caught.value.hint == "leave it out, or set another game.kill"


def test_the_hint_for_the_papers_game_names_what_makes_it_work():
    with pytest.raises(UserError, match=r"set game\.share_identical=false"):
        load_recipe("tiny", ["game.mode=paper"])
    assert load_recipe("tiny", ["game.mode=paper", "game.share_identical=false"]).game.paper


def test_a_warm_up_is_a_run_of_sft_of_the_methods_own_policies():
    recipe = load_recipe("tiny", ["warmup.steps=5", "warmup.pairs_per_step=6", "sft.test=suites.jsonl"])
    stage = warmup_recipe(recipe)
    assert (stage.method, stage.train.max_steps, stage.train.problems_per_step) == ("sft", 5, 6)
    assert method_of(stage).roles == method_of(recipe).roles == ("code", "test")
    assert stage.sft.test == "suites.jsonl"
    golden = warmup_recipe(load_recipe("tiny", ["method=golden-tests", "warmup.steps=5"]))
    assert method_of(golden).roles == ("code",)
    assert warmup_recipe(load_recipe("tiny")) is None
    alone = warmup_recipe(load_recipe("tiny", ["method=self-play", "train.equal_budget=true", "warmup.steps=5"]))
    method = method_of(alone)
    assert (method.roles, method.policies, alone.sft.role) == (("code", "test"), ("code",), "one")
    shape = batches(alone, "code", 1)
    assert (shape.rows_per_step, shape.updates_per_step) == (2 * alone.train.problems_per_step, 1)


def test_the_sections_are_written_out_where_they_mean_something():
    shown = {
        words: yaml.safe_load(recipe_text(load_recipe("tiny", words)))
        for words in ((), ("method=sft",), ("warmup.steps=5",))
    }
    assert "sft" not in shown[()]
    assert shown[()]["warmup"] is None
    assert shown["method=sft",]["sft"]["role"] == "code"
    assert "warmup" not in shown["method=sft",]
    assert "role" not in shown["warmup.steps=5",]["sft"]
