"""The recipe: everything that decides a run, how it is read from files, and what follows from it. Here are the names of
those that are shipped."""

import importlib.resources
from pathlib import Path


def recipe_folder() -> Path:
    """The folder of the shipped recipes: package data in a wheel, `recipes/` in a source tree."""
    packaged = Path(str(importlib.resources.files("codea1_cli"))) / "recipes"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "recipes"


def recipe_names() -> list[str]:
    """The shipped recipes' names, smallest model first."""
    return sorted((p.stem for p in recipe_folder().glob("*.yaml")), key=_size)


def _size(name: str) -> float:
    number, unit = name[:-1], name[-1:]
    if not number.replace(".", "", 1).isdigit():
        return 0.0
    return float(number) * {"m": 1e6, "b": 1e9}.get(unit, 1.0)
