import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1_cli.errors import UserError
from codea1_cli.recipe.batching import batches, filled, fitted, fullest, micro_batches
from codea1_cli.recipe.files import load_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("role", ["code", "test"])
def test_every_recipe_divides_evenly(name, role):
    recipe = load_recipe(name)
    for ranks in (1, 2, 4):
        shape = batches(recipe, role, ranks)
        assert shape.rows_per_rank * ranks == shape.rows_per_step
        assert shape.micro_batch * shape.gradient_accumulation * shape.updates_per_step == shape.rows_per_rank
        assert shape.steps_per_generation == shape.gradient_accumulation * shape.updates_per_step
        assert shape.rows_per_rank % shape.group == 0, "a problem would straddle ranks"


def per_update_is_uneven(recipe, role, ranks):
    rows = recipe.train.problems_per_step * (
        recipe.game.n_code if role == "code" else recipe.game.n_test * recipe.game.update_n
    )
    return recipe.train.problems_per_step % ranks or (rows // ranks) % recipe.train.updates_per_step


@settings(deadline=None)  # the machine may be busy
@given(
    problems=st.integers(1, 64),
    n=st.integers(2, 9),
    update_n=st.integers(1, 2),
    updates=st.integers(1, 4),
    ranks=st.integers(1, 4),
    tokens=st.integers(1, 100_000),
)
def test_derived_batches_cover_a_step_exactly_or_say_what_does_not_fit(problems, n, update_n, updates, ranks, tokens):
    recipe = load_recipe(
        "1.5b",
        [
            f"train.problems_per_step={problems}",
            f"game.n_code={n}",
            f"game.n_test={n}",
            f"game.update_n={update_n}",
            f"train.updates_per_step={updates}",
            f"train.tokens_per_micro_batch={tokens}",
        ],
    )
    for role in ("code", "test"):
        try:
            shape = batches(recipe, role, ranks)
        except UserError:
            assert per_update_is_uneven(recipe, role, ranks)
            continue
        assert shape.micro_batch * shape.gradient_accumulation * updates * ranks == shape.rows_per_step
        longest = recipe.role(role).max_prompt_tokens + recipe.role(role).max_completion_tokens
        assert shape.micro_batch == 1 or shape.micro_batch * longest <= tokens


def test_micro_batches_are_bounded_by_tokens_and_counted_by_rows_of_mean_length():
    recipe = load_recipe("1.5b")
    own, full = batches(recipe, "code", 4), 8192
    assert fullest(recipe, "code", own)[0] == recipe.train.tokens_per_micro_batch == 2 * full
    assert (own.micro_batch, micro_batches(recipe, own, full)) == (2, own.steps_per_generation)
    assert micro_batches(recipe, own, full / 16) == own.steps_per_generation // 16
    assert micro_batches(recipe, own, 1) == own.updates_per_step
    uneven = load_recipe("1.5b", ["train.tokens_per_micro_batch=20000"])
    assert fullest(uneven, "code", batches(uneven, "code", 4))[0] == 20_000
    small = load_recipe("1.5b", ["train.tokens_per_micro_batch=100"])
    assert fullest(small, "code", batches(small, "code", 4))[0] == full, "a row is never cut"
    huge = load_recipe("1.5b", ["train.tokens_per_micro_batch=100000000"])
    assert fullest(huge, "code", batches(huge, "code", 4)) == (256 * full, 128 * full)
    equal = load_recipe("1.5b", ["optim.loss=bnpo", "train.tokens_per_micro_batch=20000"])
    assert fullest(equal, "code", batches(equal, "code", 4))[0] == 2 * full
    assert micro_batches(equal, batches(equal, "code", 4), 1) == own.steps_per_generation


def test_pairs_share_a_micro_batch_by_the_longest_of_them():
    recipe = load_recipe("135m", ["method=sft", "train.problems_per_step=32", "train.tokens_per_micro_batch=10000"])
    own = batches(recipe, "code", 1)
    assert (own.micro_batch, own.gradient_accumulation) == (4, 8)
    full = filled(recipe, own, 500)
    assert (full.micro_batch, full.gradient_accumulation, full.steps_per_generation) == (16, 2, 2)
    assert filled(recipe, own, 312).micro_batch == 32
    assert filled(recipe, own, 20_000).micro_batch == 1
    assert micro_batches(recipe, own, 250) == 2, "by the longest, which is taken for twice the mean"
    assert fullest(recipe, "code", own) == (10_000, 10_000)


def test_the_published_batch():
    """256 problems x 8, two optimizer steps a rollout, on four ranks."""
    shape = batches(load_recipe("1.5b"), "code", 4)
    assert (shape.rows_per_step, shape.rows_per_rank) == (2048, 512)
    assert shape.steps_per_generation == 2 * shape.gradient_accumulation


@pytest.mark.parametrize(("problems", "size"), [(13, 12), (12, 12), (11, 10), (2, 2)])
def test_a_step_takes_as_many_problems_as_ranks_can_share(problems, size):
    recipe, said = fitted(load_recipe("tiny"), problems, {"code": 2, "test": 1})
    assert recipe.train.problems_per_step == size
    assert (said is None) == (size == 12)
    batches(recipe, "code", 2)


def test_fewer_problems_than_ranks_are_refused():
    with pytest.raises(UserError, match="1 problem cannot fill a step that 2 ranks of a policy"):
        fitted(load_recipe("tiny"), 1, {"code": 2, "test": 1})


def test_a_step_of_pairs_is_told_in_pairs():
    recipe, said = fitted(load_recipe("tiny", ["method=sft"]), 8, {"code": 1})
    assert said == "8 pairs per step, where the recipe asks for 12: there are 8"
    with pytest.raises(UserError, match="1 pair cannot fill") as caught:
        fitted(recipe, 1, {"code": 2})
    assert caught.value.hint.startswith("add pairs, ")
