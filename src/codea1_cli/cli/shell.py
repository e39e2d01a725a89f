"""What the command line says of itself: help in groups, what a shell completes, what is wrong with a command."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from codea1_cli.durable import check_folder
from codea1_cli.errors import UserError, did_you_mean, plain_fault

_COMPLETES = "_CODEA1_COMPLETE"  # set by the shell that asks; Typer's name


def usage_fault(error: typer.TyperException) -> tuple[str, str | None]:
    """What is wrong with a command line, and the hint."""
    message = (
        plain_fault(error.format_message())
        .partition(" (Possible options")[0]
        .partition(" Did you mean ")[0]
        .rstrip(".")
    )
    context = getattr(error, "ctx", None)
    hint = None
    if context is not None:
        hint = f"see {context.command_path} --help"
        if surplus := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
            taken = [param for param in context.command.params if param.param_type_name == "argument"]
            names = [param.metavar or str(param.name).upper() for param in taken] or ["options alone"]
            message, hint = f"too many arguments: {surplus[1]}", f"{context.command_path} takes {' '.join(names)}"
        elif option := getattr(error, "option_name", None):
            params = context.command.params
            if option == "--run" and any("RUN" in (param.metavar or "") for param in params):
                hint = f"without --run: {context.command_path} RUN"
            else:
                hint = did_you_mean(option, [name for param in params for name in param.opts]) or hint
        elif stranger := re.fullmatch("No such command '(.*)'", message):
            names = list(context.command.commands)
            hint = did_you_mean(stranger[1], names) or f"one of {', '.join(names)}"
    return message[:1].lower() + message[1:], hint


# -- help --------------------------------------------------------------------------------------------------------------
class CommandGroup(TyperGroup):
    """Commands: in help they stand under their `rich_help_panel`, each with the whole first sentence of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (getattr(command, "rich_help_panel", None), (name, command.get_short_help_str(10_000)))
            for name, command in found
            if command is not None and not command.hidden
        ]
        _sections(formatter, "Commands", rows)


def panels(words: Mapping[str, str]) -> Callable[[Any], Any]:
    """Puts a command's parameters under headings in its help: by heading, their names."""

    def marked(function: Any) -> Any:
        function.panels = {name: heading for heading, names in words.items() for name in names.split()}
        return function

    return marked


def option_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an option of each field of the command's parameters that are dataclasses.

    A field is `name: Annotated[TYPE, Option(...)] = DEFAULT`; `--help` lists them in the order of the signature.
    """
    signature, keyword = inspect.signature(command, eval_str=True), inspect.Parameter.KEYWORD_ONLY
    kinds = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    options = {name: [field for field in fields(group) if field.init] for name, group in groups.items()}
    flat: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            flat.append(parameter.replace(kind=keyword))
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        flat += [inspect.Parameter(f.name, keyword, default=f.default, annotation=hints[f.name]) for f in options[name]]

    @wraps(command)
    def grouped(**given: Any) -> Any:
        made = {name: group(**{f.name: given.pop(f.name) for f in options[name]}) for name, group in groups.items()}
        return command(**given, **made)

    grouped.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    grouped.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return grouped


class Command(TyperCommand):
    """A command whose options stand under the headings of its `panels` in help, and which takes no empty value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line.

        Raises:
            UserError: a value is empty, which as a path would be the current folder; a file stands where a folder is
                wanted (`DIR`).
        """
        values = {} if ctx.resilient_parsing else self.make_parser(ctx).parse_args(args=list(args))[0]
        for param in self.get_params(ctx):
            given = values.get(str(param.name))
            if not all(str(one).strip() for one in (given if isinstance(given, list | tuple) else [given])):
                option = param.param_type_name == "option"
                name = max(param.opts, key=len) if option else (param.metavar or str(param.name)).strip("[].")
                raise UserError(
                    f"{name} is empty", hint='a shell variable that is not set is one cause; the current folder is "."'
                )
        rest = super().parse_args(ctx, args)
        for param in self.get_params(ctx):
            folder = ctx.params.get(str(param.name)) if param.metavar == "DIR" else None
            if isinstance(folder, Path) and str(param.name) in values:
                check_folder(folder, max(param.opts, key=len), read=param.name == "benchmarks")
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments, then options."""
        own = getattr(self.callback, "panels", {})
        records = [(param, param.get_help_record(ctx)) for param in self.get_params(ctx)]
        for kind, heading in (("argument", "Arguments"), ("option", "Options")):
            rows = [(own.get(param.name), row) for param, row in records if row and param.param_type_name == kind]
            _sections(formatter, heading, rows)


