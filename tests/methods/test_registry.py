import pytest

from codea1_cli.errors import UserError
from codea1_cli.methods.base import Method
from codea1_cli.methods.registry import METHODS, find_method, method_of
from codea1_cli.recipe.files import load_recipe
from tests.methods.one_role import OneRole


@pytest.mark.parametrize("name", METHODS)
def test_every_row_leads_to_a_method_of_that_name(name):
    found = find_method(name)
    assert issubclass(found, Method)
    assert found.name == name
    assert found.roles[0] == "code"


def test_a_class_outside_the_project_is_a_method():
    recipe = load_recipe("tiny", ["method=tests.methods.one_role:OneRole"])
    assert isinstance(method_of(recipe), OneRole)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("grpo", "there are code-a1, self-play, golden-tests, sft"),
        ("nowhere:Method", "cannot be imported"),
        ("tests.methods.one_role:Other", "cannot be imported"),
        (":OneRole", "cannot be imported"),
        ("json:loads", "is not a subclass"),
    ],
)
def test_what_is_not_a_method_is_refused_by_the_recipe(name, said):
    with pytest.raises(UserError, match=said):
        load_recipe("tiny", [f"method={name}"])
