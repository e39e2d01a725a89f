"""Every hint works when it is typed: those in the source name commands, options and keys that exist; those that a table
of mistakes brings up are run from the state that the mistake left."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import codea1_cli
from codea1_cli.cli import app
from codea1_cli.recipe.files import all_keys

SOURCE = Path(codea1_cli.__file__).parent
ROOT_COMMAND: Any = typer.main.get_command(app)
FOREIGN = {"--extra", "--shm-size", "--help"}  # of uv, docker and every command


def leaves(command: Any = ROOT_COMMAND, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
    for name, child in (children or {}).items():
        yield from leaves(child, (*path, name))


COMMANDS = dict(leaves())
OPTIONS = {
    name for command in COMMANDS.values() for param in command.params for name in [*param.opts, *param.secondary_opts]
}


def hints() -> Iterator[tuple[str, str]]:
    """(place, text) of every hint in the source; what an f-string puts in is `X`."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            found: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", "")
                found = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
                if re.search(r"(Error|Fault|Failed|Outage)$", name):
                    found += node.args[1:2]
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "hint":
                found = [node.value]
            for value in found:
                for part in ast.walk(value):
                    if isinstance(part, ast.JoinedStr):
                        text = "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in part.values)
                        yield f"{file.relative_to(SOURCE)}:{node.lineno}", text
                    elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{file.relative_to(SOURCE)}:{node.lineno}", part.value


def typed() -> Iterator[tuple[str, list[str]]]:
    """(place, words) of every command that the source builds to be typed; a word that is not written out is `X`."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("command", "typed") and node.args:
                words = [str(a.value) if isinstance(a, ast.Constant) else "X" for a in node.args]
                yield f"{file.relative_to(SOURCE)}:{node.lineno}", words


def known(words: list[str]) -> bool:
    """Whether the words begin with a command (or a group of them), and every option behind it is one of its own."""
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    for path, command in COMMANDS.items():
        if all(word in (part, "X") for word, part in zip(words, path, strict=False)):
            own = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
            if options <= {*own, "--help"}:
                return True
    return False


def test_every_hint_names_what_there_is() -> None:
    wrong = []
    for place, text in hints():
        commands = re.findall(r"`codea1 ([^`]*)`", text)
        wrong += [f"{place}: {words}" for words in commands if not known(shlex.split(words))]
        strangers = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - OPTIONS - FOREIGN
        wrong += [f"{place}: {name}" for name in strangers]
        sections = {key.partition(".")[0] for key in all_keys() if "." in key}
        keys = re.findall(r"(?<![\w.{/])([a-z]+\.[a-z_0-9]+)(?![\w./(])", text)
        wrong += [
            f"{place}: {key}"
            for key in keys
            if key.partition(".")[0] in sections and key not in all_keys() and ".json" not in key
        ]
        if "codea1 " in re.sub(r"`[^`]*`", "", text):
            wrong.append(f"{place}: a command without backticks: {text}")
    wrong += [f"{place}: {words}" for place, words in typed() if not known(words)]
    assert not wrong, "\n".join(wrong)


# What a user may type wrong; `{run}` is a folder of runs with the run `run é 1`, `{tmp}` an empty folder.
MISTAKES = {
    "no recipe": "train",
    "no recipe for a run": "train --run 'run é 1' --runs {run}",
    "a run that exists": "train --recipe tiny --run 'run é 1' --runs {run} --no-preflight",
    "a misspelt recipe": "train --recipe tny",
    "a misspelt key": "train --recipe tiny train.epochz=1 --dry-run",
    "an alias": "train --recipe tiny train.lr=0.1 --dry-run",
    "a key of another section": "train --recipe tiny batch_size=12 --dry-run",
    "a dry run": "train --recipe tiny --dry-run --run 'a b' --runs {tmp} --max-steps 3 --no-preflight seed=2",
    "no runs": "runs list --runs '{tmp}/é x'",
    "no run to show": "runs show --runs '{tmp}/é x'",
    "a misspelt run": "runs show 'run é 2' --runs {run}",
    "an unknown run": "runs show zzzzzz --runs {run}",
    "the whole of none": "runs prune --whole --runs {run}",
    "a misspelt problem": "mistakes inspect 'basic/doubel it:1' --runs {run}",
    "an unknown problem": "mistakes inspect zzzzzz --runs {run}",
    "an unknown problem to export": "mistakes export --problem zzzzzz --runs {run}",
    "the book": "mistakes list --runs {run}",
    "an export without a file": "mistakes export --json --runs {run}",
    "an export into no folder": "mistakes export --to '{tmp}/a é/x.jsonl' --runs {run}",
    "a misspelt command": "mistaeks list",
    "an unknown benchmark": "eval-code livecodebench",
    "a misspelt option": "runs list --jsn",
    "a misspelt layer": "sandbox check --require seccmp",
    "a misspelt source": "prepare-data mbp --out {tmp}/o",
    "an unknown step": "export --role code --to {tmp}/o --step 9 --runs {run}",
    "an unknown recipe key to see": "recipes show tiny train.zzz=1",
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_what_a_mistake_hints_at_works(name: str, call: Any, run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from codea1_cli.cli import train as train_module

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("codea1_cli.engine.run_setup.check_enough", lambda *_: None)  # the run has few problems
    for part in ("_train", "_prepare_resume", "_write_recipe"):  # what a run does once it was let in
        monkeypatch.setattr(train_module, part, lambda *_: 0)
    runs = run.path.rename(run.path.with_name("run é 1")).parent
    monkeypatch.delenv("CODEA1_RUNS")
    words = shlex.split(MISTAKES[name].format(run=runs, tmp=tmp_path / "empty"))
    done = call(app, *words)
    assert "unexpected" not in done.err
    said = "\n".join(line for line in done.err.splitlines() if "hint: " in line or "next: " in line)
    assert said
    commands = [*re.findall(r"`((?:codea1|mkdir) [^`]*)`", said), *re.findall(r"next: (codea1 .*)", said)]
    for one in commands:
        program, *rest = shlex.split(one)
        if program == "mkdir":
            Path(rest[-1]).mkdir(parents=True)
            rest = words
        assert call(app, *rest).code == 0, one
    if meant := re.search(r"did you mean (.*)\?", said):
        for better in shlex.split(meant[1].replace(" or ", " ")):
            assert any(tried(call, words, place, better) for place in range(len(words))), better
    elif not commands:
        assert re.search(r"one of |--\w+|see ", said), said


def tried(call: Any, words: list[str], place: int, better: str) -> bool:
    """Whether the command is understood with one word, or the key of one override, put right."""
    key, equals, value = words[place].partition("=")
    again = [*words[:place], f"{better}{equals}{value}" if equals else better, *words[place + 1 :]]
    done = call(app, *again, *(["--help"] if not equals and words[0] in ("prepare-data", "sandbox") else []))
    return done.code in (0, 3) and key != better