def _sections(formatter: Any, heading: str, rows: Iterable[tuple[str | None, tuple[str, str]]]) -> None:
    """Writes each row below its own heading, or below `heading`, which comes last."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for own, row in rows:
        sections.setdefault(own or heading, []).append(row)
    for name in sorted(sections, key=lambda name: name == heading):
        with formatter.section(name):
            formatter.write_dl(sections[name])


# -- completion --------------------------------------------------------------------------------------------------------
def completing() -> bool:
    """Whether a shell asks what may come next: nothing else is to be said then."""
    return _COMPLETES in os.environ


def complete(app: Callable[..., Any]) -> int:
    """Answers the shell on stdout and returns the exit code; without a word where anything is wrong."""
    from typer import _completion_classes

    # Help is plain text here: read as Rich's markup it takes a third of a second more, and loses what is in brackets.
    _completion_classes._sanitize_help_text = lambda text: text
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), contextlib.suppress(Exception):
        if os.environ[_COMPLETES] == "complete_bash":
            taken = _taken_by_bash()
            form: Any = _completion_classes.BashComplete
            form.format_completion = lambda _, item: taken(item.value)
        try:
            app(prog_name="codea1", standalone_mode=False)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 0
    return 1


def _completer(found: Callable[[typer.Context], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    """A parameter's `autocompletion`: those names that begin with what is typed; none where looking for them fails."""

    def matching(ctx: typer.Context, incomplete: str) -> list[str]:
        with contextlib.suppress(Exception):
            return [name for name in found(ctx) if name.startswith(incomplete)]
        return []

    return matching


def _taken_by_bash() -> Callable[[str], str]:
    """How bash takes a name into the line: escaped, as it is in an open quote. Bash cuts words at colons and replaces
    the last piece alone: the words are put together here, and a name goes without what stands before that piece."""
    words: list[str] = []
    colons = False
    for word in os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]:
        joined, colons = colons, bool(word) and not word.strip(":")
        if words and (joined or colons):
            words[-1] += word
        else:
            words.append(word)
    joined = len(words) <= int(os.environ["COMP_CWORD"])
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    before = words[-1].rpartition(":")[0].replace("\\", "") + ":" if joined and ":" in words[-1] else ""
    quoted = words[-1][:1] in {"'", '"'}
    return lambda name: name if quoted else re.sub(r"([^\w@%+=:,./-])", r"\\\1", name.removeprefix(before))


def _runs(ctx: typer.Context) -> list[Path]:
    """The folders of runs in the place that --runs names, newest first."""
    root = Path(ctx.params.get("runs") or os.environ.get("CODEA1_RUNS") or "runs")
    files = sorted(root.glob("*/recipe.yaml"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    return [file.parent for file in files]


@_completer
def run_names(ctx: typer.Context) -> Iterable[str]:
    """Completes the name of a run."""
    taken = ctx.params.get("names") or ()
    return [folder.name for folder in _runs(ctx) if folder.name not in taken]


@_completer
def problem_ids(ctx: typer.Context) -> Iterable[str]:
    """Completes the id of a problem that has tests in a run's Mistake Book, that with most mistakes first."""
    import sqlite3

    asked = ctx.params.get("run") or ctx.params.get("name")
    there = [folder for folder in _runs(ctx) if asked in (None, folder.name)] or [Path(str(asked))]
    book = next(folder / "mistakes.sqlite" for folder in there if (folder / "mistakes.sqlite").is_file())
    with contextlib.closing(sqlite3.connect(f"{book.absolute().as_uri()}?mode=ro", uri=True, timeout=0.2)) as opened:
        rows = opened.execute("select problem_id from book group by problem_id order by sum(count) desc")
        return [row[0] for row in rows]


@_completer
def recipe_names(ctx: typer.Context) -> Iterable[str]:
    """Completes the name of a shipped recipe."""
    from codea1_cli.recipe import recipe_names

    return recipe_names()


@_completer
def benchmark_names(ctx: typer.Context) -> Iterable[str]:
    """Completes the name of a benchmark that the command takes."""
    from codea1_cli.evals.registry import names

    return names("test" if ctx.info_name == "eval-tests" else "code")


@_completer
def backend_names(ctx: typer.Context) -> Iterable[str]:
    """Completes the name of a sandbox's backend."""
    from codea1_cli.sandbox.make import BACKENDS

    return BACKENDS


@_completer
def tracker_names(ctx: typer.Context) -> Iterable[str]:
    """Completes the name of a tracker."""
    from codea1_cli.trackers import TRACKERS

    return TRACKERS


def override_values(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes KEY=VALUE of a recipe where the value is a name: of a method, of a backend."""
    from codea1_cli.methods.registry import METHODS
    from codea1_cli.sandbox.make import BACKENDS

    names: dict[str, Iterable[str]] = {"method": METHODS, "sandbox.backend": BACKENDS}
    before = list(ctx.params.get("overrides") or ctx.params.get("recipes") or ())
    before += [] if incomplete != "=" else ["="]  # for bash the sign is a word of its own
    if before[-1:] == ["="] and len(before) > 1:
        return [name for name in names.get(before[-2], ()) if name.startswith(incomplete.removeprefix("="))]
    return [text for key, each in names.items() for name in each if (text := f"{key}={name}").startswith(incomplete)]


RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="A run's name or folder; the newest when left out.", autocompletion=run_names),
]
RunOption = Annotated[str | None, typer.Option(metavar="RUN", help="The same as RUN.", autocompletion=run_names)]


def run_of(name: str | None, run: str | None) -> str | None:
    """The run that a command names, as RUN or as --run RUN; None where neither is given.

    Raises:
        UserError: both are, and differ.
    """
    if name and run and name != run:
        raise UserError(f"two runs are named, {name} and --run {run}", hint="leave one out")
    return name or run


RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe", "-r", metavar="NAME|FILE", help="A shipped recipe or a YAML file.", autocompletion=recipe_names
    ),
]
