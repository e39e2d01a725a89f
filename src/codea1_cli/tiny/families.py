"""All families of the tiny world, by name."""

from functools import cache

from codea1_cli.tiny.family import Family
from codea1_cli.tiny.folds import fold_families
from codea1_cli.tiny.singles import single_families


@cache
def families() -> dict[str, Family]:
    """Every family by name, in a fixed order."""
    return {family.name: family for family in [*fold_families(), *single_families()]}
