"""The documentation names only what exists: files, recipe keys, commands."""

import re
import runpy
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer

from codea1_cli.cli import app
from codea1_cli.recipe.data_options import recipe_options
from codea1_cli.recipe.files import all_keys
from tests.cli.docs_commands import COMMANDS, ground

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
    known = {*all_keys(), "data.skipped", *(f"data.source.{name}" for name in recipe_options())}
    wrong += [word for word in words if word.startswith("data.") and word not in known]
    assert not [word for word in wrong if not word.endswith((".md", ".py", ".json", ".jsonl", ".yaml", ".sqlite"))]


def typed(page):
    """(words, whether it is there to be typed) of each command on a page: lines of blocks, and inline ones; one that is
    inline and has no arguments is a mention."""
    text = page.read_text()
    blocks = [*re.findall(r"^```.*?\n(.*?)^```", text, re.M | re.S), *re.findall(r"^((?: {4}.*\n)+)", text, re.M)]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for line in (line for block in blocks for line in block.splitlines()):
        if found := re.match(r"\s*(?:\$ )?(?:uv run )?codea1 (.*)", line):
            yield shlex.split(found[1], comments=True), True
    for inline in re.findall(r"`(?:uv run )?codea1 ([^`]+)`", rest):
        words = shlex.split(inline, comments=True)
        yield words, len(words) > len(leaf(words)[1])


@cache
def whole():
    return typer.main.get_command(app)


def leaf(words):
    """The command that words begin with, and its path."""
    command, path = whole(), []
    for word in words:
        name = word.partition("|")[0]
        if not hasattr(command, "commands") or name.startswith("-"):
            break
        assert name in command.commands, words
        command, path = command.commands[name], [*path, name]
    return command, path


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "cli.md"], ids=named)
def test_commands_are_understood(page):
    """By the command line's own parser; recipe keys too."""
    for words, _ in typed(page):
        command, path = leaf(words)
        arguments = [word.strip("[]") for word in words[len(path) :]]
        context = command.make_context(path[-1] if path else "", [], resilient_parsing=True)
        context.resilient_parsing = False
        command.make_parser(context).parse_args(list(arguments))  # raises what a user would see
        if path[:1] in (["train"], ["plan"]):
            keys = [word.partition("=")[0] for word in arguments if "=" in word and not word.startswith("-")]
            assert set(keys) <= set(all_keys()), words


def test_every_command_that_is_there_to_be_typed_is_run():
    """Or its plan: `tests/cli/docs_commands.py` has each."""
    there = {
        shlex.join(words)
        for page in PAGES
        if page.name not in ("cli.md", "CHANGELOG.md")
        for words, yes in typed(page)
        if yes
    }
    assert there - set(COMMANDS) == set()
    assert set(COMMANDS) - there == set()


def test_what_is_run_in_place_of_a_command_is_of_the_same_kind():
    """The same words shortened; or the plan of a training run that needs GPUs; or the same command on what is here."""
    for text, one in COMMANDS.items():
        command, run = leaf(shlex.split(text))[1], leaf(one.words(text))[1]
        assert run == (["plan"] if one.plan else command), text
        assert not one.plan or (command == ["train"] and not one.instead), text


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_scripts_that_are_there_to_be_run_exist(page):
    """And so do the files of the repository that they are given."""
    for line in re.findall(r"uv run python ([^`#\n]+)", page.read_text()):
        files = [word for word in line.split() if re.fullmatch(r"(?:benchmarks|scripts|recipes)/\S+", word)]
        assert files, line
        assert not [file for file in files if not (ROOT / file).is_file()], line


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(3600)
@pytest.mark.shared
def test_every_command_does_what_is_said_of_it(tmp_path, shared, monkeypatch, call):
    """As it is typed, in an empty folder with empty caches, where a stand-in of the hub is all that there is."""
    with ground(tmp_path, shared, monkeypatch) as run:
        wrong = [f"{text}\n    {fault}" for text, one in COMMANDS.items() if (fault := run(call, text, one))]
    assert not wrong, "\n".join(wrong)


def test_the_kill_of_the_readme_is_one():
    """Its candidate gives what is said, assert by assert."""
    block = re.search(r"```python\n# step.*?\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    names = {}
    exec(block.partition("\nassert ")[0], names)
    asserts = re.findall(r"^assert (.*) == (\S+) +# (passes|fails: gives (\S+), right is (\S+))$", block, re.M)
    for call, stated, said, given, right in asserts:
        assert repr(eval(call, names)) == (given or stated)
        assert (right or stated) == stated
        assert (given == "") == (said == "passes")
    assert len(asserts) == block.count("assert ")
    assert [one[2] for one in asserts if one[2] != "passes"]


def test_the_script_behind_it_takes_a_sound_suite_that_breaks_its_candidate(run):
    block = runpy.run_path(str(ROOT / "scripts" / "show_kill.py"))["main"](str(run.path))
    assert block.splitlines()[:3] == [
        "```python", "# step 1, basic/double it:1: Return twice the number.", "def double(x):",
    ]  # fmt: skip
    assert "assert double(3) == 6    # fails: gives 5, right is 6" in block
    assert "assert double(-1) == -2  # fails: gives -1, right is -2" in block


def test_the_container_file_takes_what_is_there_and_let_in():
    """A name that .dockerignore leaves out is missing in a build alone, which no test does."""
    copied = [
        name
        for line in re.findall(r"^COPY (.*) \S+$", (ROOT / "Containerfile").read_text(), re.M)
        for name in line.split()
    ]
    assert {"pyproject.toml", "uv.lock", "recipes", "src"} <= set(copied)
    let_in = set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.M))
    assert set(copied) == let_in
    assert all((ROOT / name).exists() for name in copied)


def test_the_generated_reference_is_up_to_date():
    generator = runpy.run_path(str(ROOT / "scripts" / "gen_cli_reference.py"))
    assert (ROOT / "docs" / "cli.md").read_text() == generator["reference"](), "run scripts/gen_cli_reference.py"
    prompts = runpy.run_path(str(ROOT / "scripts" / "gen_prompts.py"))
    assert (ROOT / "docs" / "prompts.md").read_text() == prompts["page"](), "run scripts/gen_prompts.py"
