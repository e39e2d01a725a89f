"""The packages lie in layers: each imports only from those below it, and TRL is touched in one place."""

import ast
import re
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import codea1_cli

ROOT = Path(codea1_cli.__file__).parent

# Lowest first. Imports inside functions and for types count too.
LAYERS = (
    ("errors",),
    ("durable", "environment"),
    ("extract", "tiny"),
    ("files",),
    ("hub", "trackers", "network"),
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
    ("report", "api"),
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


def test_the_table_of_packages_is_in_the_order_of_the_layers() -> None:
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("| package | what it holds |")[2].partition("\n\n")[0]
    rows = [
        re.findall(r"`(\w+)(?:/|\.py)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")
    ]
    named = [name for row in rows for name in row]
    assert sorted(named) == sorted(LEVEL)
    assert [LEVEL[name] for name in named] == sorted(LEVEL.values())


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


def shadows(table: symtable.SymbolTable) -> Iterator[str]:
    """Comprehensions in a function that name what they bind as the function names what it takes from around it."""
    if isinstance(table, symtable.Function):
        for inner in table.get_children():
            own = {symbol.get_name() for symbol in inner.get_symbols() if symbol.is_assigned()}
            if inner.get_name() in ("listcomp", "setcomp", "dictcomp") and own & set(table.get_frees()):
                yield f"line {inner.get_lineno()}: {own & set(table.get_frees())}"
    for inner in table.get_children():
        yield from shadows(inner)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="its symbol tables have the two as one already")
def test_no_comprehension_hides_a_variable_of_an_enclosing_function() -> None:
    """From Python 3.12 on a comprehension is a part of its function, which then takes the one for the other, unbound."""
    wrong = {
        file: list(shadows(symtable.symtable(file.read_text("utf-8"), str(file), "exec")))
        for file in ROOT.rglob("*.py")
    }
    assert {file.name: found for file, found in wrong.items() if found} == {}
    example = "def f(ids):\n    def g():\n        return [ids for ids in [1]], ids\n    return g"
    assert list(shadows(symtable.symtable(example, "", "exec"))) == ["line 3: {'ids'}"]


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _public(body: list[ast.stmt]) -> Iterator[Definition]:
    return (each for each in body if isinstance(each, Definition) and not each.name.startswith("_"))


def test_every_public_function_and_class_says_what_it_is() -> None:
    """A method may leave that to the class it overrides it from; sections of a recipe are told field by field."""
    trees = [(file, ast.parse(file.read_text(encoding="utf-8"))) for file in sorted(ROOT.rglob("*.py"))]
    classes: dict[str, list[ast.ClassDef]] = {}
    for _, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)

    def bases(node: ast.ClassDef) -> set[str]:
        named = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
        return named | {
            above for name in named for one in classes.get(name, ()) if one is not node for above in bases(one)
        }

    def inherited(node: ast.ClassDef, name: str) -> bool:
        above = bases(node) - {"Protocol"}
        ours = [one for base in above for one in classes.get(base, ())]
        told = any(one.name == name and ast.get_docstring(one) for base in ours for one in _public(base.body))
        return told or any(base not in classes for base in above)  # a library's

    silent = []
    for file, tree in trees:
        if file.name == "in_jail.py":  # it runs beside a model's program; its source is the key of a cache
            continue
        owners = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
        for owner in (tree, *owners):
            for each in _public(owner.body):
                section = isinstance(each, ast.ClassDef) and "BaseModel" in bases(each)
                overrides = isinstance(owner, ast.ClassDef) and inherited(owner, each.name)
                if not (ast.get_docstring(each) or section or overrides):
                    silent.append(f"{file.relative_to(ROOT)}:{each.lineno} {each.name}")
    assert silent == []
