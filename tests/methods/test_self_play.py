"""Self-play: one policy, two roles; what a recipe may set, and what its update holds beside code-a1's two."""

import pytest

from codea1_cli.errors import UserError
from codea1_cli.methods.registry import method_of
from codea1_cli.models.sampler import ModelRef
from codea1_cli.planning.costs import sampled
from codea1_cli.recipe.batching import batches, longest
from codea1_cli.recipe.files import load_recipe, recipe_text
from codea1_cli.runs.policy_folders import find_model
from codea1_cli.tiny import model_path
from tests.cli.fake_run import weights


def self_play(*overrides, name="tiny"):
    return load_recipe(name, ["method=self-play", *overrides])


def test_one_policy_plays_both_roles():
    method = method_of(self_play())
    assert (method.roles, method.policies) == (("code", "test"), ("code",))
    assert [method.policy(role) for role in method.roles] == ["code", "code"]
    assert method.roles_of("code") == ("code", "test")
    other = method_of(load_recipe("tiny"))
    assert (other.policies, other.roles_of("test")) == (("code", "test"), ("test",))


@pytest.mark.parametrize(
    ("method", "key"),
    [
        *(("self-play", f"test.{key}") for key in ("model=x", "gpus=1", "ranks=1", "learning_rate=1e-3")),
        ("self-play", "game.golden=all"),
        *((method, "code.weight=2") for method in ("code-a1", "golden-tests")),
        *((method, "train.equal_budget=true") for method in ("code-a1", "golden-tests")),
        ("code-a1", "test.weight=2"),
        ("sft", "test.weight=2"),
    ],
)
def test_a_key_that_a_method_ignores_is_an_error(method, key):
    with pytest.raises(UserError, match=f"method={method} ignores {key.partition('=')[0]}"):
        load_recipe("tiny", [f"method={method}", key])


def test_what_a_shipped_recipe_shares_out_between_two_policies_is_left_to_one():
    recipe = self_play(name="1.5b")
    assert (recipe.code.gpus, recipe.test.max_prompt_tokens) == (None, 8192)
    assert set(recipe.dump()["test"]) == {"max_prompt_tokens", "max_completion_tokens", "weight"}


def test_both_weights_zero_are_refused():
    self_play("code.weight=0")
    with pytest.raises(UserError, match=r"code\.weight and test\.weight are both 0"):
        self_play("code.weight=0", "test.weight=0")


@pytest.mark.parametrize("sizes", [(8, 8, 1), (4, 6, 2), (2, 3, 2)])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_policys_batch_is_that_of_both_of_code_a1(sizes, ranks):
    """As many sequences sampled and learned from; equal_budget also takes as many optimizer steps."""
    keys = [f"game.{key}={size}" for key, size in zip(("n_code", "n_test", "update_n"), sizes, strict=True)]
    two = load_recipe("tiny", keys)
    both = [batches(two, role, ranks) for role in ("code", "test")]
    for equal in (False, True):
        one = self_play(*keys, f"train.equal_budget={str(equal).lower()}")
        own = batches(one, "code", ranks)
        assert own.rows_per_step == sum(batch.rows_per_step for batch in both)
        assert own.updates_per_step == (2 if equal else 1)
        assert own.micro_batch * own.gradient_accumulation * own.updates_per_step == own.rows_per_rank
        assert own.rows_per_rank % own.group == 0, "a problem would straddle ranks"
        assert all(sampled(one, role) == sampled(two, role) for role in ("code", "test"))


def test_what_cannot_be_cut_names_the_budget():
    keys = ["game.n_code=3", "game.n_test=2", "train.problems_per_step=3"]
    batches(self_play(*keys), "code", 1)
    with pytest.raises(
        UserError, match=r"15 rows .* 2 equal parts \(train.updates_per_step=1 with train.equal_budget\)"
    ):
        batches(self_play(*keys, "train.equal_budget=true"), "code", 1)


def test_its_sequences_are_as_long_as_either_role_needs():
    recipe = self_play("code.max_completion_tokens=200", "test.max_prompt_tokens=500")
    assert longest(recipe, "code") == (500, 200)


def test_one_folder_answers_for_both_roles(tmp_path):
    folder = tmp_path / "one" / "checkpoints" / "step-000002"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "model.safetensors").write_bytes(weights(200))
    (folder / "COMMITTED").touch()
    (tmp_path / "one" / "recipe.yaml").write_text(recipe_text(self_play()))
    for role in ("code", "test"):
        found = find_model("one", role=role, runs_root=tmp_path)
        assert (found.path, found.label) == (str(folder / "code"), f"one:{role}@2")
    (folder / "code" / "adapter_config.json").write_text("{}")
    assert find_model("one", role="test", runs_root=tmp_path) == ModelRef(
        str(model_path()), str(folder / "code"), "one:test@2", str(tmp_path / "one"), 2
    )
