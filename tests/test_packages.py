"""The packages lie in layers: each imports only from those below it, and TRL is touched in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import codea1_cli

ROOT = Path(codea1_cli.__file__).parent

# Lowest first. Imports inside functions and for types count too.
LAYERS = (
    ("errors",),
    ("durable", "environment"),
    ("extract", "tiny"),
    ("files",),
    ("hub", "trackers"),
    ("sandbox",),
    ("problems",),
    ("game",),
    ("judging",),
    ("models",),
    ("methods",),
    ("evals",),
    ("recipe",),
    ("runs", "planning"),
    ("mistakes", "data"),
    ("report",),
    ("engine",),
    ("doctor",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports() -> Iterator[tuple[str, str]]:
    """(place, dotted name) of every import of the project, `codea1_cli.` left out of its own names."""
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", name


def part_of(place: str) -> str:
    return place.partition("/")[0].partition(":")[0].removesuffix(".py")


def test_every_package_has_its_layer() -> None:
    there = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert there - {"__init__", "__pycache__"} == set(LEVEL)


def test_a_package_imports_only_from_below() -> None:
    wrong = []
    for place, name in imports():
        parts = name.split(".")
        if parts[0] != "codea1_cli" or len(parts) < 2 or parts[1] not in LEVEL:
            continue
        importing, imported = part_of(place), parts[1]
        if importing in LEVEL and importing != imported and LEVEL[imported] >= LEVEL[importing]:
            wrong.append(f"{place}: {importing} imports {imported}")
    assert wrong == []


def test_trl_is_imported_in_one_place() -> None:
    wrong = [place for place, name in imports() if name.split(".")[0] == "trl" and not place.startswith("engine/trl/")]
    assert wrong == []
