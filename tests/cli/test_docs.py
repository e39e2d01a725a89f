"""The documentation names only what exists: files, recipe keys, commands."""

import re
from pathlib import Path

import pytest
import typer

from codea1_cli.cli import app
from codea1_cli.recipe.files import all_keys

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
SECTIONS = {key.partition(".")[0] for key in all_keys() if "." in key}


def named(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in link]
    missing = [link for link in links if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_recipe_keys_exist(page):
    words = re.findall(r"(?<![\w./-])([a-z_]+(?:\.[a-z_]+)+)(?==|`|\s|\))", page.read_text())
    wrong = [word for word in words if word.split(".")[0] in SECTIONS - {"data"} and word not in all_keys()]
    wrong += [word for word in words if word.startswith("data.") and word not in {*all_keys(), "data.skipped"}]
    assert not [word for word in wrong if not word.endswith((".md", ".py", ".json", ".jsonl", ".yaml", ".sqlite"))]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "cli.md"], ids=named)
def test_commands_and_their_options_exist(page):
    root = typer.main.get_command(app)
    for line in re.findall(r"(?:`|\$ )(?:uv run )?(codea1 [^`#\n]+)", page.read_text()):
        command, words = root, line.split()[1:]
        while words and hasattr(command, "commands") and "|" not in words[0]:
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {option for param in command.params for option in param.opts}
        for word in words:
            if word.startswith("-"):
                assert word in known | {"--help", "--version"}, line


def test_the_generated_reference_is_up_to_date():
    import runpy

    generator = runpy.run_path(str(ROOT / "scripts" / "gen_cli_reference.py"))
    assert (ROOT / "docs" / "cli.md").read_text() == generator["reference"](), "run scripts/gen_cli_reference.py"
